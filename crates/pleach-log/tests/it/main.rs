//! Tests of the log through its public interface.
#![cfg(test)]

mod crash;
mod damage;
mod faults;
mod golden;
mod recovery;
mod salvage;
mod speed;
mod stamps;
mod support;
mod writer;
