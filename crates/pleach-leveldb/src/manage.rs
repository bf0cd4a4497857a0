//! Functions of a store that is not open: destroy and repair.

use std::path::Path;

use libc::c_char;
use pleach::ErrorKind;

use crate::database::{Found, is_leveldb, look, path_of};
use crate::options::OptionsHandle;
use crate::repair::{abandon, remove_directory, repair};
use crate::status::{ErrorSlot, Result, report};

/// Removes the store's files, and the directory if nothing else is in it. No store is no error, as with LevelDB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_destroy_db(
    options: &OptionsHandle,
    name: *const c_char,
    error: ErrorSlot<'_>,
) {
    // SAFETY: by the contract of c.h.
    let path = unsafe { path_of(name) };
    report(error, || destroy(options, &path));
}

pub(crate) fn destroy(options: &OptionsHandle, path: &Path) -> Result<()> {
    // No directory has the empty name. Joined with the name of a file it would be the working directory.
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    if look(&*options.env(), path)? == Found::LevelDb {
        return Err(is_leveldb(path));
    }
    abandon(options, path)?;
    match pleach::destroy(path, &options.translate()) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => remove_directory(options.other_env.is_none(), path),
    }
    Ok(())
}

/// Salvages what can be read of a store, in its place. If something could not be read, the old files stay beside it, in a
/// directory whose name ends with `.damaged`, or `.damaged-2` and so on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_repair_db(
    options: &OptionsHandle,
    name: *const c_char,
    error: ErrorSlot<'_>,
) {
    // SAFETY: by the contract of c.h.
    let path = unsafe { path_of(name) };
    report(error, || repair(options, &path));
}
