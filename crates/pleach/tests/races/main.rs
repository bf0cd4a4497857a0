//! Races: tests that hold threads at named points and so force an order that chance gives once in a million runs.
//!
//! `pleach::env::failpoint::reached` names a point in the engine's sources; `hold` stops every thread that reaches it.
//! Holds are global, so this is a binary of its own, and each test runs inside [`race`], which lets one run at a time.
//! A test never hangs: `Hold::wait_for` and `race` have a time limit, and name the held points when it is over.
//!
//! A test opens a store on the real machine (in a temporary directory), spawns the threads of its race, holds one of them,
//! lets the others run, releases, and checks what every thread saw.

#![expect(clippy::disallowed_methods, reason = "a race needs threads, real files and a time limit")]
#![expect(clippy::unwrap_used, reason = "what the threads of a race call is part of the test")]

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pleach::env::failpoint;

mod closing;
mod commit;
mod files;
mod partitions;
mod reads;
mod side_by_side;
mod wakers;

/// Longest time that one race may take. Arbitrary, far above what any needs on a busy machine.
const RACE_TIME_MAX: Duration = Duration::from_secs(120);

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs `body` while no other race runs, and fails where it does not end.
fn race(body: impl FnOnce() + Send + 'static) {
    let _one_at_a_time = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (done, ended) = channel();
    let thread = std::thread::spawn(move || {
        body();
        let _nobody_waits_any_more = done.send(());
    });
    match ended.recv_timeout(RACE_TIME_MAX) {
        // The sender is gone when the body has panicked.
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        Err(RecvTimeoutError::Timeout) => {
            panic!("the race does not end; held points: {}", failpoint::held_points());
        }
    }
}
