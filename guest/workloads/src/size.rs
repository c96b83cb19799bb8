//! Sizes on a command line: a number of bytes with an optional K, M or G.

/// Reads `512M` and the like as bytes.
pub fn parse(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("'{text}' is not a size: give bytes, or a number with K, M or G"))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn units_and_nonsense() {
        assert_eq!(parse("512M"), Ok(512 << 20));
        assert_eq!(parse("4096"), Ok(4096));
        for bad in ["", "0", "M", "-1", "1.5G", "99999999999G", "1T"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
