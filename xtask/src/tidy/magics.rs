//! Format magics: every magic number in the code stands in a document of `docs/format/` (STYLE.md rule 23).

use super::Finding;
use super::tokens::TokenKind;
use super::tree::Tree;

const PREFIX: &str = "b\"PLCH";
const FOLDER: &str = "docs/format/";

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let documents: Vec<&str> = tree
        .with_extension("md")
        .filter(|file| file.path.starts_with(FOLDER))
        .map(|file| file.text.as_str())
        .collect();
    let mut findings = Vec::new();
    for file in tree.with_extension("rs").filter(|file| !file.is_test()) {
        for token in file.tokens().iter().filter(|token| !token.in_test) {
            let TokenKind::Literal(literal) = &token.kind else { continue };
            if !literal.starts_with(PREFIX) {
                continue;
            }
            let magic = literal.trim_start_matches('b').trim_matches('"');
            if !documents.iter().any(|document| document.contains(magic)) {
                let message = format!("magic `{magic}` is in no document of {FOLDER}");
                findings.push(Finding::new(&file.path, token.line, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magics_need_a_document() {
        let source = "const A: &[u8; 8] = b\"PLCHSST1\";\nconst B: &[u8; 8] = b\"PLCHLOG1\";\n\
            #[cfg(test)] mod tests { const C: &[u8] = b\"PLCHBAD1\"; }\n";
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", source),
            ("docs/format/sst.md", "magic `PLCHSST1`\n"),
            ("docs/other.md", "PLCHLOG1\n"),
        ]);
        let findings = find(&tree);
        assert_eq!((findings.len(), findings[0].line), (1, 2));
    }
}
