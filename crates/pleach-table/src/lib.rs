//! pleach-table
