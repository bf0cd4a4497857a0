//! Integration tests of the environment, through its public interface.

mod same_behaviour;
mod speed;
