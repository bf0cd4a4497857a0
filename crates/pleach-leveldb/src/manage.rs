//! Functions of a store that is not open: destroy and repair.

use std::path::{Path, PathBuf};

use libc::c_char;
use pleach::ErrorKind;

use crate::database::{Found, is_leveldb, look, path_of};
use crate::options::OptionsHandle;
use crate::status::{ErrorSlot, Kind, Result, Status, report};

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

fn destroy(options: &OptionsHandle, path: &Path) -> Result<()> {
    if look(&*options.env(), path)? == Found::LevelDb {
        return Err(is_leveldb(path));
    }
    match pleach::destroy(path, &options.translate()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other?,
    }
    remove_directory(options, path);
    Ok(())
}

/// Salvages what can be read of a store, in its place. What could not be read stays beside it, in a directory whose name ends
/// with `.damaged`.
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

fn repair(options: &OptionsHandle, path: &Path) -> Result<()> {
    let env = options.env();
    if look(&*env, path)? == Found::LevelDb {
        return Err(is_leveldb(path));
    }
    let (repaired, damaged) = (beside(path, ".repaired"), beside(path, ".damaged"));
    let failed =
        |action: &str, e: std::io::Error| Status::new(Kind::Io, format!("{action} {}: {e}", path.display()));
    if env.metadata(&damaged).map_err(|e| failed("look for", e))?.is_some() {
        let message = format!("{} is there from an earlier repair; move it away first", damaged.display());
        return Err(Status::new(Kind::Io, message));
    }
    // What an interrupted repair has left.
    match pleach::destroy(&repaired, &options.translate()) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let report = match pleach::repair(path, &repaired, options.translate(), &mut |_, _| true) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Status::new(Kind::Io, error.to_string()));
        }
        other => other?,
    };
    env.rename(path, &damaged).map_err(|e| failed("move away", e))?;
    env.rename(&repaired, path).map_err(|e| failed("move into place", e))?;
    if report.complete {
        pleach::destroy(&damaged, &options.translate())?;
        remove_directory(options, &damaged);
    }
    if let Some(info_log) = &options.info_log {
        let outcome = if report.complete { "complete" } else { "some entries could not be read" };
        info_log.write(&format!("Pleach: repaired {}: {outcome}", path.display()));
    }
    Ok(())
}

/// Removes a directory of the machine, unless something is in it. Directories in memory stay, empty.
fn remove_directory(options: &OptionsHandle, path: &Path) {
    if options.memory_env.is_none() {
        let _has_other_files = std::fs::remove_dir(path);
    }
}

/// The path with something behind its name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut name = absolute.file_name().unwrap_or_default().to_os_string();
    name.push(end);
    absolute.with_file_name(name)
}
