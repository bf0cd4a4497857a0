//! Failed opens: the files that they leave, and a device that reads differently the second time.

use std::path::Path;
use std::sync::{Arc, mpsc};

use pleach::env::{CrashPolicy, Fault, FaultKind, SimEnv};
use pleach::{ErrorKind, Options};

use crate::rig::setup::DIR;

fn options(env: &Arc<SimEnv>) -> Options {
    Options::new().env(Arc::<SimEnv>::clone(env)).memory(64 << 20).memtable_bytes(128 << 10)
}

fn names(env: &SimEnv, prefix: &str) -> Vec<String> {
    let mut names = env.file_names(Path::new(DIR));
    names.retain(|name| name.contains(prefix));
    names
}

/// A machine whose process was killed after some writes.
fn killed_machine() -> Arc<SimEnv> {
    let env = SimEnv::new(1);
    let db = options(&env).open(DIR).unwrap();
    (0..100u32).for_each(|key| db.default_partition().put(key.to_le_bytes(), [7; 500]).unwrap());
    env.crash_image(CrashPolicy::ProcessKill, 1)
}

/// An open writes a manifest before the log's segment. Whatever call fails, again and again: manifests do not pile up.
/// The calls that replace `CURRENT` are exceptions: after them either manifest may be the one that it names, so both stay
/// until an open succeeds.
#[test]
fn failed_opens_do_not_pile_up_manifests() {
    const OPENS: usize = 6;
    const MANIFESTS_MAX: usize = 3;
    let mut failed = 0;
    for kind in [FaultKind::Eio, FaultKind::NoSpace] {
        for at in 0.. {
            let env = killed_machine();
            let mut struck = Vec::new();
            for _ in 0..OPENS {
                let fault = Fault { at_op: env.op_count() + at, kind };
                env.set_fault(Some(fault));
                let (sender, calls) = mpsc::channel();
                env.on_op(Box::new(move |number, name| sender.send((number, name)).unwrap()));
                failed += usize::from(options(&env).open(DIR).is_err());
                struck.extend(calls.try_iter().filter(|(number, _)| *number == fault.at_op));
                env.on_op(Box::new(|_, _| ()));
            }
            let manifests = names(&env, "MANIFEST-");
            let is_exception = struck.iter().any(|(_, name)| ["rename", "sync_dir"].contains(name));
            assert!(
                is_exception || manifests.len() <= MANIFESTS_MAX,
                "{kind:?} at {at}: {struck:?} {manifests:?}"
            );
            env.clear_faults();
            drop(options(&env).open(DIR).unwrap());
            assert_eq!(names(&env, "MANIFEST-").len(), 1, "{kind:?} at {at}: {struck:?}");
            if struck.is_empty() {
                break;
            }
        }
    }
    assert!(failed > OPENS, "{failed}");
}

/// The log is read twice: before anything is written, and to be written again.
#[test]
fn a_log_that_reads_differently_the_second_time_is_corruption() {
    let env = killed_machine();
    let segments = names(&env, ".log");
    let path = Path::new(DIR).join(segments.last().unwrap());
    let (weak, old) = (Arc::downgrade(&env), segments.len());
    let mut is_changed = false;
    env.on_op(Box::new(move |_, _| {
        let env = weak.upgrade().expect("it makes the call");
        if !is_changed && names(&env, ".log").len() > old {
            is_changed = true;
            let mut log = env.read_file(&path).unwrap();
            let last = log.windows(500).rposition(|bytes| bytes == [7; 500]).unwrap_or(0);
            log[last..].fill(0);
            env.write_file(&path, &log);
        }
    }));
    let error = options(&env).open(DIR).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.to_string().contains("second time"), "{error}");
}
