//! A machine that has no thread for a store: an error, and nothing is harmed.

use std::sync::Arc;

use pleach::env::SimEnv;
use pleach::{ErrorKind, Options};

use crate::rig::setup::DIR;

#[test]
fn an_open_without_threads_is_an_error_and_releases_the_store() {
    let env = SimEnv::new(1);
    let options = || Options::new().env(Arc::<SimEnv>::clone(&env)).memory(64 << 20).compaction_threads(2);
    let db = options().open(DIR).unwrap();
    db.default_partition().put(b"key", b"value").unwrap();
    db.close().unwrap();
    for limit in 0..4 {
        env.set_job_limit(Some(limit));
        let error = options().open(DIR).err().expect("it needs four threads");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("ulimit -u"), "{error}");
    }
    env.set_job_limit(Some(4));
    let db = options().open(DIR).unwrap();
    assert_eq!(db.default_partition().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}
