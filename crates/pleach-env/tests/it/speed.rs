//! The cost of a crash state: the crash tests need millions of them.
//!
//! The bound is loose, so that a busy machine does not fail it; the measured figure is printed.

use std::path::Path;
use std::time::{Duration, Instant};

use pleach_env::{CrashPolicy, Env, SimEnv};

/// A store of about 300 KiB in twenty files, of which about a third is pending.
fn store() -> std::io::Result<std::sync::Arc<SimEnv>> {
    let (env, dir) = (SimEnv::new(1), Path::new("/store"));
    env.create_dir_all(dir)?;
    for number in 0..20_u8 {
        let file = env.create_file(&dir.join(format!("{number:06}.sst")))?;
        for part in 0..10 {
            file.write_all_at(&[number; 1500], part * 1500)?;
        }
        if number % 3 > 0 {
            file.sync("test.file")?;
        }
        if number == 10 {
            env.sync_dir(dir, "test.dir")?;
        }
    }
    env.remove_file(&dir.join("000004.sst"))?;
    env.rename(&dir.join("000005.sst"), &dir.join("000100.sst"))?;
    Ok(env)
}

#[expect(clippy::disallowed_methods, reason = "the cost on the real clock is what is measured")]
fn time(rounds: u32, mut body: impl FnMut(u64)) -> Duration {
    let start = Instant::now();
    for round in 0..rounds {
        body(u64::from(round));
    }
    start.elapsed() / rounds
}

#[test]
fn a_crash_state_costs_well_under_a_millisecond() {
    let env = store().expect("no fault is planted");
    let image = time(2_000, |seed| drop(env.crash_image(CrashPolicy::Random, seed)));
    let capture = time(2_000, |_| drop(env.capture()));
    let image_and_read = time(500, |seed| {
        let image = env.crash_image(CrashPolicy::Random, seed);
        for name in image.file_names(Path::new("/store")) {
            assert!(image.read_file(&Path::new("/store").join(name)).is_some());
        }
    });
    let file = env.create_file(Path::new("/store/log")).expect("no fault is planted");
    let write_and_capture = time(2_000, |round| {
        env.capture_at(&[env.op_count()]);
        file.write_all_at(&[1; 100], round * 100).expect("no fault is planted");
    });
    println!("crash image {image:?}, and all its files read {image_and_read:?}");
    println!("capture {capture:?}, 100-byte append with a capture {write_and_capture:?}");
    assert!(image < Duration::from_millis(1));
}
