//! pleach
