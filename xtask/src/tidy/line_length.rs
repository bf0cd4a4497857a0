//! Line length: lines of comments and of prose end at about 126 characters (STYLE.md rule 8).
//!
//! Rustfmt breaks code, but neither comments nor documents. Tables, and code in documents, may be longer.

use super::Finding;
use super::markdown::prose;
use super::tree::Tree;

/// A few more than what editors should be set to, so that a changed word needs no new breaks. Arbitrary.
const CHARACTERS_MAX: usize = 130;

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let comments = tree.with_extension("rs").flat_map(|file| {
        let lines = (1..).zip(file.text.lines()).filter(|(_, line)| is_comment(line));
        lines.map(move |(number, line)| (&file.path, number, line.chars().count()))
    });
    let documents = tree.with_extension("md").flat_map(|file| {
        let all: Vec<&str> = file.text.lines().collect();
        prose(&file.text).into_iter().filter_map(move |(number, _)| {
            let line = *all.get(number - 1)?;
            let is_broken = !line.starts_with('|') && !line.starts_with("<!--");
            is_broken.then(|| (&file.path, number, line.chars().count()))
        })
    });
    let too_long = comments.chain(documents).filter(|(_, _, length)| *length > CHARACTERS_MAX);
    too_long
        .map(|(path, line, length)| {
            let message = format!("a line of {length} characters; break it (the limit is {CHARACTERS_MAX})");
            Finding::new(path, line, message)
        })
        .collect()
}

/// Whether the line is of a comment, but not of a table in one.
fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") && !line.trim_start_matches(['/', '!', ' ']).starts_with('|')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_comments_and_prose_are_found() {
        let words = |count: usize| "word ".repeat(count);
        let (short, long) = (words(20), words(30));
        let rust = format!("// {long}\nlet a = \"{long}\";\n    /// {short}\n//! | {long} |\n");
        let document = format!("{long}\n| {long} |\n```\n{long}\n```\n{short}\n");
        let tree = Tree::of(&[("a.rs", &rust), ("b.md", &document)]);
        let found: Vec<_> = find(&tree).into_iter().map(|finding| (finding.path, finding.line)).collect();
        assert_eq!(found, [("a.rs".to_owned(), 1), ("b.md".to_owned(), 1)]);
    }
}
