//! Planted bugs: each is put into a copy of the sources, and the tests that it names must fail.
//!
//! Each file of `plants/` describes one bug as a change of the sources, and the tests that must fail because of it.
//! `cargo xtask plants` copies the project to `target/plants/tree`, applies all plants there, builds once, and runs the tests
//! of each plant with its bug switched on. The sources themselves hold no bug and no switch.
//!
//! In a plant's new text the word `PLANTED` stands for a switch: it is true in a process whose variable `PLEACH_PLANT`
//! holds the plant's name. So all plants are in one build, and each test first runs with all of them off.
//!
//! An interrupted run leaves nothing behind but the copy, which the next run brings up to date.

mod apply;
mod plant;
mod run;
mod scratch;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

pub(crate) use apply::misfits;
pub(crate) use plant::{FOLDER, Plant, Test, table};
use run::Verdict;
use scratch::Scratch;

use crate::tidy::Tree;

/// All plants of the project, by name; an error names the file that is malformed.
pub(crate) fn load(tree: &Tree) -> Result<Vec<Plant>, String> {
    let files = tree.files().filter(|file| file.path.starts_with(FOLDER));
    files
        .map(|file| Plant::parse(&file.path, &file.text).map_err(|error| format!("{}: {error}", file.path)))
        .collect()
}

/// Prints each plant's name and bug.
pub(crate) fn list(root: &Path) -> Result<(), String> {
    for plant in load(&Tree::load(root)?)? {
        println!("{:<24} {}", plant.name, plant.bug);
    }
    Ok(())
}

/// Runs the tests of the plants named by `only`, or of all; an error when one is not noticed.
pub(crate) fn run(root: &Path, only: &[String]) -> Result<(), String> {
    let tree = Tree::load(root)?;
    let plants = load(&tree)?;
    if let Some(unknown) = only.iter().find(|name| plants.iter().all(|plant| plant.name != **name)) {
        return Err(format!("no plant is named `{unknown}`; see `cargo xtask plants --list`"));
    }
    let start = Instant::now();
    let scratch = Scratch::build(root, &tree, &plants)?;
    println!("built in {:.0} s", start.elapsed().as_secs_f64());
    let chosen: Vec<_> =
        plants.iter().filter(|plant| only.is_empty() || only.contains(&plant.name)).collect();
    check_tests(&scratch, &chosen)?;
    let mut missed = Vec::new();
    for (number, plant) in (1..).zip(&chosen) {
        for test in &plant.tests {
            let start = Instant::now();
            let verdict = scratch.run(test, Some(&plant.name))?;
            let (seconds, count) = (start.elapsed().as_secs_f64(), chosen.len());
            println!("{number:>3}/{count} {:<26} {seconds:>6.1} s  {verdict}", plant.name);
            if !verdict.is_noticed() && missed.last() != Some(&plant.name.as_str()) {
                missed.push(plant.name.as_str());
            }
        }
    }
    println!("{} of {} plants noticed", chosen.len() - missed.len(), chosen.len());
    if missed.is_empty() { Ok(()) } else { Err(format!("not noticed: {}", missed.join(", "))) }
}

/// Runs each test without a plant: only a test that passes then can notice one.
fn check_tests(scratch: &Scratch, plants: &[&Plant]) -> Result<(), String> {
    let tests: BTreeSet<_> = plants.iter().flat_map(|plant| &plant.tests).collect();
    let start = Instant::now();
    for test in &tests {
        let verdict = scratch.run(test, None)?;
        if !matches!(verdict, Verdict::Passed) {
            return Err(format!("without a plant, `{test}`: {verdict}"));
        }
    }
    println!("{} tests pass without a plant: {:.0} s", tests.len(), start.elapsed().as_secs_f64());
    Ok(())
}
