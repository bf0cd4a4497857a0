//! Nothing in the project names a machine it was written on: no absolute home or workplace paths, no package
//! registry but the public one.
//!
//! The patterns are put together from halves, so that this file passes its own check.

use super::Finding;
use super::tree::Tree;

/// Folders that only some machines have.
const FOLDERS: [&str; 4] =
    [concat!("/wo", "rk"), concat!("/ro", "ot"), concat!("/ho", "me"), concat!("/Us", "ers")];
/// Ways to name a package registry. The lock file's line for the public one is allowed.
const REGISTRIES: [&str; 4] = [
    concat!("sparse", "+http"),
    concat!("registry", "+http"),
    concat!("crates", "-io]"),
    concat!("CARGO_", "REGISTR"),
];
const PUBLIC_REGISTRY: &str = concat!("registry", "+https://github.com/rust-lang/crates.io-index");

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        for (line, text) in (1..).zip(file.text.lines()) {
            if let Some(folder) = FOLDERS.into_iter().find(|folder| names_folder(text, folder)) {
                findings.push(Finding::new(&file.path, line, format!("machine path {folder}")));
            }
            let text = text.replace(PUBLIC_REGISTRY, "");
            if let Some(registry) = REGISTRIES.into_iter().find(|registry| text.contains(registry)) {
                findings.push(Finding::new(&file.path, line, format!("package registry `{registry}`")));
            }
        }
    }
    findings
}

/// Whether `folder` begins a path in `text`; the same word deeper in a path is no machine's.
fn names_folder(text: &str, folder: &str) -> bool {
    text.match_indices(folder).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + folder.len()..].chars().next();
        let starts = before.is_none_or(|c| c.is_whitespace() || "\"'`(=:<[,".contains(c));
        starts && after.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == '-'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        let text = text.replace('@', "/").replace("REG", "registry");
        find(&Tree::of(&[("a.md", &text)])).len()
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        assert_eq!(found("see @work@x"), 1);
        assert_eq!(found("PATH=@root"), 1);
        assert_eq!(found("`@home@me@x`"), 1);
        assert_eq!(found("docs@work@x, @workspace, net@work, I@O"), 0);
    }

    #[test]
    fn only_the_public_registry_may_be_named() {
        assert_eq!(found("source = \"REG+https:@@github.com@rust-lang@crates.io-index\""), 0);
        assert_eq!(found("source = \"REG+https:@@mirror.example@index\""), 1);
    }
}
