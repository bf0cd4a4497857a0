//! Tests of the log through its public interface.

mod damage;
mod golden;
mod recovery;
mod support;
mod writer;
