//! Names that containerd gives: of namespaces, pods and containers.

use crate::error::Error;
use std::{fmt, str::FromStr};

/// An identifier in containerd's sense: 1 to 76 of letters, digits, `.`, `_` and `-`, beginning and ending with a
/// letter or digit. It is safe as the name of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(String);

impl Id {
    const MAX_BYTES: usize = 76;

    /// The identifier as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What containerd calls a process by: a task, whose first process it is, or one that was added to that task.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// The task.
    pub task: Id,
    /// Which of the processes that were added to it.
    pub added: Option<Id>,
}

impl From<Id> for Name {
    fn from(task: Id) -> Self {
        Self { task, added: None }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.added {
            Some(added) => write!(f, "{}/{added}", self.task),
            None => self.task.fmt(f),
        }
    }
}

impl FromStr for Id {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let alphanumeric = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        let valid = text.len() <= Self::MAX_BYTES
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
            && alphanumeric(text.bytes().next())
            && alphanumeric(text.bytes().last());
        if valid {
            return Ok(Self(text.to_owned()));
        }
        let shown: String =
            text.chars().take(Self::MAX_BYTES).flat_map(char::escape_default).collect();
        Err(Error::invalid(format_args!(
            "\"{shown}\" is no identifier: it has 1 to {} letters, digits, '.', '_' and '-', and begins and ends with \
             a letter or digit",
            Self::MAX_BYTES
        )))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_of_containerd_are_accepted() {
        let pod = "5f".repeat(32);
        for text in ["k8s.io", "a", "default", "my_pod-1.2", &pod, &"x".repeat(76)] {
            assert_eq!(text.parse::<Id>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn what_could_leave_a_directory_or_a_line_is_refused() {
        let long = "x".repeat(77);
        for text in ["", ".", "..", "../a", "a/b", "-a", "a-", "a\n", "ä", "a b", "a\0", &long] {
            let error = text.parse::<Id>().unwrap_err().to_string();
            assert!(error.contains("is no identifier") && !error.contains('\n'), "{error}");
        }
    }
}
