//! Change notes follow their convention (`changes/README.md`), so that a release never stumbles over one.

use super::Finding;
use super::tree::Tree;
use crate::changelog;

/// Whether `path` is a change note.
pub(super) fn is_note(path: &str) -> bool {
    path.strip_prefix("changes/").is_some_and(|name| name != "README.md")
}

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let notes = tree.files().filter(|file| is_note(&file.path));
    notes
        .filter_map(|file| {
            let message = changelog::parse(&file.text).err()?;
            Some(Finding::new(&file.path, 1, message))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_parsed() {
        let tree = Tree::of(&[
            ("changes/README.md", "# Notes\n"),
            ("changes/a.md", "kind: added\nA thing.\n"),
            ("changes/b.md", "A thing.\n"),
        ]);
        let paths: Vec<String> = find(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["changes/b.md"]);
    }
}
