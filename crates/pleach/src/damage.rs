//! Damage: descriptions of the places of a store that cannot be read, for verification and repair.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pleach_env::{Env, Error, FileId};
use pleach_table::{SalvageSst, Salvaged};

use crate::keys::{PartitionId, split_partition_key};

/// A place of a store that cannot be read, or is not as it must be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DamagedPlace {
    /// The file.
    pub path: PathBuf,
    /// Where the damage begins, if it does not concern the whole file.
    pub offset: Option<u64>,
    /// How many bytes are damaged, if that is known.
    pub len: Option<u64>,
    /// The partition that loses entries, if that is known; of several the first.
    pub partition: Option<String>,
    /// No key below this one is missing because of it, if that is known.
    pub lower: Option<Vec<u8>>,
    /// No key above this one is missing because of it, if that is known.
    pub upper: Option<Vec<u8>>,
    /// How many entries are missing in the file, if that is known.
    pub entries: Option<u64>,
    /// The error.
    pub error: Error,
}

impl DamagedPlace {
    pub(crate) fn of(path: &Path, error: Error) -> Self {
        let offset = error.offset().filter(|_| error.path() == Some(path));
        let path = path.to_path_buf();
        Self { path, offset, len: None, partition: None, lower: None, upper: None, entries: None, error }
    }
}

/// The places of separated values that cannot be read. Values of a partition with the same error, as those of a file that is
/// missing, are one place.
#[derive(Default)]
pub(crate) struct LostValues {
    places: Vec<DamagedPlace>,
    /// The place of each error and partition.
    by_error: HashMap<(String, Option<String>), usize>,
}

impl LostValues {
    /// Adds the value of `key`, in a partition with this name, if it is known. `dir` is the place if the error names no file.
    pub(crate) fn add(&mut self, dir: &Path, partition: Option<String>, key: &[u8], error: Error) {
        let next = self.places.len();
        let at = *self.by_error.entry((error.to_string(), partition.clone())).or_insert(next);
        if let Some(place) = self.places.get_mut(at) {
            place.entries = place.entries.map(|entries| entries + 1);
            if place.lower.as_deref().is_some_and(|lower| key < lower) {
                place.lower = Some(key.to_vec());
            }
            if place.upper.as_deref().is_some_and(|upper| key > upper) {
                place.upper = Some(key.to_vec());
            }
            return;
        }
        let path = error.path().unwrap_or(dir).to_path_buf();
        let mut place = DamagedPlace { partition, entries: Some(1), ..DamagedPlace::of(&path, error) };
        (place.lower, place.upper) = (Some(key.to_vec()), Some(key.to_vec()));
        self.places.push(place);
    }

    /// The places, in the order in which they were found.
    pub(crate) fn into_places(self) -> Vec<DamagedPlace> {
        self.places
    }
}

/// All damage of a live SST in which `error` was found. The version gives its smallest and largest stored keys. `owner` is
/// `None` if sections share it.
pub(crate) fn damage_of(
    env: &Arc<dyn Env>,
    path: &Path,
    (id, (smallest, largest)): (FileId, (&[u8], &[u8])),
    owner: Option<PartitionId>,
    names: &HashMap<PartitionId, String>,
    error: Error,
) -> Vec<DamagedPlace> {
    let mut places = Vec::new();
    let salvaged = SalvageSst::open(env, path, id).and_then(|sst| {
        if let Some(error) = sst.tail_error() {
            places.push(DamagedPlace::of(path, error.clone()));
        }
        sst.read(&mut |found| {
            if let Salvaged::Damage(damage) = found {
                let mut place = DamagedPlace::of(path, damage.error);
                (place.offset, place.len) = (Some(damage.offset), Some(damage.len));
                let user_key = |key: Option<Vec<u8>>| {
                    let key = key?;
                    let split = split_partition_key(&key).filter(|_| owner.is_none());
                    Some(split.map_or((owner, key.clone()), |(id, user_key)| (Some(id), user_key.to_vec())))
                };
                let after = damage.after.or_else(|| Some(smallest.to_vec()));
                let before = damage.before.or_else(|| Some(largest.to_vec()));
                let (lower, upper) = (user_key(after), user_key(before));
                let partition = [&lower, &upper].into_iter().flatten().find_map(|(id, _)| *id).or(owner);
                place.partition = partition.and_then(|id| names.get(&id).cloned());
                (place.lower, place.upper) = (lower.map(|(_, key)| key), upper.map(|(_, key)| key));
                places.push(place);
            }
            Ok(true)
        })
    });
    if salvaged.is_err() || places.is_empty() {
        places.push(DamagedPlace::of(path, error));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_partition_with_the_same_error_are_one_place() {
        let (dir, file) = (Path::new("/store"), Path::new("/store/7.val"));
        let mut lost = LostValues::default();
        let mut add = |partition: &str, key: &str, offset| {
            lost.add(
                dir,
                Some(partition.to_owned()),
                key.as_bytes(),
                Error::corruption(file, offset, "gone"),
            );
        };
        add("a", "k", 0);
        add("a", "m", 5);
        add("a", "z", 0);
        add("a", "c", 0);
        add("b", "b", 0);
        let text = |key: &Option<Vec<u8>>| String::from_utf8(key.clone().unwrap_or_default()).unwrap();
        let told = |place: &DamagedPlace| {
            let entries = place.entries.unwrap_or(0);
            format!("{:?} {entries} {} to {}", place.offset, text(&place.lower), text(&place.upper))
        };
        let places: Vec<_> = lost.into_places().iter().map(told).collect();
        assert_eq!(places, ["Some(0) 3 c to z", "Some(5) 1 m to m", "Some(0) 1 b to b"]);
    }
}
