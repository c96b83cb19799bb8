//! The digest of an image.

use serde::{Deserialize, Deserializer, Serialize, de::Error};
use std::{
    fmt::{self, Display},
    str::FromStr,
};

/// Identifies an image by content, whatever its name: the SHA-256 of what it is made of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct Digest(String);

impl Digest {
    /// The digest with this SHA-256.
    pub fn of_sum(sum: [u8; 32]) -> Self {
        Self(sum.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The digest with these 64 hexadecimal digits.
    pub fn of_digits(digits: &str) -> Result<Self, NoDigest> {
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if digits.len() == 64 && digits.bytes().all(is_digit) {
            Ok(Self(digits.to_owned()))
        } else {
            Err(NoDigest)
        }
    }

    /// Its 64 hexadecimal digits.
    pub fn digits(&self) -> &str {
        &self.0
    }
}

/// The text is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a digest: expected sha256: and 64 hexadecimal digits")]
pub struct NoDigest;

impl Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl FromStr for Digest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        Self::of_digits(text.strip_prefix("sha256:").ok_or(NoDigest)?)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let text = format!("sha256:{}", "0f".repeat(32));
        let digest: Digest = text.parse().unwrap();
        assert_eq!(digest.to_string(), text);
        assert_eq!(Digest::of_sum([0x0f; 32]), digest);
        let upper = text.replace('f', "F");
        for wrong in ["", "sha256:", &text[7..], &text[..70], &upper, &format!("{text}0")] {
            assert_eq!(wrong.parse::<Digest>(), Err(NoDigest), "{wrong}");
        }
    }
}
