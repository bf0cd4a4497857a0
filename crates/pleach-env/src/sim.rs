//! The simulated machine.
/// A simulated machine.
pub struct SimEnv;
/// What a crash keeps.
pub struct CrashPolicy;
/// An injected fault.
pub struct Fault;
/// A fault's kind.
pub struct FaultKind;
