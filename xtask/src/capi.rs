//! The stage `capi` of the gate: the tests of the interface for C, with its programs under valgrind.

use std::path::Path;

use crate::{header, steps};

/// Checks the header and runs the tests of `pleach-capi`. Its programs in C also run under valgrind, where there is one.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    header::check(root)?;
    steps::cargo(
        root,
        &["test", "--package", "pleach-ffi", "--package", "pleach-capi"],
        &[("PLEACH_VALGRIND", "1")],
    )
}
