//! Progress of long commands on standard error: a bar if the end is known, otherwise a spinner.
//!
//! Nothing is drawn if standard error is not a terminal. Every line fits into 60 columns: on a terminal of less than 80 columns
//! the bar is shorter or left out, so that the text fits.

use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Redraws per second; the default of 20 costs more and shows no more.
const REDRAWS_PER_SECOND: u8 = 10;

/// Columns of a bar on a wide terminal, and the fewest of any bar. Arbitrary.
const BAR_WIDTH_MAX: u16 = 20;
const BAR_WIDTH_MIN: u16 = 6;

/// A bar over `total` bytes with a message, or a spinner if the total is not known.
pub(crate) fn over_bytes(total: Option<u64>) -> ProgressBar {
    match total {
        Some(total) => bar(total, "{bytes}/{total_bytes}  {wide_msg} {eta:>4}"),
        None => spinner("{spinner:.cyan} {bytes}  {wide_msg} {elapsed}"),
    }
}

/// A bar over `total` entries.
pub(crate) fn over_entries(total: u64) -> ProgressBar {
    bar(total, "{human_pos}/{human_len}  {wide_msg} {eta:>4}")
}

/// A spinner with a message, for work whose end is not known.
pub(crate) fn working(message: impl Into<String>) -> ProgressBar {
    let spinner = spinner("{spinner:.cyan} {wide_msg} {elapsed}");
    spinner.set_message(message.into());
    spinner
}

/// A bar in front of what `template` shows.
fn bar(total: u64, template: &str) -> ProgressBar {
    let columns = Term::stderr().size_checked().map(|(_, columns)| columns);
    let template = match bar_width(columns) {
        Some(width) => format!("{{bar:{width}.cyan/dim}} {template}"),
        None => template.to_owned(),
    };
    let bar = ProgressBar::with_draw_target(Some(total), target());
    bar.set_style(style(&template).progress_chars("=> "));
    bar
}

/// Columns of a bar on a terminal with `columns`, of which the text of a load needs 58; `None` if the bar would be too short.
fn bar_width(columns: Option<u16>) -> Option<u16> {
    let width = columns.map_or(BAR_WIDTH_MAX, |columns| columns.saturating_sub(58).min(BAR_WIDTH_MAX));
    (width >= BAR_WIDTH_MIN).then_some(width)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_leaves_room_for_the_message() {
        let widths = [None, Some(0), Some(60), Some(70), Some(80), Some(200)].map(bar_width);
        assert_eq!(widths, [Some(20), None, None, Some(12), Some(20), Some(20)]);
    }
}
