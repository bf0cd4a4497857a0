//! Tuning: thresholds that make rare events frequent, for the stores that a test opens on its thread.

use std::cell::Cell;

use pleach::Thresholds;
use pleach::env::failpoint::with_skipped;

std::thread_local! {
    static TUNING: Cell<&'static str> = const { Cell::new("") };
}

/// Runs `body` under `name`. A `tune.` name changes the thresholds of the stores that `body` opens. Any other name switches off
/// a site.
pub(crate) fn with_site<T>(name: &'static str, body: impl FnOnce() -> T) -> T {
    struct Restore(&'static str);
    impl Drop for Restore {
        fn drop(&mut self) {
            TUNING.set(self.0);
        }
    }
    if name.starts_with("tune.") {
        let _restore = Restore(TUNING.replace(name));
        body()
    } else {
        with_skipped(name, body)
    }
}

/// The thresholds for a store that this thread opens now.
pub(crate) fn thresholds() -> Thresholds {
    of(TUNING.get())
}

/// The thresholds of this name.
pub(crate) fn of(name: &str) -> Thresholds {
    let usual = Thresholds::default();
    match name {
        "tune.short_manifests" => Thresholds { manifest_len: 300, manifest_growth: 1, ..usual },
        "tune.short_filters" => {
            Thresholds { filter_bytes: 1 << 10, filter_review_interval: [16, 0], ..usual }
        }
        "tune.large_values" => Thresholds { large_value_len: 500, ..usual },
        _ => usual,
    }
}
