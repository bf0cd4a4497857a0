//! Files of results: each is replaced as a whole, so a failure leaves the earlier one.

use std::fs;
use std::path::{Path, PathBuf};

use crate::engine::Result;

/// Replaces a file. If that fails, the old file stays. A device or a pipe is written as it is, and a link goes on leading to its
/// file.
pub(crate) fn replace(path: &Path, text: &str) -> Result<()> {
    if is_special(path) {
        return Ok(fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?);
    }
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let beside = beside(path);
    let (old, new) = (path.display(), beside.display());
    fs::write(&beside, text).map_err(|error| format!("{new}: {error}"))?;
    let renamed = fs::rename(&beside, path);
    Ok(renamed.map_err(|error| format!("{old}: {error}; what was to be written there is in {new}"))?)
}

/// An error if [`replace`] could not write to `path`, which `option` has given. Called before a measurement, whose results
/// would be lost.
pub(crate) fn check(option: &str, path: &Path) -> Result<()> {
    let refused = |why: &str| {
        let path = path.display();
        format!(
            "{option} {path}: {why}; give the path of a file in a folder that exists and that you may write to"
        )
    };
    if path.is_dir() {
        return Err(refused("this is a folder").into());
    }
    if is_special(path) {
        return Ok(());
    }
    if path.exists() {
        fs::OpenOptions::new().append(true).open(path).map_err(|error| refused(&error.to_string()))?;
    }
    let beside = beside(&path.canonicalize().unwrap_or_else(|_| path.to_owned()));
    if beside.exists() {
        let beside = beside.display();
        return Err(refused(&format!("an earlier run has left {beside}; move it away")).into());
    }
    let created = fs::write(&beside, "").and_then(|()| fs::remove_file(&beside));
    Ok(created.map_err(|error| refused(&error.to_string()))?)
}

/// Whether a rename would not do what a write does: a device or a pipe is there.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// The new file's name until it is whole.
fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    beside.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_cannot_be_written_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let file = dir.path().join("out.json");
        check("--json", &file).expect("it can be written");
        assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 0);
        for path in [dir.path().to_path_buf(), dir.path().join("no/out.json")] {
            let error = check("--json", &path).expect_err("it cannot").to_string();
            assert!(error.starts_with("--json ") && error.contains("a folder that exists"), "{error}");
        }
        replace(&file, "whole").expect("it is written");
        assert!(replace(&dir.path().join("no/out.json"), "").is_err());
        assert_eq!(fs::read_to_string(&file).expect("it was written"), "whole");
        let folder = dir.path().join("folder");
        fs::create_dir(&folder).expect("it is new");
        let error = replace(&folder, "kept").expect_err("a folder is there").to_string();
        assert!(error.ends_with("folder.part"), "{error}");
        assert_eq!(fs::read_to_string(dir.path().join("folder.part")).expect("it was written"), "kept");
        fs::write(dir.path().join("out.json.part"), "salvage").expect("it is written");
        let error = check("--json", &file).expect_err("results are there").to_string();
        assert!(error.contains("out.json.part; move it"), "{error}");
        check("--json", Path::new("/dev/null")).expect("a device");
        replace(Path::new("/dev/null"), "nothing").expect("it is written");
        assert!(is_special(Path::new("/dev/null")), "it is still a device");
    }
}
