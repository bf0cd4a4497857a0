//! Development tasks of Pleach.
fn main() {}
