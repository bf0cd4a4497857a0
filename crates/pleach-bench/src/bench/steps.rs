//! A load in steps: the store is flushed and settled after each of them.

use std::sync::atomic::{AtomicU64, Ordering};

use super::execute::{Tally, execute};
use super::progress::watched;
use super::store::Store;
use crate::engine::{Error, Result};
use crate::workload::{Op, OpStream};

/// Puts what `stream` gives, and settles after `every` keys and at the end. Merges never run beside puts, so the runs that come
/// out depend on the number of steps alone.
pub(super) fn put_in_steps(store: &Store<'_>, mut stream: Box<dyn OpStream>, every: u64) -> Result<Tally> {
    let progress = AtomicU64::new(0);
    let name = format!("{} (load in steps)", store.factory.name);
    let put = || {
        let mut session = store.engine().session()?;
        let (mut op, mut tally) = (Op::new(), Tally::default());
        let mut step_end = every;
        while stream.next(&mut op) {
            execute(&mut *session, &op, &mut tally)?;
            if tally.ops >= step_end {
                store.settle()?;
                step_end += every;
                progress.store(tally.ops, Ordering::Relaxed);
                store.interrupt.check()?;
            }
        }
        store.settle()?;
        Ok::<_, Error>(tally)
    };
    watched(&name, Some(store.settings.keys), store.dir(), &progress, put).0
}
