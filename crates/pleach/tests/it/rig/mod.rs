//! Tools of the rigs: stores in a simulated machine, driven by random actions and compared with maps.
//!
//! A [`plan::Plan`] chooses [`action::Action`]s. A [`driver::Driver`] applies them to a store and records in a
//! [`timeline::Timeline`] what the store may hold after a crash at each call. [`compare`] compares a store with a
//! [`world::World`]. Seeds determine everything.

pub(crate) mod action;
pub(crate) mod catch;
pub(crate) mod child;
pub(crate) mod compare;
pub(crate) mod driver;
pub(crate) mod happened;
pub(crate) mod keys;
pub(crate) mod plan;
pub(crate) mod query;
pub(crate) mod read_drivers;
pub(crate) mod real_bytes;
pub(crate) mod setup;
pub(crate) mod shape;
pub(crate) mod tasks;
pub(crate) mod threads;
pub(crate) mod timeline;
pub(crate) mod together;
pub(crate) mod tuning;
pub(crate) mod vars;
pub(crate) mod world;
