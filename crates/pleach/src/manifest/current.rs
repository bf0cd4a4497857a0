//! `CURRENT`: the file that names the manifest in force, and says whether the store was closed.
//!
//! # On disk
//! Layout: docs/format/directory.md.

use std::path::Path;

use pleach_env::{Env, Error, FileId, OpenOptions, Result, failpoint};
use pleach_log::SeqNo;

use super::parse_manifest_name;

/// Name of the file that names the manifest.
pub(crate) const CURRENT: &str = "CURRENT";
/// Name under which a new `CURRENT` is written.
pub(crate) const CURRENT_TMP: &str = "CURRENT.tmp";

/// Version of the directory's layout, in the first line of `CURRENT`. Numbers on disk: never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// No value is separated.
    Plain = 1,
    /// Values may be separated.
    Values = 2,
}

impl Layout {
    const ALL: [Self; 2] = [Self::Plain, Self::Values];

    /// The layout of a store that may have separated values.
    pub(crate) fn of(may_separate: bool) -> Self {
        if may_separate { Self::Values } else { Self::Plain }
    }

    /// The first line of `CURRENT`.
    fn header(self) -> String {
        format!("pleach {}", self as u8)
    }
}

/// `CURRENT` has three or four short lines; more bytes are damage.
const CURRENT_LEN_MAX: u64 = 256;

/// The content of `CURRENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) layout: Layout,
    /// The manifest in force.
    pub(crate) manifest: FileId,
    /// The durable state at the close, if the store has not been opened since.
    pub(crate) closed: Option<Closed>,
}

/// The durable state when the store was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    /// Bytes of the manifest.
    pub(crate) manifest_len: u64,
    /// The last write.
    pub(crate) last_seq: SeqNo,
}

impl Current {
    fn encode(&self) -> String {
        let closed = self.closed.map_or_else(String::new, |closed| {
            format!("closed {} {}\n", closed.manifest_len, closed.last_seq)
        });
        with_checksum(&format!("{}\nMANIFEST-{}\n{closed}", self.layout.header(), self.manifest))
    }

    /// Requires: the first line and the checksum have been checked, and the caller compares the result's bytes to `text`.
    fn decode(layout: Layout, text: &str) -> Option<Self> {
        let mut lines = text.lines().skip(1);
        let manifest = parse_manifest_name(lines.next()?)?;
        let closed = lines.next().and_then(|line| {
            let (manifest_len, last_seq) = line.strip_prefix("closed ")?.split_once(' ')?;
            Some(Closed { manifest_len: manifest_len.parse().ok()?, last_seq: last_seq.parse().ok()? })
        });
        Some(Self { layout, manifest, closed })
    }
}

fn with_checksum(body: &str) -> String {
    let crc = crc32c::crc32c(body.as_bytes());
    format!("{body}crc32c {crc:08x}\n")
}

/// Writes the next `CURRENT` as [`CURRENT_TMP`], and makes it durable.
pub(super) fn write_tmp(env: &dyn Env, dir: &Path, current: &Current) -> Result<()> {
    let tmp = dir.join(CURRENT_TMP);
    if env.metadata(&tmp).map_err(|e| Error::io("look for the file", &tmp, e))?.is_some() {
        env.remove_file(&tmp).map_err(|e| Error::io("remove", &tmp, e))?;
    }
    let file = env.create_file(&tmp).map_err(|e| Error::io("create", &tmp, e))?;
    file.write_all_at(current.encode().as_bytes(), 0).map_err(|e| Error::io("write", &tmp, e))?;
    file.sync("current.sync").map_err(|e| Error::io("sync", &tmp, e))
}

/// Replaces `CURRENT` by [`CURRENT_TMP`].
pub(super) fn rename_tmp(env: &dyn Env, dir: &Path) -> Result<()> {
    let tmp = dir.join(CURRENT_TMP);
    env.rename(&tmp, &dir.join(CURRENT)).map_err(|e| Error::io("rename to CURRENT", &tmp, e))
}

/// Makes the name `CURRENT` durable, as it is now.
pub(crate) fn sync_rename(env: &dyn Env, dir: &Path) -> Result<()> {
    env.sync_dir(dir, "current.dir_sync").map_err(|e| Error::io("sync the directory", dir, e))
}

/// The content of `CURRENT`; `None` when there is no `CURRENT`.
pub(crate) fn read_current(env: &dyn Env, dir: &Path) -> Result<Option<Current>> {
    let path = dir.join(CURRENT);
    let Some(metadata) = env.metadata(&path).map_err(|e| Error::io("look for the file", &path, e))? else {
        return Ok(None);
    };
    if metadata.len > CURRENT_LEN_MAX {
        return Err(damaged_current(&path, "CURRENT is too long"));
    }
    let file = env.open_file(&path, OpenOptions::default()).map_err(|e| Error::io("open", &path, e))?;
    let mut bytes = vec![0; usize::try_from(metadata.len).expect("checked above")];
    file.read_exact_at(&mut bytes, 0).map_err(|e| Error::io("read", &path, e))?;
    parse_current(&path, &bytes).map(Some)
}

fn parse_current(path: &Path, bytes: &[u8]) -> Result<Current> {
    let damaged = |message| Err(damaged_current(path, message));
    let Ok(text) = std::str::from_utf8(bytes) else { return damaged("CURRENT is not text") };
    let last_line = text.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
    let is_whole = with_checksum(&text[..last_line]) == text || failpoint::skipped("current.crc");
    let first_line = text.lines().next().unwrap_or_default();
    let Some(layout) = Layout::ALL.into_iter().find(|layout| layout.header() == first_line) else {
        if first_line.starts_with("pleach ") && is_whole {
            return Err(Error::unsupported(path, other_layout(first_line)));
        }
        if first_line.starts_with("MANIFEST-") {
            let message = "this CURRENT is LevelDB's or RocksDB's; docs/leveldb.md tells how to copy a store of LevelDB's";
            return Err(Error::corruption(path, 0, message));
        }
        return damaged("CURRENT does not begin as it should");
    };
    if !is_whole {
        return damaged("CURRENT does not match its checksum");
    }
    match Current::decode(layout, text) {
        Some(current) if current.encode() == text || failpoint::skipped("current.crc") => Ok(current),
        _ => damaged("CURRENT has a valid checksum but cannot be decoded"),
    }
}

/// Advice about a layout that is not this build's.
fn other_layout(line: &str) -> String {
    let number = |line: &str| line.strip_prefix("pleach ")?.parse::<u64>().ok();
    let known = Layout::ALL.map(Layout::header);
    let advice = if number(line).is_some_and(|found| found < Layout::Plain as u64) {
        "an older build wrote it: dump the store with that one and load it with this one"
    } else {
        "a newer build wrote it: open the store with that one"
    };
    format!("the store's layout is {line:?}, this build knows {known:?}; {advice}")
}

fn damaged_current(path: &Path, message: &str) -> Error {
    let message = format!("{message}; restore the file, or name the manifest in it by hand");
    Error::corruption(path, 0, message)
}

#[cfg(test)]
mod tests {
    use pleach_env::ErrorKind;

    use super::*;

    #[test]
    fn the_bytes_of_current() {
        let path = Path::new("CURRENT");
        let open = Current { layout: Layout::Plain, manifest: FileId(7), closed: None };
        let closed = Current { closed: Some(Closed { manifest_len: 1944, last_seq: 300 }), ..open };
        for (current, text) in [
            (open, "pleach 1\nMANIFEST-000007\ncrc32c a01b3a2e\n"),
            (closed, "pleach 1\nMANIFEST-000007\nclosed 1944 300\ncrc32c 6d960dbf\n"),
            (Current { layout: Layout::Values, ..open }, "pleach 2\nMANIFEST-000007\ncrc32c b1a03c53\n"),
            (
                Current { layout: Layout::Values, ..closed },
                "pleach 2\nMANIFEST-000007\nclosed 1944 300\ncrc32c ee8b91cc\n",
            ),
        ] {
            assert_eq!(current.encode(), text);
            assert_eq!(parse_current(path, text.as_bytes()).unwrap(), current);
        }
    }

    #[test]
    fn a_current_of_another_layout_is_refused_and_a_senseless_one_is_damaged() {
        let kind = |body: &str| {
            let text = with_checksum(body);
            parse_current(Path::new("CURRENT"), text.as_bytes()).unwrap_err().kind()
        };
        assert_eq!(kind("pleach 3\nanything\n"), ErrorKind::Unsupported);
        assert_eq!(kind("pleach 12\n"), ErrorKind::Unsupported);
        assert!(other_layout("pleach 12").contains("a newer build"));
        assert!(other_layout("pleach 0").contains("an older build"));
        for body in [
            "",
            "pleach 1\n",
            "pleach 1\nMANIFEST-7\n",
            "pleach 1\nMANIFEST-000007\nclosed 1\n",
            "pleach 1\nMANIFEST-000007\nclosed 01 2\n",
            "pleach 1\nMANIFEST-000007\nclosed 1 2\nmore\n",
            "plait 1\nMANIFEST-000007\n",
        ] {
            assert_eq!(kind(body), ErrorKind::Corruption, "{body:?}");
        }
        let of_leveldb = parse_current(Path::new("CURRENT"), b"MANIFEST-000004\n").unwrap_err();
        assert_eq!(of_leveldb.kind(), ErrorKind::Corruption);
        assert!(of_leveldb.to_string().contains("LevelDB"), "{of_leveldb}");
    }
}
