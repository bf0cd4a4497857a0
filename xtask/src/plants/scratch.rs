//! The copy of the project with all plants, built.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::plant::{Plant, Test};
use super::{apply, run};
use crate::tidy::Tree;

/// A package and the name of its integration test, or none for its unit tests.
type Target = (String, Option<String>);

/// The copy; see the module's text.
pub(super) struct Scratch {
    /// Executables of tests.
    executables: BTreeMap<Target, PathBuf>,
    tree: PathBuf,
    /// Where the output of tests goes.
    outputs: PathBuf,
}

impl Scratch {
    /// Copies the project, applies `plants` and builds their tests.
    pub(super) fn build(root: &Path, tree: &Tree, plants: &[Plant]) -> Result<Self, String> {
        let folder = root.join("target/plants");
        let (mut changed, misfits) = apply::apply(plants, |path| Some(&tree.get(path)?.text));
        if let Some((number, error)) = misfits.first() {
            return Err(format!("{}: {error}", plants[*number].path));
        }
        let mut scratch =
            Self { executables: BTreeMap::new(), tree: folder.join("tree"), outputs: folder.join("outputs") };
        fs::create_dir_all(&scratch.outputs).map_err(|error| format!("{}: {error}", folder.display()))?;
        scratch.copy(root, tree, &mut changed)?;
        scratch.compile(&folder.join("target"), plants)?;
        Ok(scratch)
    }

    /// Brings the copy up to date. Files that are as they should be stay untouched: cargo looks at their times.
    fn copy(&self, root: &Path, tree: &Tree, changed: &mut BTreeMap<&str, String>) -> Result<(), String> {
        let mut stale = BTreeSet::new();
        list_files(&self.tree, &mut stale);
        for path in tree.paths() {
            let to = self.tree.join(path);
            let bytes = match changed.remove(path) {
                Some(text) => Ok(text.into_bytes()),
                None => fs::read(root.join(path)),
            };
            let copied = bytes.and_then(|bytes| {
                if !stale.remove(&to) || fs::read(&to)? != bytes {
                    fs::create_dir_all(to.parent().expect("a file of the copy"))?;
                    fs::write(&to, bytes)?;
                }
                Ok(())
            });
            copied.map_err(|error| format!("cannot copy {path}: {error}"))?;
        }
        stale
            .iter()
            .try_for_each(fs::remove_file)
            .map_err(|error| format!("cannot remove a stale copy: {error}"))
    }

    /// Builds the tests that the plants name, with one call of cargo: otherwise packages would be built several times with
    /// different features.
    fn compile(&mut self, target: &Path, plants: &[Plant]) -> Result<(), String> {
        let tests = plants.iter().flat_map(|plant| &plant.tests);
        let packages: BTreeSet<_> = tests.clone().map(|test| &test.package).collect();
        let integrations: BTreeSet<_> = tests.filter_map(|test| test.integration.as_ref()).collect();
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["test", "--no-run", "--lib", "--message-format=json-render-diagnostics"]);
        cargo.args(packages.into_iter().flat_map(|package| ["-p", package]));
        cargo.args(integrations.into_iter().flat_map(|name| ["--test", name]));
        // Switches make warnings, and debug information would only make the build longer.
        cargo.env("CARGO_TARGET_DIR", target).env("CARGO_PROFILE_DEV_DEBUG", "0");
        cargo.env("RUSTFLAGS", "--cap-lints allow").current_dir(&self.tree).stderr(Stdio::inherit());
        let output = cargo.output().map_err(|error| format!("cannot start cargo: {error}"))?;
        if !output.status.success() {
            return Err(format!("the plants do not compile; see {}", self.tree.display()));
        }
        self.executables = String::from_utf8_lossy(&output.stdout).lines().filter_map(executable).collect();
        Ok(())
    }

    /// Runs `test` with the bug of `plant`, or with none.
    pub(super) fn run(&self, test: &Test, plant: Option<&str>) -> Result<run::Verdict, String> {
        let target = (test.package.clone(), test.integration.clone());
        let executable =
            self.executables.get(&target).ok_or_else(|| format!("`{test}` has no executable"))?;
        let mut command = Command::new(executable);
        command.arg(&test.filter).current_dir(self.tree.join("crates").join(&test.package));
        command.env("PLEACH_PLANT", plant.unwrap_or_default()).env("RUST_BACKTRACE", "0");
        command.envs(test.variables.iter().map(|(name, value)| (name, value)));
        run::run(command, &self.outputs.join(plant.unwrap_or("none")).with_extension("txt"))
    }
}

/// The test that one of cargo's messages says was built.
fn executable(message: &str) -> Option<(Target, PathBuf)> {
    let message: Value = serde_json::from_str(message).ok()?;
    let path = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?;
    let target = &message["target"];
    let package = Path::new(message["manifest_path"].as_str()?).parent()?.file_name()?.to_str()?;
    let integration = (target["kind"][0] == "test").then(|| target["name"].as_str().map(str::to_owned));
    Some(((package.to_owned(), integration.flatten()), path.into()))
}

fn list_files(folder: &Path, files: &mut BTreeSet<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            list_files(&path, files);
        } else {
            files.insert(path);
        }
    }
}
