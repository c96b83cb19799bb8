//! The code of actions: what the host takes from clients and passes on to runtimes.

use base64::{
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// Longest code in a request of a client, in bytes, as a text or in base64: as in OpenWhisk.
pub const MAX_CODE_BYTES: usize = 48 << 20;

/// Longest code in a request to an instance, in the same bytes. What is longer is on a drive.
pub const MAX_SENT_CODE_BYTES: usize = 16 << 20;

/// Where the files of code are that is on a drive, in that and in the root of an instance.
pub const CODE_DIRECTORY: &str = "/action";

/// Base64 whose padding may be left out.
pub const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Whether code begins as a zip archive does.
pub fn is_archive(begins: &[u8]) -> bool {
    begins.starts_with(b"PK\x03\x04") || begins.starts_with(b"PK\x05\x06")
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;

    #[test]
    fn padding_may_be_left_out() {
        for text in ["UEsDBA==", "UEsDBA"] {
            assert!(is_archive(&BASE64.decode(text).unwrap()), "{text}");
        }
        assert!(BASE64.decode("UEsD*").is_err() && !is_archive(b"PK"));
    }
}
