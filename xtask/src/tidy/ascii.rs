//! ASCII only in Rust sources: no look-alike letters, no invisible ones. Prose in markdown is free.

use super::Finding;
use super::tree::Tree;

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension("rs") {
        for (line, text) in (1..).zip(file.text.lines()) {
            if let Some(character) = text.chars().find(|character| !character.is_ascii()) {
                let message = format!("U+{:04X} is not ASCII; write an escape", u32::from(character));
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_character() {
        let tree = Tree::of(&[("a.rs", "\n// 4\u{b5}s\n"), ("a.md", "\u{b5}\n")]);
        let findings = find(&tree);
        assert_eq!((findings.len(), findings[0].line), (1, 2));
        assert!(findings[0].message.contains("U+00B5"));
    }
}
