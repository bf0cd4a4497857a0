//! The `pleach` command.
fn main() {}
