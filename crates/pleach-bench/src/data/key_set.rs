//! Key sets on the command line and in records of runs, by their names.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::keys::KeySet;

impl ValueEnum for KeySet {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, about) = self.description();
        Some(PossibleValue::new(name).help(about))
    }
}

impl Serialize for KeySet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.description().0)
    }
}

impl<'de> Deserialize<'de> for KeySet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let set = Self::ALL.into_iter().find(|set| set.description().0 == name);
        set.ok_or_else(|| D::Error::custom(format!("there is no key set {name:?}")))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn key(set: KeySet, index: u64) -> Vec<u8> {
        let mut key = Vec::new();
        set.write(index, &mut key);
        key
    }

    #[test]
    fn keys_look_as_they_should() {
        let text = |set, index| String::from_utf8(key(set, index)).expect("it is text");
        assert_eq!(text(KeySet::Decimal, 42), "0000000000000042");
        // What YCSB's own `Utils.hash` gives.
        assert_eq!(text(KeySet::User, 0), "user6284781860667377211");
        assert_eq!(text(KeySet::User, 1), "user8517097267634966620");
        assert_eq!(text(KeySet::Uuid, 7).len(), 36);
        assert_eq!(&text(KeySet::Uuid, 7)[14..15], "4");
        assert_eq!(text(KeySet::Composite, 17), "t08110/o0000000002/001");
        assert!(text(KeySet::Url, 3).starts_with("https://"));
        assert!(text(KeySet::Path, 3).starts_with("/srv/data/"));
        assert_eq!(key(KeySet::Binary, 3).len(), 8);
        assert_eq!(key(KeySet::Dense8, 300), [0, 0, 0, 0, 0, 0, 1, 44]);
        assert_eq!(text(KeySet::Seg1, 250), "0000000000002050");
        assert_eq!(text(KeySet::Sparse, 250)[..12], *"000000000000");
        assert_eq!(text(KeySet::Random16, 7).len(), 16);
        assert_eq!(text(KeySet::Hex40, 7)[32..], *"00000007");
        assert_eq!((text(KeySet::Ar, 7).len(), text(KeySet::Osm, 7).len()), (20, 20));
    }

    #[test]
    fn keys_are_unique_and_missing_ones_are_missing() {
        for &set in KeySet::value_variants() {
            let keys: BTreeSet<Vec<u8>> = (0..50_000).map(|index| key(set, index)).collect();
            assert_eq!(keys.len(), 50_000, "{set:?}");
            let (first, last) = (keys.first().expect("not empty"), keys.last().expect("not empty"));
            let mut missing = Vec::new();
            let mut inside = 0;
            for index in 0..10_000 {
                set.write_missing(index, &mut missing);
                assert!(!keys.contains(&missing), "{set:?} {index}");
                inside += usize::from(first < &missing && &missing < last);
            }
            assert!(inside > 9_990, "{set:?} {inside}");
        }
    }

    #[test]
    fn order_is_as_promised() {
        for &set in KeySet::value_variants() {
            let ordered = (1..1000).all(|index| key(set, index - 1) < key(set, index));
            assert_eq!(ordered, set.is_ordered(), "{set:?}");
        }
    }
}
