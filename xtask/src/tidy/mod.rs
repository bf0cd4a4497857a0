//! Tidy: the rules of STYLE.md that a machine can check and that neither rustfmt nor clippy knows.
//!
//! [`Tree`] holds the text of every file that belongs to the project, read once. Each check is a pure function from
//! the tree to its findings, in a file of its own with its tests; nothing here touches the disk after loading.
//!
//! # Cost
//! One read and, for Rust sources, one tokenisation of each file: well under two seconds for the whole workspace.

mod change_files;
mod declared_modules;
mod file_length;
mod glossary;
mod layers;
mod leftovers;
mod line_length;
mod links;
mod machine_paths;
mod magics;
mod markdown;
mod markdown_title;
mod module_header;
mod modules;
mod plants;
mod tokens;
mod tree;

use std::path::Path;

pub(crate) use tree::Tree;

/// One violated rule, at a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// Counted from one; one for a finding about the whole file.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

/// A named rule.
struct Check {
    name: &'static str,
    find: fn(&Tree) -> Vec<Finding>,
}

const CHECKS: &[Check] = &[
    Check { name: "change-files", find: change_files::find },
    Check { name: "declared-modules", find: declared_modules::find },
    Check { name: "file-length", find: file_length::find },
    Check { name: "glossary", find: glossary::find },
    Check { name: "layers", find: layers::find },
    Check { name: "leftovers", find: leftovers::find },
    Check { name: "line-length", find: line_length::find },
    Check { name: "links", find: links::find },
    Check { name: "machine-paths", find: machine_paths::find },
    Check { name: "magics", find: magics::find },
    Check { name: "markdown-title", find: markdown_title::find },
    Check { name: "module-header", find: module_header::find },
    Check { name: "modules", find: modules::find },
    Check { name: "plants", find: plants::find },
    Check { name: "tokens", find: tokens::find },
];

/// Prints which module of the crate `pleach` uses which, from the bottom up.
pub(crate) fn print_modules(root: &Path) -> Result<(), String> {
    print!("{}", modules::graph(&Tree::load(root)?));
    Ok(())
}

/// Writes the table of plants into the document that has it.
pub(crate) fn write_plants(root: &Path) -> Result<(), String> {
    let text = plants::document(&Tree::load(root)?)?;
    std::fs::write(root.join(plants::TABLE), text)
        .map_err(|error| format!("cannot write {}: {error}", plants::TABLE))
}

/// Runs every check over the tree at `root` and prints what it finds.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let tree = Tree::load(root)?;
    let mut findings: Vec<(Finding, &str)> = Vec::new();
    for check in CHECKS {
        findings.extend((check.find)(&tree).into_iter().map(|finding| (finding, check.name)));
    }
    findings.sort();
    for (Finding { path, line, message }, name) in &findings {
        println!("{path}:{line}: {message} [{name}]");
    }
    match findings.len() {
        0 => Ok(()),
        1 => Err("tidy has one finding".into()),
        count => Err(format!("tidy has {count} findings")),
    }
}
