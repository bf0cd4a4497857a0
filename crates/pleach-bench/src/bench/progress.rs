//! Progress: a bar for people, and the sampler that watches the disk meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::measure::{DiskSampler, SERIES_BUCKET_NS};

/// Runs `work` and meanwhile samples the disk use of `dir` and shows how far it has come. The bar is drawn only on a
/// terminal.
pub(super) fn watched<T>(
    name: &str,
    ops: Option<u64>,
    dir: &Path,
    progress: &AtomicU64,
    work: impl FnOnce() -> T,
) -> (T, DiskSampler) {
    let (done, waiting) = channel::<()>();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(move || {
            let bar = bar(name, ops);
            let mut disk = DiskSampler::default();
            disk.sample(dir);
            let interval = Duration::from_nanos(SERIES_BUCKET_NS);
            while waiting.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                disk.sample(dir);
                bar.set_position(progress.load(Ordering::Relaxed));
            }
            disk.sample(dir);
            bar.finish_and_clear();
            disk
        });
        let result = work();
        drop(done);
        let disk = watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (result, disk)
    })
}

fn bar(name: &str, ops: Option<u64>) -> ProgressBar {
    let bar = match ops {
        Some(ops) => ProgressBar::new(ops),
        None => ProgressBar::no_length(),
    };
    let template = "{prefix:32} [{bar:30}] {human_pos}/{human_len} {per_sec} {elapsed}";
    let style = ProgressStyle::with_template(template).expect("the template is well-formed");
    bar.set_style(style);
    bar.set_prefix(name.to_owned());
    bar
}
