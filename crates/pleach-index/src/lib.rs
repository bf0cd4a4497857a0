//! pleach-index
