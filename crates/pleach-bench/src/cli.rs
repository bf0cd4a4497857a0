//! The command line over a list of engines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use pleach_command::{Interrupt, SecondSignal};

use crate::bench::{Record, Settings, remove_stores, run_as_child, run_in_child, turns};
use crate::data::KeySet;
use crate::device::{self, DeviceArgs};
use crate::engine::{EngineFactory, Result};
use crate::paper::{self, PaperArgs};
use crate::report::{self, Comparison, Tolerance};
use crate::results::{self, replace};
use crate::workload::WORKLOADS;

/// The hidden command of an engine's own process.
pub(crate) const CHILD_COMMAND: &str = "engine-process";

/// Benchmarks of Pleach and of other key-value stores: the same operations for each, one process for each.
#[derive(Parser)]
#[command(name = "pleach-bench", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Show engines, workloads and key sets.
    List,
    /// Measure raw random reads of a store's files by depth, with fio's beside them.
    Device(DeviceArgs),
    /// Repeat a figure of a paper on smaller data and print theirs beside ours.
    Paper(PaperArgs),
    /// Make reports from JSON files of earlier runs, or compare two of them; a table by default.
    Report(ReportArgs),
    /// Write the tables of a Markdown document again, from the files of results that its marks name.
    Tables(TablesArgs),
    /// Run one engine; the task comes by standard input.
    #[command(name = CHILD_COMMAND, hide = true)]
    EngineProcess,
}

#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    settings: Settings,
    /// Write the records to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the report to this file as one HTML page.
    #[arg(long)]
    html: Option<PathBuf>,
    /// The engine that the others are compared with on the page; by default the first one.
    #[arg(long)]
    baseline: Option<String>,
}

#[derive(Args)]
struct ReportArgs {
    /// Files written with --json or --brief; their records are shown together.
    #[arg(required = true)]
    json: Vec<PathBuf>,
    /// The page to write.
    #[arg(long)]
    html: Option<PathBuf>,
    /// The file to write as Markdown, or `-` for standard output.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// The file to write as JSON with those figures only that tables and pages show.
    #[arg(long)]
    brief: Option<PathBuf>,
    /// The engine that the others are compared with; by default the first one.
    #[arg(long)]
    baseline: Option<String>,
    /// Compare two files, runs of the same command: the second's figures as multiples of the first's.
    #[arg(long, conflicts_with_all = ["html", "markdown", "brief", "baseline"])]
    compare: bool,
    /// With --compare: fail when a throughput of one run is higher than the other's by more than this, as `15%`.
    #[arg(long, requires = "compare", value_parser = parse_percent)]
    within: Option<f64>,
    /// With --compare: the same for the median and the 99th percentile of latencies.
    #[arg(long, requires = "compare", value_parser = parse_percent)]
    latency_within: Option<f64>,
}

#[derive(Args)]
struct TablesArgs {
    /// The document. Its tables stand between `<!-- table: FILE FIGURES -->` and `<!-- end -->`.
    document: PathBuf,
    /// Write nothing; fail when a table does not agree with its file.
    #[arg(long)]
    check: bool,
}

/// The whole command line over `engines`, which it also runs in processes of their own by calling the same executable
/// again: call this from `main` and do nothing before it.
pub fn run(engines: &[EngineFactory]) -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => run_settings(engines, &cli.run),
        Some(Command::List) => {
            list(engines);
            Ok(())
        }
        Some(Command::Device(args)) => device::run(&args),
        Some(Command::Paper(args)) => paper::run(engines, &args),
        Some(Command::Report(args)) => report_again(&args),
        Some(Command::Tables(args)) => tables(&args),
        Some(Command::EngineProcess) => run_as_child(engines),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::complain(&format!("pleach-bench: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run_settings(engines: &[EngineFactory], args: &RunArgs) -> Result<()> {
    let settings = &args.settings;
    settings.check()?;
    let unknown = |name: &&String| !engines.iter().any(|factory| factory.name == **name);
    if let Some(name) = settings.engines.iter().find(unknown) {
        return Err(format!("there is no engine {name:?}; `pleach-bench list` shows them").into());
    }
    if let Some(name) = args.baseline.as_ref().filter(|name| !settings.engines.contains(name)) {
        return Err(format!("--baseline: {name:?} is none of the engines").into());
    }
    let results = [&args.json, &args.html];
    if results.into_iter().flatten().any(|path| path.parent() == Some(&settings.dir)) {
        // The folder of stores, which the first engine would create.
        fs::create_dir_all(&settings.dir).map_err(|error| format!("{}: {error}", settings.dir.display()))?;
    }
    for (option, path) in [("--json", &args.json), ("--html", &args.html)] {
        path.as_ref().map_or(Ok(()), |path| results::check(option, path))?;
    }
    let interrupt = Interrupt::install(SecondSignal::EndsProcess)?;
    let mut records: Vec<Record> = Vec::new();
    let (mut failed, mut unwritten) = (Vec::new(), None);
    for (engine, settings) in turns(settings) {
        let mut first = records.is_empty();
        let outcome = run_in_child(&engine, &settings, &interrupt, &mut |record| {
            report::print_table(std::slice::from_ref(record), std::mem::take(&mut first));
        });
        records.extend(outcome.records);
        failed.extend(outcome.error);
        // After each engine, so that a later failure does not lose these records.
        unwritten = write_results(args, &records).err().map(|error| error.to_string());
        if let Some(error) = &unwritten {
            report::complain(&format!("pleach-bench: {error}"));
        }
        if interrupt.is_asked() {
            break;
        }
    }
    remove_stores(settings);
    failed.extend(unwritten);
    let wrong: u64 = records.iter().map(|record| record.wrong).sum();
    if wrong > 0 {
        failed.push(format!("{wrong} answers were wrong"));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ").into()) }
}

/// Writes the results so far. Of two files, both are tried.
fn write_results(args: &RunArgs, records: &[Record]) -> Result<()> {
    let json = args.json.as_ref().map_or(Ok(()), |path| replace(path, &report::json(records)?));
    let html = args.html.as_ref().map_or(Ok(()), |path| {
        // The baseline may still be measured.
        let measured = |name: &&str| records.iter().any(|record| record.engine == **name);
        replace(path, &report::html(records, args.baseline.as_deref().filter(measured))?)
    });
    json.and(html)
}

fn report_again(args: &ReportArgs) -> Result<()> {
    if args.compare {
        return compare(args);
    }
    let mut records: Vec<Record> = Vec::new();
    for path in &args.json {
        records.extend(read_records(path)?);
    }
    let baseline = args.baseline.as_deref();
    if let Some(path) = &args.html {
        replace(path, &report::html(&records, baseline)?)?;
    }
    if let Some(path) = &args.brief {
        replace(path, &report::brief(&records)?)?;
    }
    match &args.markdown {
        Some(path) if path.as_os_str() == "-" => report::print_text(&report::markdown(&records, baseline)?),
        Some(path) => replace(path, &report::markdown(&records, baseline)?)?,
        None if args.html.is_none() && args.brief.is_none() => report::print_table(&records, true),
        None => {}
    }
    Ok(())
}

fn tables(args: &TablesArgs) -> Result<()> {
    let path = &args.document;
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let written = report::with_tables(&text, path.parent().unwrap_or(Path::new("")))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    if written == text {
        Ok(())
    } else if args.check {
        Err(format!("{}: a table does not agree with its file; run `cargo xtask tables`", path.display())
            .into())
    } else {
        replace(path, &written)
    }
}

fn compare(args: &ReportArgs) -> Result<()> {
    let [first, second] = &args.json[..] else {
        return Err("--compare takes two files".into());
    };
    let comparison = Comparison::new(&read_records(first)?, &read_records(second)?);
    comparison.print();
    if args.within.is_none() && args.latency_within.is_none() {
        return Ok(());
    }
    let beyond = comparison.beyond(Tolerance { throughput: args.within, latency: args.latency_within });
    if beyond.is_empty() { Ok(()) } else { Err(format!("the runs differ:\n{}", beyond.join("\n")).into()) }
}

fn read_records(path: &Path) -> Result<Vec<Record>> {
    let of_file = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read_to_string(path).map_err(|error| of_file(&error))?;
    Ok(report::read(&text).map_err(|error| of_file(&error))?)
}

/// A share given in percent, `15%` or `15`.
fn parse_percent(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim_end_matches('%').trim_end().parse().ok();
    number
        .filter(|number| number.is_finite() && *number >= 0.0)
        .map(|number| number / 100.0)
        .ok_or_else(|| format!("{text:?} is not a percentage"))
}

fn list(engines: &[EngineFactory]) {
    let mut rows = vec![("engines".to_owned(), String::new())];
    rows.extend(engines.iter().map(|factory| (format!("  {}", factory.name), factory.about.to_owned())));
    rows.push(("workloads".to_owned(), String::new()));
    rows.extend(WORKLOADS.iter().map(|workload| (format!("  {}", workload.name), workload.about.to_owned())));
    rows.push(("key sets".to_owned(), String::new()));
    let value = |set: &KeySet| set.to_possible_value().expect("no key set is hidden");
    rows.extend(KeySet::value_variants().iter().map(|set| {
        let help = value(set).get_help().map(ToString::to_string).unwrap_or_default();
        (format!("  {}", value(set).get_name()), help)
    }));
    report::print_list(&rows);
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        let words = "pleach-bench --engines pleach,reference --workloads fillrandom,readrandom --keys 1000 --key-set \
            url --value-size uniform:1-9 --threads 2 --reads 5 --json a.json --html b.html";
        let cli = Cli::try_parse_from(words.split_whitespace()).expect("it is well-formed");
        assert!(Cli::try_parse_from("pleach-bench report a b --within 5%".split(' ')).is_err());
        assert_eq!((parse_percent("15%"), parse_percent("0.5")), (Ok(0.15), Ok(0.005)));
        assert!(["", "%", "-1%", "x"].iter().all(|text| parse_percent(text).is_err()));
        assert_eq!(cli.run.settings.engines, ["pleach", "reference"]);
        assert_eq!((cli.run.settings.ops, cli.run.settings.key_set), (Some(5), KeySet::Url));
    }
}
