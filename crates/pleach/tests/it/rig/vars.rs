//! Environment variables that lengthen or repeat a run. docs/testing.md lists them.

use std::str::FromStr;

/// The number in the environment variable `name`, or `default`.
///
/// # Panics
/// If the variable holds no number.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    parsed(name).unwrap_or(default)
}

/// The value of the environment variable `name`, if it is set.
///
/// # Panics
/// If the value cannot be parsed.
pub(crate) fn parsed<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("the variable {name} holds {text:?}, which makes no sense there")),
    )
}

/// The seed of the first case; the next cases have the following numbers.
pub(crate) fn seed() -> u64 {
    number("PLEACH_SEED", 1)
}

/// How many cases to run.
pub(crate) fn cases(default: u64) -> u64 {
    number("PLEACH_CASES", default)
}
