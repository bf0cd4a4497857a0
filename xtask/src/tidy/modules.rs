//! Layers of modules inside the crate `pleach`: a module uses only modules of layers below its own (ARCHITECTURE.md).
//!
//! Paths that begin with `crate::` are what counts; tests may look at anything.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::tokens::Token;
use super::tree::Tree;

/// Every module of the crate's root from the bottom up; modules on one line do not know each other.
const LAYERS: &[&[&str]] = &[
    &["attached", "file_names", "keys", "training"],
    &["stats"],
    &["damage", "limits", "loads", "read_options", "shown", "trace", "trash"],
    &["memtable", "shape", "tombstone_spans", "values"],
    &["filter_policy", "memory_shares", "value"],
    &["options", "version"],
    &["manifest", "operations", "picker", "state", "status"],
    &["context"],
    &["value_reads"],
    &["lookup", "scan", "version_set"],
    &["write_path"],
    &["upkeep"],
    &["db"],
    &["fuzzing", "repair"],
];

const SOURCES: &str = "crates/pleach/src/";

/// A use of one module by another, and where.
struct Use {
    from: String,
    to: String,
    path: String,
    line: usize,
}

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Use { from, to, path, line } in uses(tree) {
        let message = match (layer_of(&from), layer_of(&to)) {
            (None, _) => format!("module `{from}` has no layer; give it one in xtask/src/tidy/modules.rs"),
            (_, None) => {
                format!("`{to}` is no module with a layer; name what is used by the path of its module")
            }
            (Some(own), Some(used)) if used >= own => {
                format!("`{from}` may not use `{to}`, which is not in a layer below it")
            }
            _ => continue,
        };
        findings.push(Finding::new(&path, line, message));
    }
    findings
}

/// The graph, one module a line, from the bottom up.
pub(super) fn graph(tree: &Tree) -> String {
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Use { from, to, .. } in uses(tree) {
        graph.entry(from).or_default().insert(to);
    }
    let line = |number: usize, module: &str| {
        let used: Vec<_> = graph.get(module).into_iter().flatten().map(String::as_str).collect();
        let used = if used.is_empty() { "nothing".to_owned() } else { used.join(", ") };
        format!("{number:2} {module}: {used}\n")
    };
    let layers = LAYERS.iter().enumerate();
    layers
        .flat_map(|(number, layer)| layer.iter().map(move |module| (number, *module)))
        .map(|(n, m)| line(n, m))
        .collect()
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn uses(tree: &Tree) -> Vec<Use> {
    let mut uses = Vec::new();
    for file in tree.with_extension("rs") {
        let Some(path) = file.path.strip_prefix(SOURCES) else { continue };
        if file.is_test() || path == "lib.rs" {
            continue;
        }
        let from = path.split('/').next().unwrap_or(path).trim_end_matches(".rs");
        // In a file of the root, and only there, `super` is the root.
        let is_root = !path.contains('/') || path.ends_with("/mod.rs") && path.matches('/').count() == 1;
        let tokens: Vec<&Token> = file.tokens().iter().filter(|token| !token.in_test).collect();
        for window in tokens.windows(4) {
            let [start, colon, other, name] = window else { continue };
            let is_path = colon.is_punct(':') && other.is_punct(':');
            if !is_path || !(start.is_word("crate") || is_root && start.is_word("super")) {
                continue;
            }
            let to = name.word().unwrap_or("{..}");
            if to != from {
                let (from, to, path) = (from.to_owned(), to.to_owned(), file.path.clone());
                uses.push(Use { from, to, path, line: start.line });
            }
        }
    }
    uses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        find(&Tree::of(&[(path, text)])).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn what_is_below_may_be_used() {
        let text = "use crate::keys::Key;\nuse crate::state::State;\nuse super::merge::Merge;\n";
        assert_eq!(found("crates/pleach/src/scan/range.rs", text), [""; 0]);
        assert_eq!(found("crates/pleach/src/lib.rs", "use crate::db::Db;"), [""; 0]);
        let test = "#[cfg(test)]\nmod tests {\n    use crate::db::Db;\n}\n";
        assert_eq!(found("crates/pleach/src/keys.rs", test), [""; 0]);
    }

    #[test]
    fn what_is_above_or_unknown_is_reported() {
        for text in ["use crate::db::Db;", "fn f() { crate::db::open(); }", "use super::db::Db;"] {
            let messages = found("crates/pleach/src/lookup.rs", text);
            assert_eq!(messages, ["`lookup` may not use `db`, which is not in a layer below it"], "{text}");
        }
        assert!(
            found("crates/pleach/src/scan/mod.rs", "use crate::lookup::get;")[0].contains("not in a layer")
        );
        assert!(found("crates/pleach/src/new.rs", "use crate::keys::Key;")[0].contains("has no layer"));
        assert!(found("crates/pleach/src/scan.rs", "use crate::Key;")[0].contains("no module with a layer"));
        assert!(found("crates/pleach/src/scan.rs", "use crate::{keys, limits};")[0].contains("no module"));
    }
}
