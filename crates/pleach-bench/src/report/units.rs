//! Numbers with units, for people.

/// Three significant digits.
fn significant(number: f64) -> String {
    let digits = match number.abs() {
        n if n >= 99.95 => 0,
        n if n >= 9.995 => 1,
        _ => 2,
    };
    format!("{number:.digits$}")
}

fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    let mut number = number;
    let mut unit = 0;
    // Otherwise 999.5 would be written as 1000.
    while number >= step * 0.9995 && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    if unit == 0 && number.fract() == 0.0 {
        return format!("{number}{}", units[0]);
    }
    format!("{}{}", significant(number), units[unit])
}

/// A count: `1.23 M`.
pub(crate) fn count(number: f64) -> String {
    scaled(number, 1000.0, &["", " k", " M", " G"])
}

/// A count beside an axis, without needless zeros: `2.5 M`.
pub(super) fn tick(number: f64) -> String {
    let text = count(number);
    let (digits, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let digits =
        if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    if unit.is_empty() { digits.to_owned() } else { format!("{digits} {unit}") }
}

/// Bytes in powers of 1024: `1.50 MiB`.
pub(crate) fn bytes(number: f64) -> String {
    scaled(number, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

/// A time given in nanoseconds: `412 ns`.
pub(crate) fn nanos(number: f64) -> String {
    scaled(number, 1000.0, &[" ns", " us", " ms", " s"])
}

/// A ratio, or a dash.
pub(crate) fn ratio(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), significant)
}

/// A multiple: `0.85x`.
pub(crate) fn times(number: f64) -> String {
    format!("{}x", significant(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(count(0.0), "0");
        assert_eq!(count(999.0), "999");
        assert_eq!(count(999.9), "1.00 k");
        assert_eq!(count(1_234_567.0), "1.23 M");
        assert_eq!(tick(2_500_000.0), "2.5 M");
        assert_eq!((tick(100.0), tick(0.5)), ("100".into(), "0.5".into()));
        assert_eq!(bytes(1536.0), "1.50 KiB");
        assert_eq!(nanos(412.0), "412 ns");
        assert_eq!(nanos(98_765.0), "98.8 us");
        assert_eq!(ratio(Some(10.04)), "10.0");
        assert_eq!(ratio(None), "-");
        assert_eq!(
            (times(0.854), times(12.34), times(812.3)),
            ("0.85x".into(), "12.3x".into(), "812x".into())
        );
    }
}
