//! Charts: inline SVG whose colours are the page's variables, so that one drawing serves light and dark.
//!
//! Drawings have a fixed inner width and grow with their column; texts stay readable from a phone's width up.

use std::fmt::Write as _;

use super::units;

/// Inner width of every chart.
const WIDTH: f64 = 400.0;
/// A chart of lines: its inner height and what axes need of it.
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 38.0;
/// A chart of bars: the height of a row, what the letter of a name and what numbers need of the width.
const ROW: f64 = 24.0;
const LETTER: f64 = 6.6;
const NUMBERS: f64 = 72.0;
/// Colours a page has.
pub(super) const COLOURS: usize = 10;

/// One bar.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) value: f64,
    /// The value as it is written.
    pub(super) text: String,
    pub(super) colour: usize,
}

/// One line through points.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) colour: usize,
}

/// The scale of an axis and its labels.
pub(super) enum Axis {
    /// From zero, with the unit after the numbers.
    Linear { max: f64, unit: &'static str },
    /// From the decade below `low` to the one above `high`, in nanoseconds.
    LogNanos { low: f64, high: f64 },
    /// Percentiles by the number of nines.
    Percentile { max: f64 },
}

impl Axis {
    /// Where a number lies between the ends, 0 to 1.
    fn place(&self, number: f64) -> f64 {
        let place = match self {
            Self::Linear { max, .. } => number / round_up(*max),
            Self::LogNanos { low, high } => {
                let (low, high) = (low.max(1.0).log10().floor(), high.max(10.0).log10().ceil());
                (number.max(1.0).log10() - low) / (high - low).max(1.0)
            }
            Self::Percentile { max } => nines(number) / nines(*max).max(1.0),
        };
        place.clamp(0.0, 1.0)
    }

    /// Numbers to mark, with their texts.
    fn ticks(&self) -> Vec<(f64, String)> {
        match self {
            Self::Linear { max, unit } => {
                let step = round_step(*max);
                let text = |number: f64| format!("{}{unit}", units::tick(number));
                (0..=6)
                    .map(|i| f64::from(i) * step)
                    .take_while(|n| *n <= round_up(*max) * 1.0001)
                    .map(|n| (n, text(n)))
                    .collect()
            }
            Self::LogNanos { low, high } => {
                let (low, high) = (low.max(1.0).log10().floor() as i32, high.max(10.0).log10().ceil() as i32);
                let name = |power: i32| {
                    let unit = ["ns", "us", "ms", "s"].get(power as usize / 3).unwrap_or(&"s");
                    format!("{} {unit}", 10_u64.pow(power as u32 % 3))
                };
                (low..=high).map(|power| (10_f64.powi(power), name(power))).collect()
            }
            Self::Percentile { max } => {
                let marks = [
                    (0.0, "0"),
                    (90.0, "90"),
                    (99.0, "99"),
                    (99.9, "99.9"),
                    (99.99, "99.99"),
                    (99.999, "99.999"),
                ];
                let shown = marks.into_iter().filter(|(mark, _)| mark <= max);
                shown.map(|(mark, text)| (mark, format!("{text} %"))).collect()
            }
        }
    }
}

/// 90 % has one, 99.9 % has three.
fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).max(1e-9).log10()
}

/// A step of 1, 2 or 5 times a power of ten that makes about four of `max`.
fn round_step(max: f64) -> f64 {
    let rough = max.max(f64::MIN_POSITIVE) / 4.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= rough * 0.999);
    step.unwrap_or(10.0) * power
}

/// The first step at or above `max`: where the axis ends.
fn round_up(max: f64) -> f64 {
    let step = round_step(max);
    ((max / step * 0.9999).ceil() * step).max(f64::MIN_POSITIVE)
}

/// Horizontal bars from zero.
pub(super) fn bars(title: &str, bars: &[Bar]) -> String {
    let height = ROW * bars.len() as f64 + 4.0;
    let max = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let longest = bars.iter().map(|bar| bar.name.len()).max().unwrap_or(0);
    let names = longest as f64 * LETTER + 12.0;
    let mut svg = open(title, height);
    for (row, bar) in bars.iter().enumerate() {
        let y = ROW * row as f64 + 3.0;
        let len = ((WIDTH - names - NUMBERS) * bar.value / max).max(1.0);
        let (middle, colour) = (y + 13.0, bar.colour % COLOURS);
        let name = escape(&bar.name);
        let _infallible = write!(
            svg,
            "<text class=\"name\" x=\"{x:.1}\" y=\"{middle}\" text-anchor=\"end\">{name}</text>\
             <rect class=\"c{colour}\" x=\"{names:.1}\" y=\"{y}\" width=\"{len:.1}\" height=\"18\" rx=\"2\"/>\
             <text class=\"number\" x=\"{end:.1}\" y=\"{middle}\">{text}</text>",
            x = names - 8.0,
            end = names + len + 6.0,
            text = escape(&bar.text),
        );
    }
    svg + "</svg>"
}

/// Lines over two axes.
pub(super) fn lines(title: &str, x_axis: &Axis, y_axis: &Axis, x_title: &str, lines: &[Line]) -> String {
    let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let x_at = |number: f64| LEFT + x_axis.place(number) * width;
    let y_at = |number: f64| TOP + (1.0 - y_axis.place(number)) * height;
    let mut svg = open(title, HEIGHT);
    for (number, text) in y_axis.ticks() {
        let y = y_at(number);
        let _infallible = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" x=\"{x}\" y=\"{text_y:.1}\" text-anchor=\"end\">{text}</text>",
            right = WIDTH - RIGHT,
            x = LEFT - 6.0,
            text_y = y + 4.0,
        );
    }
    for (number, text) in x_axis.ticks() {
        let x = x_at(number);
        let anchor = if x > WIDTH - RIGHT - 20.0 { "end" } else { "middle" };
        let x = if anchor == "end" { WIDTH } else { x };
        let _infallible = write!(
            svg,
            "<text class=\"tick\" x=\"{x:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>",
            y = HEIGHT - BOTTOM + 16.0,
        );
    }
    let _infallible = write!(
        svg,
        "<text class=\"tick\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{x_title}</text>",
        x = LEFT + width / 2.0,
        y = HEIGHT - 4.0,
    );
    for line in lines {
        let mut points = String::new();
        for &(x, y) in &line.points {
            let _infallible = write!(points, "{:.1},{:.1} ", x_at(x), y_at(y));
        }
        let _infallible = write!(
            svg,
            "<polyline class=\"l{colour}\" points=\"{points}\"><title>{name}</title></polyline>",
            colour = line.colour % COLOURS,
            points = points.trim_end(),
            name = escape(&line.name),
        );
    }
    svg + "</svg>"
}

fn open(title: &str, height: f64) -> String {
    let title = escape(title);
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">")
}

/// Text with escaped markup.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (max, step) in [(1.0, 0.5), (10.0, 5.0), (7.0, 2.0), (400.0, 100.0), (3_000_000.0, 1_000_000.0)] {
            assert!((round_step(max) / step - 1.0).abs() < 1e-9, "{max}: {}", round_step(max));
        }
    }

    #[test]
    fn places_lie_between_the_ends() {
        let axis = Axis::LogNanos { low: 300.0, high: 2_000_000.0 };
        assert!(axis.place(100.0).abs() < 1e-9 && (axis.place(10_000_000.0) - 1.0).abs() < 1e-9);
        assert_eq!(axis.ticks().first().map(|tick| tick.1.clone()).as_deref(), Some("100 ns"));
        let axis = Axis::Percentile { max: 99.9 };
        assert!((axis.place(99.0) - 2.0 / 3.0).abs() < 1e-9 && axis.ticks().len() == 4);
    }

    #[test]
    fn names_are_escaped() {
        let bar = Bar { name: "<a&b>".into(), value: 1.0, text: "1".into(), colour: 0 };
        assert!(bars("t", &[bar]).contains("&lt;a&amp;b&gt;"));
    }
}
