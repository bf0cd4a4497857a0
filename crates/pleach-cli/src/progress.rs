//! Progress of long commands on standard error: a bar where the end is known, a spinner where it is not.
//!
//! Nothing is drawn when standard error is not a terminal. Every line fits into 80 columns.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Redraws a second; the default of 20 costs more than it shows.
const REDRAWS_PER_SECOND: u8 = 10;

/// A bar over `total` bytes with a message, or a spinner when the total is not known.
pub(crate) fn over_bytes(total: Option<u64>) -> ProgressBar {
    match total {
        Some(total) => bar(total, "{bar:20.cyan/dim} {bytes}/{total_bytes}  {wide_msg} {eta:>4}"),
        None => spinner("{spinner:.cyan} {bytes}  {wide_msg} {elapsed}"),
    }
}

/// A bar over `total` entries.
pub(crate) fn over_entries(total: u64) -> ProgressBar {
    bar(total, "{bar:20.cyan/dim} {human_pos}/{human_len}  {wide_msg} {eta:>4}")
}

/// A spinner with a message, for work whose end is not known.
pub(crate) fn working(message: impl Into<String>) -> ProgressBar {
    let spinner = spinner("{spinner:.cyan} {wide_msg} {elapsed}");
    spinner.set_message(message.into());
    spinner
}

fn bar(total: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), target());
    bar.set_style(style(template).progress_chars("=> "));
    bar
}

fn spinner(template: &str) -> ProgressBar {
    let spinner = ProgressBar::with_draw_target(None, target());
    spinner.set_style(style(template).tick_chars("-\\|/ "));
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

fn target() -> ProgressDrawTarget {
    ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates are constants")
}
