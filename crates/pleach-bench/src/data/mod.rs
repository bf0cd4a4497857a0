//! Data: keys, values and random choices. Each is a pure function of an index and a seed, so every engine gets the same bytes
//! in the same order.

mod chooser;
mod dataset;
mod generated_text;
mod key_set;
mod keys;
mod permutation;
mod random;
mod value_sizes;
mod values;
mod zipfian;

pub(crate) use chooser::{Chooser, Distribution};
pub(crate) use dataset::Dataset;
pub(crate) use keys::KeySet;
pub(crate) use permutation::Permutation;
pub(crate) use random::Random;
pub(crate) use value_sizes::{GeneralizedPareto, ValueSizes};
pub(crate) use values::{Values, has_tag};
