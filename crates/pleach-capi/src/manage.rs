//! Functions of a store that is not open: repair, and removal of its files.

use std::ffi::c_char;

use serde_json::{Map, Value};

use crate::arguments::{Slot, path};
use crate::db::give_json;
use crate::error::{ErrorHandle, report};
use crate::options::OptionsHandle;

/// Writes all that can be read of the damaged store `from` into a new store `into`, a directory that is missing or empty. Nothing
/// in `from` is changed. `options` are those of the new store; null for the defaults.
///
/// `*report`, if `report` is not null, is a JSON object with what was found, which the caller frees with `pleach_free`:
/// `is_clean` (the store was read whole, with nothing guessed), `damaged_places`, `entries` and `bytes` that were read,
/// `partitions`, `damage` (messages of at most 10,000 places), and `guessed` (null, or why ages and partitions were guessed).
///
/// Errors: `PLEACH_CODE_NOT_FOUND` if there is no store, `PLEACH_CODE_CONFLICT` if it is open,
/// `PLEACH_CODE_INVALID_ARGUMENT` if `into` is not empty; and those of writing. Damage is no error.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_repair(
    from: *const c_char,
    into: *const c_char,
    options: Option<&OptionsHandle>,
    report: *mut *mut c_char,
) -> Option<Box<ErrorHandle>> {
    let result = report;
    crate::error::report(|| {
        // First, so that it holds null also behind a path that is refused.
        let slot = if result.is_null() {
            None
        } else {
            // SAFETY: by the contract.
            Some(unsafe { Slot::of_handle(result, "report")? })
        };
        // SAFETY: by the contract.
        let (from, into) = unsafe { (path(from, "from")?, path(into, "into")?) };
        let found = pleach::repair(from, into, OptionsHandle::of(options), &mut |_, _| true)?;
        if let Some(slot) = slot {
            give_json(slot, describe(&found));
        }
        Ok(())
    })
}

fn describe(report: &pleach::RepairReport) -> Map<String, Value> {
    let damage: Vec<_> = report.damage.iter().map(|place| place.error.to_string()).collect();
    let guessed = report.guessed.as_ref().map(ToString::to_string);
    let members: [(&str, Value); 7] = [
        ("is_clean", report.is_clean().into()),
        ("damaged_places", report.damaged_places.into()),
        ("entries", report.entries.into()),
        ("bytes", report.bytes.into()),
        ("partitions", report.partitions.clone().into()),
        ("damage", damage.into()),
        ("guessed", guessed.into()),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Removes all files of the store in directory `path`. Other files stay, and so does the directory. Of `options` only
/// `pleach_options_set_in_memory` counts; null for the defaults.
///
/// Errors: `PLEACH_CODE_NOT_FOUND` if there is no store, `PLEACH_CODE_CONFLICT` if it is open, `PLEACH_CODE_IO`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pleach_destroy(
    path: *const c_char,
    options: Option<&OptionsHandle>,
) -> Option<Box<ErrorHandle>> {
    report(|| {
        // SAFETY: by the contract.
        let path = unsafe { crate::arguments::path(path, "path")? };
        Ok(pleach::destroy(path, &OptionsHandle::of(options))?)
    })
}
