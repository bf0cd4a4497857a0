//! Byte sizes with units.

/// A number of bytes with an optional binary unit: `67108864`, `64M`, `64MiB`, `1g`. For arguments of commands.
///
/// # Errors
/// A message that says what is wrong and which units there are.
pub fn parse_bytes<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1u64,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => {
            return Err(format!(
                "unknown unit {unit:?}; the units are K, M, G and T, each 1024 times the one before"
            ));
        }
    };
    let number: u64 =
        digits.parse().map_err(|_| format!("{text:?} is not a number of bytes such as 512M"))?;
    let bytes = number.checked_mul(factor).and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| format!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_binary() {
        assert_eq!(parse_bytes("512"), Ok(512));
        assert_eq!(parse_bytes("64M"), Ok(64 << 20));
        assert_eq!(parse_bytes("1GB"), Ok(1u64 << 30));
        assert_eq!(parse_bytes("2gib"), Ok(2usize << 30));
        for wrong in ["", "M", "1x", "-1", "99999999999T", "99999999999999999999"] {
            assert!(parse_bytes::<u64>(wrong).is_err(), "{wrong}");
        }
        assert!(parse_bytes::<u32>("4G").is_err());
    }
}
