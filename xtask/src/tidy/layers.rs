//! Layers: a crate depends only on crates below it (ARCHITECTURE.md). Read from the manifests, so that even an unused
//! or a test-only dependency upwards is seen.

use super::Finding;
use super::tree::Tree;

/// Every library and binary crate from the bottom up; crates on one line do not know each other.
const LAYERS: &[&[&str]] = &[
    &["pleach-coding", "pleach-command", "pleach-ffi"],
    &["pleach-env", "pleach-index"],
    &["pleach-table", "pleach-log"],
    &["pleach"],
    &["pleach-reshape"],
    &["pleach-bench", "pleach-capi", "pleach-leveldb"],
    &["pleach-cli"],
];

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension("toml") {
        let folders: Vec<&str> = file.path.split('/').collect();
        let ["crates", folder, "Cargo.toml"] = folders[..] else { continue };
        let Some(own) = layer_of(folder) else {
            let message = format!("crate `{folder}` has no layer; give it one in xtask/src/tidy/layers.rs");
            findings.push(Finding::new(&file.path, 1, message));
            continue;
        };
        for (line, dependency) in dependencies(&file.text) {
            // Tests of a crate may switch its features on; other dependencies on itself Cargo refuses.
            let is_itself = dependency == folder;
            if !is_itself && layer_of(&dependency).is_some_and(|layer| layer >= own) {
                let message = format!("`{folder}` may not depend on `{dependency}`, which is not below it");
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

fn layer_of(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

/// Dependencies of every sort in a manifest, with their lines.
fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_dependencies = false;
    for (line, text) in (1..).zip(manifest.lines()) {
        let text = text.trim();
        if let Some(header) = text.strip_prefix('[') {
            let header = header.split(']').next().unwrap_or("");
            in_dependencies = header.ends_with("dependencies");
            // A table of its own: `[dependencies.name]`.
            if let Some((_, name)) = header.rsplit_once("dependencies.") {
                found.push((line, unquoted(name)));
            }
        } else if in_dependencies && !text.starts_with('#') {
            let name: String = text.split(['.', '=', ' ']).next().unwrap_or("").into();
            if !name.is_empty() {
                found.push((line, unquoted(&name)));
            }
        }
    }
    found
}

fn unquoted(name: &str) -> String {
    name.trim_matches(['"', '\'']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_in_every_form() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\nb.workspace = true\nc = { path = \"x\" }\n\n# d\n\
            [dev-dependencies.e]\nversion = \"1\"\n[target.'cfg(unix)'.dependencies]\n\"f\" = \"1\"\n[features]\ng = []\n";
        let names: Vec<String> = dependencies(manifest).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["b", "c", "e", "f"]);
    }

    #[test]
    fn upward_and_sideways_dependencies_are_found() {
        let manifest = "[dependencies]\npleach-env.workspace = true\npleach-log.workspace = true\n\
            [dev-dependencies]\npleach.workspace = true\n";
        let findings = find(&Tree::of(&[("crates/pleach-table/Cargo.toml", manifest)]));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [3, 5]);
    }

    #[test]
    fn a_crate_without_a_layer_is_found() {
        assert_eq!(find(&Tree::of(&[("crates/pleach-new/Cargo.toml", "")])).len(), 1);
        assert!(find(&Tree::of(&[("xtask/Cargo.toml", "[dependencies]\nclap = \"4\"\n")])).is_empty());
    }
}
