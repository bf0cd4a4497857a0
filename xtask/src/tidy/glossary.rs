//! Glossary: identifiers use the canonical word of STYLE.md's glossary, not a synonym (rule 10).
//!
//! Only code is looked at, prose is free: a paper may be quoted in its own words. The list holds words that have no
//! other meaning in a storage engine; a synonym that is also an ordinary word is left to review.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::Tree;

/// Synonym in snake case, canonical word.
const SYNONYMS: &[(&str, &str)] = &[
    ("blob_file", "value segment"),
    ("commit_log", "log"),
    ("delete_marker", "tombstone"),
    ("delete_record", "tombstone"),
    ("deletion_marker", "tombstone"),
    ("frozen_memtable", "immutable memtable"),
    ("journal", "log, or manifest"),
    ("lsn", "sequence number (`seq_no`)"),
    ("mem_table", "memtable"),
    ("memory_table", "memtable"),
    ("minor_compaction", "flush"),
    ("redo_log", "log"),
    ("sealed_memtable", "immutable memtable"),
    ("ss_table", "SST"),
    ("sstable", "SST"),
    ("sstables", "SSTs"),
    ("table_file", "SST"),
    ("vlog", "value segment"),
];

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension("rs").filter(|file| is_ours(&file.path)) {
        let mut seen = BTreeSet::new();
        for token in file.tokens() {
            let Some(word) = token.word() else { continue };
            if !seen.insert(word) {
                continue;
            }
            if let Some((synonym, canonical)) = synonym_in(word) {
                let message = format!("`{word}`: the glossary's word for `{synonym}` is {canonical}");
                findings.push(Finding::new(&file.path, token.line, message));
            }
        }
    }
    findings
}

/// The crates that speak Pleach's language; rival engines behind our trait keep their own words.
fn is_ours(path: &str) -> bool {
    path.starts_with("crates/") || path.starts_with("fuzz/")
}

fn synonym_in(identifier: &str) -> Option<(&'static str, &'static str)> {
    let bounded = format!("_{}_", snake_case(identifier));
    SYNONYMS.iter().copied().find(|(synonym, _)| bounded.contains(&format!("_{synonym}_")))
}

/// `MemTableRef` and `MEM_TABLE_REF` as `mem_table_ref`.
fn snake_case(identifier: &str) -> String {
    let mut snake = String::new();
    let mut after_lower = false;
    for character in identifier.chars() {
        if character.is_ascii_uppercase() && after_lower {
            snake.push('_');
        }
        after_lower = character.is_ascii_lowercase() || character.is_ascii_digit();
        snake.push(character.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synonyms_are_whole_words() {
        for identifier in ["SsTable", "open_sstable", "MEM_TABLE", "MemTableRef", "vlog", "last_lsn"] {
            assert!(synonym_in(identifier).is_some(), "{identifier}");
        }
        for identifier in ["Sst", "memtable", "Memtable", "vlogger", "table_filename", "log"] {
            assert_eq!(synonym_in(identifier), None, "{identifier}");
        }
    }

    #[test]
    fn prose_is_free_and_an_identifier_is_told_once() {
        let text = "//! An sstable.\nfn f(vlog: u8) -> &str { vlog; \"sstable\" }\n";
        let tree = Tree::of(&[("crates/a/src/lib.rs", text), ("bench-peers/src/lib.rs", text)]);
        assert_eq!(find(&tree).len(), 1);
        assert_eq!(find(&tree)[0].line, 2);
    }
}
