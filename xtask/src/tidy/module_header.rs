//! Module headers: a source of more than 40 lines says in its first lines what it is (STYLE.md rule 9).

use super::Finding;
use super::tree::Tree;

/// Shorter files explain themselves.
const LINES_WITHOUT_HEADER_MAX: usize = 40;
/// Leaves room above the header for an inner attribute.
const HEADER_WITHIN_LINES: usize = 5;

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let sources = tree.with_extension("rs").filter(|file| !file.is_test());
    sources
        .filter(|file| file.text.lines().count() > LINES_WITHOUT_HEADER_MAX)
        .filter(|file| !file.text.lines().take(HEADER_WITHIN_LINES).any(|line| line.starts_with("//!")))
        .map(|file| Finding::new(&file.path, 1, "no module header: begin with `//! <Name>: <what it is>.`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sources_need_a_header() {
        let long = "\n".repeat(41);
        let late = format!("{}//! Late.\n{long}", "\n".repeat(5));
        let good = format!("#![no_std]\n//! A thing.\n{long}");
        let tree = Tree::of(&[
            ("a.rs", &long),
            ("b.rs", &late),
            ("c.rs", &good),
            ("d.rs", "\n"),
            ("x/tests/it.rs", &long),
        ]);
        let paths: Vec<String> = find(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["a.rs", "b.rs"]);
    }
}
