//! The operator's key, in the form OpenWhisk's clients send it.

use super::state::write_whole;
use base64::{Engine, prelude::BASE64_STANDARD};
use rustix::rand::{GetRandomFlags, getrandom};
use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

/// Lengths of the name and of the secret.
const NAME_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;

/// The maximum length of a key, encoded, in bytes.
const MOST_BYTES: usize = 4096;

/// `name:secret`, credentials for HTTP basic authentication.
#[derive(Clone)]
pub struct Key(String);

impl Key {
    /// Reads the key from the file; `None` if there is no file. What is wrong with it is said with the way out.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
            let problem = format!(
                "users other than its owner can read or change the key: run `chmod 600 {}`; if they may have read it, delete it to get a new one",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
        }
        // What is no text is no key either.
        Self::parse(String::from_utf8(text).unwrap_or_default().trim()).map(Some)
    }

    /// Reads the key from the file. If there is none, creates one that only its owner can read.
    pub fn read_or_make(path: &Path) -> io::Result<Self> {
        if let Some(key) = Self::read(path)? {
            return Ok(key);
        }
        let key = format!("{}:{}", random(NAME_BYTES)?, random(SECRET_BYTES)?);
        write_whole(path, format!("{key}\n").as_bytes())?;
        Ok(Self(key))
    }

    fn parse(text: &str) -> io::Result<Self> {
        let valid = text.is_ascii()
            && text
                .split_once(':')
                .is_some_and(|(name, secret)| !name.is_empty() && secret.len() >= 16);
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(io::Error::other(
                "not NAME:SECRET, SECRET of 16 characters or more: delete it to get a new one",
            ))
        }
    }

    /// What a client with this `Authorization` header gives as its key, if it is not too long for one.
    pub fn given(header: &str) -> Option<Vec<u8>> {
        let encoded = header.strip_prefix("Basic ").filter(|encoded| encoded.len() <= MOST_BYTES);
        BASE64_STANDARD.decode(encoded?.trim()).ok()
    }

    /// Whether this is the key.
    pub fn admits(&self, given: &[u8]) -> bool {
        equal(given, self.0.as_bytes())
    }

    /// Whether both are the same key.
    pub fn is_same(&self, other: &Self) -> bool {
        self.admits(other.0.as_bytes())
    }
}

/// Compares in constant time.
pub fn equal(given: &[u8], right: &[u8]) -> bool {
    let different = given.iter().zip(right).fold(0, |different, (a, b)| different | (a ^ b));
    given.len() == right.len() && std::hint::black_box(different) == 0
}

/// `bytes` random bytes, as hexadecimal digits.
pub fn random(bytes: usize) -> io::Result<String> {
    let mut buffer = vec![0; bytes];
    let mut filled = 0;
    while filled < bytes {
        filled += getrandom(&mut buffer[filled..], GetRandomFlags::empty())?;
    }
    Ok(buffer.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(text: &str) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(text))
    }

    #[test]
    fn a_key_is_made_once_and_for_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        assert!(Key::read(&path).unwrap().is_none() && !path.exists());
        let made = Key::read_or_make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Key::read_or_make(&path).unwrap().0, made.0);
        for mode in [0o640, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let refused = Key::read_or_make(&path).err().unwrap().to_string();
            assert!(refused.contains(&format!("`chmod 600 {}`", path.display())), "{refused}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for wrong in [&b"short"[..], b"name:0123456789abcdef\xff"] {
            fs::write(&path, wrong).unwrap();
            let refused = Key::read_or_make(&path).err().unwrap().to_string();
            assert!(refused.contains("delete it to get a new one"), "{refused}");
        }
    }

    #[test]
    fn only_the_right_key_is_admitted() {
        let key = Key::parse("name:0123456789abcdef").unwrap();
        let admits = |header: &str| Key::given(header).is_some_and(|given| key.admits(&given));
        assert!(admits(&basic("name:0123456789abcdef")));
        for wrong in ["", "name:", "name:0123456789abcdee", "name:0123456789abcdef0", "\u{0}"] {
            assert!(!admits(&basic(wrong)), "{wrong}");
        }
        for wrong in ["", "Basic ???", "Bearer name:0123456789abcdef", &basic(&"x".repeat(4000))] {
            assert!(!admits(wrong), "{wrong}");
        }
    }
}
