//! Progress: a bar for people, and samples of disk and memory.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};

use crate::measure::{SERIES_BUCKET_NS, Sampler};

/// Runs `work`. Meanwhile samples memory and the disk use of `dir`, and draws a bar if there is a terminal.
pub(super) fn watched<T>(
    name: &str,
    ops: Option<u64>,
    dir: &Path,
    progress: &AtomicU64,
    work: impl FnOnce() -> T,
) -> (T, Sampler) {
    let (done, waiting) = channel::<()>();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(move || {
            let bar = bar(name, ops);
            let mut samples = Sampler::default();
            samples.sample(dir);
            let interval = Duration::from_nanos(SERIES_BUCKET_NS);
            while waiting.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                samples.sample(dir);
                bar.set_position(progress.load(Ordering::Relaxed));
            }
            samples.sample(dir);
            bar.finish_and_clear();
            samples
        });
        let result = work();
        drop(done);
        let samples = watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (result, samples)
    })
}

fn bar(name: &str, ops: Option<u64>) -> ProgressBar {
    let bar = match ops {
        Some(ops) => ProgressBar::new(ops),
        None => ProgressBar::no_length(),
    };
    let template = "{prefix:32} [{bar:30}] {human_pos}/{human_len} {rate} {elapsed}";
    let style = ProgressStyle::with_template(template).expect("the template is well-formed");
    let style = style.with_key("rate", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        let _never_fails = write!(out, "{}/s", HumanCount(state.per_sec() as u64));
    });
    bar.set_style(style);
    bar.set_prefix(name.to_owned());
    bar
}
