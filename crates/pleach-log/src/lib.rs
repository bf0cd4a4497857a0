//! pleach-log
