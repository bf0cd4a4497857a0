//! The list of files that may exceed a length: `xtask/exceptions.txt`.
//!
//! It is a ratchet: an entry that is no longer needed must go, so the list can only shrink without a review.

use super::Finding;
use super::tree::Tree;

pub(super) const PATH: &str = "xtask/exceptions.txt";

/// The paths of the entries with their line numbers, and what is wrong with the other lines.
pub(super) fn read(tree: &Tree) -> (Vec<(usize, String)>, Vec<Finding>) {
    let mut entries = Vec::new();
    let mut findings = Vec::new();
    let text = tree.get(PATH).map_or("", |file| &file.text);
    for (line, content) in (1..).zip(text.lines()) {
        if content.trim().is_empty() || content.starts_with('#') {
            continue;
        }
        match parse(content) {
            Some(entry) => entries.push((line, entry)),
            None => findings.push(Finding::new(PATH, line, "expected `file <path>: <reason>`")),
        }
    }
    (entries, findings)
}

fn parse(line: &str) -> Option<String> {
    let (path, reason) = line.strip_prefix("file ")?.split_once(": ")?;
    (!path.contains(' ') && !reason.trim().is_empty()).then(|| path.to_owned())
}

/// Reports lines that are no entries; what the entries say is checked where the lengths are.
pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    read(tree).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_need_a_reason() {
        let text = "# comment\n\nfile a.rs: one table\nfile b.rs\nfn a.rs: y\nfile c.rs: \n";
        let tree = Tree::of(&[(PATH, text)]);
        let (entries, findings) = read(&tree);
        assert_eq!(entries, [(3, "a.rs".to_owned())]);
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [4, 5, 6]);
    }
}
