//! Tools of the proof rigs: stores in a simulated machine, driven by random actions and compared with maps.
//!
//! A [`plan::Plan`] makes up [`action::Action`]s; a [`driver::Driver`] does them to a store and writes down, in a
//! [`timeline::Timeline`], what the store may look like after a crash at each moment; [`compare`] compares a store with
//! a [`world::World`]. Everything is determined by seeds.

pub(crate) mod action;
pub(crate) mod catch;
pub(crate) mod child;
pub(crate) mod compare;
pub(crate) mod driver;
pub(crate) mod happened;
pub(crate) mod keys;
pub(crate) mod plan;
pub(crate) mod query;
pub(crate) mod real_bytes;
pub(crate) mod setup;
pub(crate) mod shape;
pub(crate) mod threads;
pub(crate) mod timeline;
pub(crate) mod together;
pub(crate) mod vars;
pub(crate) mod world;
