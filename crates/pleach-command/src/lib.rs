//! Parts that the commands `pleach` and `pleach-bench` share: Ctrl-C ([`Interrupt`]) and byte sizes ([`parse_bytes`]).

mod bytes;
mod interrupt;

pub use bytes::parse_bytes;
pub use interrupt::{CannotListen, Interrupt, Interrupted, SecondSignal};
