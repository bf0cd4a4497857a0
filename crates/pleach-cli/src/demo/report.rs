//! The demo's report: text as it goes along with a summary at the end, or one JSON document.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;

use console::Style;
use serde_json::{Map, Value};

use crate::failure::{Failure, Result};
use crate::output::{Output, Table};

/// Steps of the demo.
const STEPS: usize = 5;

pub(super) struct Report {
    output: Output,
    is_json: bool,
    step: usize,
    results: Vec<(&'static str, String)>,
    document: Map<String, Value>,
}

impl Report {
    pub(super) fn new(is_json: bool) -> Self {
        Self { output: Output::stdout(), is_json, step: 0, results: Vec::new(), document: Map::new() }
    }

    fn say(&mut self, text: impl Display) -> Result<()> {
        if self.is_json {
            return Ok(());
        }
        self.output.line(text)?;
        Ok(self.output.flush()?)
    }

    pub(super) fn title(&mut self, text: impl Display) -> Result<()> {
        self.say(Style::new().bold().apply_to(text))
    }

    /// A step begins.
    pub(super) fn step(&mut self, text: impl Display) -> Result<()> {
        self.step += 1;
        let number = Style::new().cyan().bold().apply_to(format!("[{}/{STEPS}]", self.step)).to_string();
        self.say(format!("\n{number} {text}"))
    }

    /// A note about the step.
    pub(super) fn detail(&mut self, text: impl Display) -> Result<()> {
        self.say(format!("      {text}"))
    }

    /// The result of the step, repeated in the summary.
    pub(super) fn result(&mut self, name: &'static str, text: String) -> Result<()> {
        let mark = Style::new().green().bold().apply_to("ok");
        self.say(format!("   {mark} {name}: {text}"))?;
        self.results.push((name, text));
        Ok(())
    }

    /// Numbers for the JSON document.
    pub(super) fn record(&mut self, step: &str, numbers: &[(&str, u64)]) {
        let numbers: Map<String, Value> =
            numbers.iter().map(|(name, number)| ((*name).to_owned(), (*number).into())).collect();
        self.document.insert(step.to_owned(), numbers.into());
    }

    /// All results again.
    pub(super) fn summary(&mut self, seconds: f64) -> Result<()> {
        self.document.insert("seconds".to_owned(), seconds.into());
        if self.is_json {
            return Ok(());
        }
        self.output.line("")?;
        let mut table = Table::new(&["SUMMARY", ""], 2);
        for (name, text) in &self.results {
            table.row([(*name).to_owned(), text.clone()]);
        }
        table.row(["all checks passed".to_owned(), format!("in {seconds:.1} s")]);
        table.print(&mut self.output)
    }

    /// Commands to copy.
    pub(super) fn next_steps(&mut self, dir: Option<&Path>) -> Result<()> {
        self.say(format!("\n{}", Style::new().bold().apply_to("Next")))?;
        if let Some(dir) = dir {
            let dir = dir.display();
            self.say(format!("  pleach partitions --db {dir}"))?;
            self.say(format!("  pleach scan --db {dir} --partition users --limit 3"))?;
            return self.say(format!("  pleach stats --db {dir}"));
        }
        self.say("  export PLEACH_DB=/tmp/pleach-store")?;
        self.say("  pleach put hello world")?;
        self.say("  pleach get hello")?;
        self.say("  apt-cache dumpavail | pleach load --partition packages --format stanzas -")?;
        self.say("  pleach get bash --partition packages")
    }

    /// The demo ends early.
    pub(super) fn failed(&mut self, failure: &Failure) {
        self.document.insert("failure".to_owned(), failure.message.clone().into());
    }

    /// Writes the JSON document, if `--json` was given.
    pub(super) fn finish(mut self) -> Result<()> {
        if self.is_json {
            let ok = !self.document.contains_key("failure");
            self.document.insert("ok".to_owned(), ok.into());
            self.output.document(&Value::Object(self.document))?;
        }
        self.output.finish()
    }
}
