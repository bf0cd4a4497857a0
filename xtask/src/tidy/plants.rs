//! Planted bugs keep up with the sources: each still applies, its test exists, and docs/testing/planted-bugs.md lists it.

use super::Finding;
use super::tree::Tree;
use crate::plants::{self, FOLDER, Plant, Test};

/// Where the table of plants stands, between two marks.
pub(crate) const TABLE: &str = "docs/testing/planted-bugs.md";
const BEGIN: &str = "<!-- plants -->\n";
const END: &str = "<!-- end of plants -->";

pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let (mut plants, mut findings) = (Vec::new(), Vec::new());
    for file in tree.files().filter(|file| file.path.starts_with(FOLDER)) {
        match Plant::parse(&file.path, &file.text) {
            Ok(plant) => plants.push(plant),
            Err(error) => findings.push(Finding::new(&file.path, 1, error)),
        }
    }
    let misfits = plants::misfits(&plants, |path| Some(&tree.get(path)?.text));
    findings.extend(misfits.into_iter().map(|(number, error)| Finding::new(&plants[number].path, 1, error)));
    for plant in &plants {
        for test in plant.tests.iter().filter(|test| !exists(tree, test)) {
            findings.push(Finding::new(&plant.path, 1, format!("there is no test `{test}`")));
        }
    }
    let table = tree.get(TABLE).and_then(|file| with_table(&file.text, &plants).map(|new| new == file.text));
    if !plants.is_empty() && table != Some(true) {
        let message = "the table of plants is not that of plants/; `cargo xtask plants --table` writes it";
        findings.push(Finding::new(TABLE, 1, message));
    }
    findings
}

fn exists(tree: &Tree, test: &Test) -> bool {
    let (folder, name) = (format!("crates/{}/", test.package), test.function());
    let definitions = [format!("fn {name}("), format!("mod {name}")];
    let mut files = tree.with_extension("rs").filter(|file| file.path.starts_with(&folder));
    files.any(|file| definitions.iter().any(|definition| file.text.contains(definition)))
}

/// `text` with the table of `plants` between the marks; none without the marks.
fn with_table(text: &str, plants: &[Plant]) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let after = &rest[rest.find(END)?..];
    Some(format!("{before}{BEGIN}{}{after}", plants::table(plants)))
}

/// The new text of [`TABLE`].
pub(super) fn document(tree: &Tree) -> Result<String, String> {
    let file = tree.get(TABLE).ok_or_else(|| format!("there is no {TABLE}"))?;
    with_table(&file.text, &plants::load(tree)?)
        .ok_or_else(|| format!("{TABLE} has no line `{}`", BEGIN.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(plant: &str, document: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("plants/one.txt", plant),
            ("crates/a/src/lib.rs", "fn noticed() {}\nsync();\n"),
            (TABLE, document),
        ]);
        find(&tree).into_iter().map(|finding| finding.message).collect()
    }

    const PLANT: &str =
        "bug: No sync.\ntest: cargo test -p a --lib noticed\n--- crates/a/src/lib.rs\nsync();\n+++\n";

    #[test]
    fn a_plant_applies_has_a_test_and_is_listed() {
        let plants = [Plant::parse("plants/one.txt", PLANT).unwrap()];
        let document = with_table(&format!("a\n{BEGIN}{END}\n"), &plants).unwrap();
        assert!(document.contains("| `one` | No sync. |"), "{document}");
        assert_eq!(findings(PLANT, &document), Vec::<String>::new());
        let is_found = |plant: &str, document: &str, what: &str| {
            let findings = findings(plant, document);
            assert!(findings.iter().any(|finding| finding.contains(what)), "{findings:?}");
        };
        is_found(&PLANT.replace("sync();", "sync(1);"), &document, "0 times");
        is_found(
            &PLANT.replace("noticed", "overlooked"),
            &document,
            "no test `cargo test -p a --lib overlooked`",
        );
        is_found(&PLANT.replace("+++", ""), &document, "`+++`");
        is_found(PLANT, &document.replace("No sync", "A sync"), "table of plants");
    }
}
