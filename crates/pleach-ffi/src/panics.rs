//! Panics that must not leave a function of C: an unwinding through C ends the process.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`, and returns `otherwise` if it panics.
#[inline]
pub fn guard<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// Runs `work`.
///
/// # Errors
/// The message of its panic.
#[inline]
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        format!("a bug in Pleach: {}", text.unwrap_or("a panic without a message"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_value() {
        assert_eq!((guard(1, || 2), guard(1, || panic!("no"))), (2, 1));
        assert_eq!(caught(|| 2), Ok(2));
        let message = |work: fn()| caught(work).unwrap_err();
        assert_eq!(message(|| panic!("five")), "a bug in Pleach: five");
        assert_eq!(message(|| panic!("{}", 5)), "a bug in Pleach: 5");
        assert_eq!(message(|| std::panic::panic_any(5)), "a bug in Pleach: a panic without a message");
    }
}
