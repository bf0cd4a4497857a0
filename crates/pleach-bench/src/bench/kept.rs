//! Stores that a run leaves for later ones: a file beside the store says what it holds.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::settings::Settings;
use crate::data::{KeySet, ValueSizes};
use crate::engine::Result;

/// What a kept store holds.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptStore {
    keys: u64,
    key_set: KeySet,
    value_size: ValueSizes,
    seed: u64,
    compression: bool,
    settle_every: Option<u64>,
    /// What has written to it since it was empty, in order.
    pub(super) history: Vec<String>,
    /// Bytes of live keys and values.
    pub(super) live_bytes: u64,
}

impl KeptStore {
    fn path(store: &Path) -> PathBuf {
        store.with_extension("kept.json")
    }

    /// What the store in `store` holds; `None` if nothing says so.
    pub(super) fn read(store: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(Self::path(store)).ok()?).ok()
    }

    pub(super) fn write(
        store: &Path,
        settings: &Settings,
        history: &[String],
        live_bytes: u64,
    ) -> Result<()> {
        let kept = Self::of(settings, history.to_vec(), live_bytes);
        Ok(fs::write(Self::path(store), serde_json::to_string(&kept)?)?)
    }

    /// Removes what [`KeptStore::write`] has written.
    pub(super) fn remove(store: &Path) {
        let _was_not_there = fs::remove_file(Self::path(store));
    }

    /// Whether it holds the keys and values of `settings`.
    pub(super) fn fits(&self, settings: &Settings) -> bool {
        *self == Self::of(settings, self.history.clone(), self.live_bytes)
    }

    fn of(settings: &Settings, history: Vec<String>, live_bytes: u64) -> Self {
        let Settings { keys, key_set, value_size, seed, compression, settle_every, .. } = *settings;
        Self { keys, key_set, value_size, seed, compression, settle_every, history, live_bytes }
    }
}
