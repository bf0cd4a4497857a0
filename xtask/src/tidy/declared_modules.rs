//! Declared modules: every source is reached by `mod` lines from a root that cargo compiles.
//!
//! Roots are `lib.rs` and `main.rs`, the files directly in `src/bin`, `tests`, `benches` and `examples` or a `main.rs`
//! one folder below these, `build.rs`, and whatever a manifest names by `path`.

use std::collections::BTreeSet;
use std::ops::Range;

use proc_macro2::Delimiter;

use super::Finding;
use super::tokens::{Token, TokenKind};
use super::tree::{Tree, has_extension};

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let roots = roots(tree);
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let mut pending: Vec<String> = roots.iter().cloned().collect();
    while let Some(path) = pending.pop() {
        let Some(file) = tree.get(&path) else { continue };
        let folder = module_folder(&path, roots.contains(&path));
        if reached.insert(path) {
            children(file.tokens(), 0..file.tokens().len(), &folder, &mut pending);
        }
    }
    let unreached = tree.with_extension("rs").filter(|file| !reached.contains(&file.path));
    unreached.map(|file| Finding::new(&file.path, 1, "no `mod` line leads to this file")).collect()
}

fn roots(tree: &Tree) -> BTreeSet<String> {
    let mut roots: BTreeSet<String> = tree
        .with_extension("rs")
        .map(|file| &file.path)
        .filter(|path| is_standard_root(path))
        .cloned()
        .collect();
    for manifest in tree.files().filter(|file| is_manifest(&file.path)) {
        let folder = manifest.path.strip_suffix("Cargo.toml").unwrap_or("");
        for line in manifest.text.lines() {
            let path = line.trim().strip_prefix("path = \"").and_then(|rest| rest.strip_suffix('"'));
            roots.extend(path.filter(|path| has_extension(path, "rs")).map(|path| format!("{folder}{path}")));
        }
    }
    roots
}

fn is_manifest(path: &str) -> bool {
    path.rsplit('/').next() == Some("Cargo.toml")
}

fn is_standard_root(path: &str) -> bool {
    let parts: Vec<&str> = path.rsplit('/').collect();
    match parts.as_slice() {
        ["build.rs", ..]
        | ["lib.rs" | "main.rs", "src", ..]
        | [_, "bin", "src", ..]
        | ["main.rs", _, "bin", "src", ..] => true,
        [_, folder, rest @ ..] | ["main.rs", _, folder, rest @ ..] if is_target_folder(folder) => {
            !rest.contains(&"src")
        }
        _ => false,
    }
}

fn is_target_folder(folder: &str) -> bool {
    matches!(folder, "tests" | "benches" | "examples")
}

/// Where `mod child;` in `path` is looked for, with a slash at the end.
fn module_folder(path: &str, root: bool) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    if root || name == "mod.rs" {
        return prefix;
    }
    format!("{prefix}{}/", name.strip_suffix(".rs").unwrap_or(name))
}

/// Candidates for the files of all `mod name;` in `range`.
fn children(tokens: &[Token], range: Range<usize>, folder: &str, found: &mut Vec<String>) {
    let mut path_attribute: Option<String> = None;
    let mut at = range.start;
    while at < range.end {
        if let Some(path) = path_attribute_at(tokens, at) {
            path_attribute = Some(path);
        }
        let name = tokens[at].is_word("mod").then(|| tokens.get(at + 1).and_then(Token::word)).flatten();
        match (name, tokens.get(at + 2).map(|token| &token.kind)) {
            (Some(name), Some(TokenKind::Punct(';'))) => {
                match path_attribute.take() {
                    Some(path) => found.push(format!("{folder}{path}")),
                    None => found.extend([format!("{folder}{name}.rs"), format!("{folder}{name}/mod.rs")]),
                }
                at += 3;
            }
            (Some(name), Some(TokenKind::Open(Delimiter::Brace, close))) => {
                children(tokens, at + 3..*close, &format!("{folder}{name}/"), found);
                at = close + 1;
            }
            _ => {
                at = match tokens[at].kind {
                    TokenKind::Open(_, close) => close + 1,
                    _ => at + 1,
                };
            }
        }
    }
}

/// The path in `#[path = "..."]` at `at`.
fn path_attribute_at(tokens: &[Token], at: usize) -> Option<String> {
    let [hash, open, word, equals, literal] = tokens.get(at..at + 5)? else { return None };
    let shape = hash.is_punct('#') && matches!(open.kind, TokenKind::Open(Delimiter::Bracket, _));
    match &literal.kind {
        TokenKind::Literal(path) if shape && word.is_word("path") && equals.is_punct('=') => {
            Some(path.trim_matches('"').to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undeclared(files: &[(&str, &str)]) -> Vec<String> {
        find(&Tree::of(files)).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn modules_are_followed_through_folders() {
        let files = [
            ("c/a/src/lib.rs", "mod b; mod c; mod d { mod e; } // mod f;"),
            ("c/a/src/b.rs", "#[cfg(test)] mod tests;"),
            ("c/a/src/b/tests.rs", ""),
            ("c/a/src/c/mod.rs", "mod g;"),
            ("c/a/src/c/g.rs", ""),
            ("c/a/src/d/e.rs", ""),
            ("c/a/src/f.rs", ""),
        ];
        assert_eq!(undeclared(&files), ["c/a/src/f.rs"]);
    }

    #[test]
    fn roots_need_no_declaration() {
        let files = [
            ("c/a/src/bin/x.rs", ""),
            ("c/a/build.rs", ""),
            ("c/a/tests/it/main.rs", "mod y;"),
            ("c/a/tests/it/y.rs", ""),
            ("c/a/tests/it/z.rs", ""),
            ("fuzz/Cargo.toml", "[[bin]]\nname = \"t\"\npath = \"targets/t.rs\"\n"),
            ("fuzz/targets/t.rs", "#[path = \"u_v.rs\"] mod u;"),
            ("fuzz/targets/u_v.rs", ""),
        ];
        assert_eq!(undeclared(&files), ["c/a/tests/it/z.rs"]);
    }
}
