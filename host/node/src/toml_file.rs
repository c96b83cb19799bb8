//! TOML files, and errors with line numbers.

use serde::de::DeserializeOwned;

/// What is wrong with a TOML file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TomlError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: String,
}

impl TomlError {
    /// An error at this byte of `text`.
    pub fn at(text: &str, byte: usize, problem: String) -> Self {
        let before = &text.as_bytes()[..byte.min(text.len())];
        Self { line: 1 + before.iter().filter(|byte| **byte == b'\n').count(), problem }
    }
}

/// Parses a TOML file. An error is one line.
pub fn parse_toml<T: DeserializeOwned>(text: &str) -> Result<T, TomlError> {
    toml::from_str(text).map_err(|error| {
        let problem = error.message().lines().collect::<Vec<_>>().join(" ");
        TomlError::at(text, error.span().map_or(0, |span| span.start), problem)
    })
}
