//! The real machine.
/// The operating system's files, clock, randomness and threads.
pub struct RealEnv;
