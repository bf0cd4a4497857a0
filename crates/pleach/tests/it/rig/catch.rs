//! Panics as violations: caught with their message and place, and not printed.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

static HOOK: Once = Once::new();

/// Runs `body`. A panic becomes an error with its message and place.
pub(crate) fn catch<T>(body: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    HOOK.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if CATCHING.get() {
                LAST.with_borrow_mut(|last| *last = info.to_string());
            } else {
                others(info);
            }
        }));
    });
    let before = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(body));
    CATCHING.set(before);
    result.unwrap_or_else(|_| Err(format!("it panicked: {}", LAST.take())))
}
