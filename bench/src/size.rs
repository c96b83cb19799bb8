//! Sizes on the command line and in tables.

use squeezy_node::function::MIN_MEMORY_BYTES;

/// Parses a size such as `512M`, in bytes.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.ok_or_else(|| format!("`{text}` is not a size: give bytes, or a number with K, M or G"))
}

/// Parses the size of an instance: a multiple of 4 MiB within limits.
pub(crate) fn parse_instance(text: &str) -> Result<u64, String> {
    let bytes = parse(text)?;
    if !(MIN_MEMORY_BYTES..=64 << 30).contains(&bytes) {
        return Err(format!("an instance of `{text}` is not possible: choose 32M to 64G"));
    }
    if bytes % (4 << 20) != 0 {
        return Err(format!("an instance of `{text}` is not a multiple of 4 MiB"));
    }
    Ok(bytes)
}

/// Formats a size as `512 MiB` or `1.5 GiB`.
pub(crate) fn show(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ => format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
    }
}

/// Converts to GiB, for tables and plots.
pub(crate) fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Converts to MiB, for tables and plots.
pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_nonsense() {
        assert_eq!(parse("512M"), Ok(512 << 20));
        assert_eq!(parse("2g"), Ok(2 << 30));
        for bad in ["", "M", "-1", "1.5G", "99999999999G", "1T", "1 G"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_instance_must_be_measurable() {
        assert_eq!(parse_instance("128M"), Ok(128 << 20));
        for bad in ["0", "1M", "129M1", "130000K", "65G"] {
            assert!(parse_instance(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit() {
        assert_eq!(show(512 << 20), "512 MiB");
        assert_eq!(show(1 << 30), "1 GiB");
        assert_eq!(show(3 << 29), "1.5 GiB");
        assert_eq!(show(4096), "4 KiB");
    }
}
