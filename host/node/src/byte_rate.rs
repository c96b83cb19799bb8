//! Bytes per second, as files have them.

use crate::function::parse_size;
use serde::Deserialize;
use std::fmt;

/// The least that still opens a connection in each second, which counts as 96 KiB of the half that there is for these.
const MIN: u64 = 256 << 10;
/// More than any machine sends.
const MAX: u64 = 1 << 40;

/// Bytes in a second, such as `32M`: from 256K to 1T.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ByteRate(u64);

impl ByteRate {
    /// How many bytes.
    pub fn bytes_per_second(self) -> u64 {
        self.0
    }
}

impl TryFrom<String> for ByteRate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = parse_size(&text)?;
        match bytes {
            MIN..=MAX => Ok(Self(bytes)),
            _ => Err(format!("{text:?} bytes per second: must be from 256K to 1T")),
        }
    }
}

/// In KiB.
impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}K", self.0 >> 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_bounds() {
        let rate = |text: &str| ByteRate::try_from(text.to_owned());
        assert_eq!(rate("32M").unwrap().bytes_per_second(), 32 << 20);
        assert_eq!(rate("256K").unwrap().to_string(), "256K");
        assert_eq!(rate("1T").unwrap().bytes_per_second(), MAX);
        for text in ["0", "255K", "2T", "16777216T"] {
            let error = rate(text).unwrap_err();
            assert!(error.contains("from 256K to 1T") || error.contains("not a size"), "{error}");
        }
        assert!(rate("fast").unwrap_err().contains("is not a size such as"));
    }
}
