//! What the servers of VMs on a node say to `squeezy-requests`, and what it answers: a line of JSON each.
//!
//! The program keeps the memory requests of frozen pods at what they occupy. It alone has rights in the cluster.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Where the program is.
pub const SOCKET: &str = "/run/squeezy/requests/socket";
/// The longest line, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 4096;

/// A name in a cluster: lower-case letters, digits, hyphens and dots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectName(String);

impl ObjectName {
    const MAX_BYTES: usize = 253;

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ObjectName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_in_it = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let valid = text.len() <= Self::MAX_BYTES
            && text.bytes().all(|byte| is_in_it(byte) || byte == b'-' || byte == b'.')
            && text.bytes().next().is_some_and(is_in_it);
        valid.then(|| Self(text.to_owned())).ok_or_else(|| {
            format!("it is no name of Kubernetes: {:?}", text.chars().take(80).collect::<String>())
        })
    }
}

impl TryFrom<String> for ObjectName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ObjectName> for String {
    fn from(name: ObjectName) -> Self {
        name.0
    }
}

/// A pod in its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodName {
    /// Its namespace.
    pub namespace: ObjectName,
    /// Its name there.
    pub name: ObjectName,
    /// What tells it from others that had the name.
    pub uid: ObjectName,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace.as_str(), self.name.as_str())
    }
}

/// What a pod is to request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Which pod.
    pub pod: PodName,
    /// What it occupies, in bytes, if it is frozen. Otherwise it is to run, and to request its limit.
    pub occupied_bytes: Option<u64>,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {} ", self.pod)?;
        match self.occupied_bytes {
            Some(bytes) => write!(f, "is frozen and occupies {} MiB", bytes >> 20),
            None => write!(f, "is to run"),
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// It requests that, and if it is to run, its node has room for it; or it is not there any more, or about to end.
    Done,
    /// The cluster does not let it now.
    Refused {
        /// For people.
        why: String,
    },
    /// Nobody knows.
    Failed {
        /// For people.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kubernetes() {
        for name in ["web", "web-7d4b9c.example", "8f14e45f-ceea-467f-ab3d-1b2c3d4e5f60"] {
            assert_eq!(name.parse::<ObjectName>().unwrap().as_str(), name);
        }
        let long = "a".repeat(254);
        for name in ["", "a/../b", "..", "-a", "A", "a b", "a?b", "ä", "a%2f", long.as_str()] {
            assert!(name.parse::<ObjectName>().is_err(), "{name}");
            assert!(serde_json::from_value::<ObjectName>(name.into()).is_err(), "{name}");
        }
    }

    #[test]
    fn messages_are_as_they_were() {
        let text =
            r#"{"pod":{"namespace":"default","name":"web","uid":"1"},"occupied_bytes":1048576}"#;
        let request: Request = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        assert_eq!(request.to_string(), "pod default/web is frozen and occupies 1 MiB");
        let refused = Answer::Refused { why: "no".to_owned() };
        assert_eq!(serde_json::to_string(&refused).unwrap(), r#"{"refused":{"why":"no"}}"#);
        assert_eq!(serde_json::to_string(&Answer::Done).unwrap(), r#""done""#);
    }
}
