//! Markdown documents have exactly one title, in the `#` form.
//!
//! Change notes are fragments of one document and have none.

use super::Finding;
use super::change_files::is_note;
use super::markdown::prose;
use super::tree::Tree;

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension("md").filter(|file| !is_note(&file.path)) {
        let lines = prose(&file.text);
        let titles: Vec<usize> =
            lines.iter().filter(|(_, line)| line.starts_with("# ")).map(|l| l.0).collect();
        match titles[..] {
            [_] => {}
            [] => findings.push(Finding::new(&file.path, 1, "no title: begin with `# <title>`")),
            [_, second, ..] => findings.push(Finding::new(&file.path, second, "a second title")),
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_title_each() {
        let tree = Tree::of(&[
            ("a.md", "# A\n\n```sh\n# comment\n```\n## B\n"),
            ("b.md", "## B\n"),
            ("c.md", "# C\n\n# D\n"),
            ("changes/x.md", "kind: added\nx\n"),
        ]);
        let found: Vec<(String, usize)> = find(&tree).into_iter().map(|f| (f.path, f.line)).collect();
        assert_eq!(found, [("b.md".to_owned(), 1), ("c.md".to_owned(), 3)]);
    }
}
