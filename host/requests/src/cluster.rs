//! A cluster, as far as pods' requests go.

use crate::pod::Pod;
use serde_json::Value;
use squeezy_requests::PodName;
use std::time::Instant;

/// The longest reason that is passed on, in characters.
const MAX_REASON: usize = 300;

/// What knows pods, and changes what they request.
pub trait Cluster {
    /// A pod as it is.
    fn pod(&self, name: &PodName, until: Instant) -> Result<Pod, Problem>;
    /// Changes a pod's resources.
    fn resize(&self, name: &PodName, patch: &Value, until: Instant) -> Result<(), Denied>;
}

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The pod is not there any more.
    Gone,
    /// It is not allowed, for people.
    Refused(String),
    /// Nobody knows, for people.
    Failed(String),
}

/// What an API server answers instead of doing as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The status of HTTP, or 0 if there was no answer.
    pub status: u16,
    /// What it says.
    pub message: String,
}

impl Denied {
    /// Whose problem it is: a refusal if it was for something in the pod, as a 422 always is, or if `is_refusal` says so of
    /// the message.
    pub fn into_problem(self, is_refusal: impl Fn(&str) -> bool) -> Problem {
        let why = short(&self.message);
        match self.status {
            404 => Problem::Refused(
                "the cluster cannot change what a pod that runs requests: Kubernetes 1.33 and newer can".to_owned(),
            ),
            422 => Problem::Refused(why),
            400 | 403 if is_refusal(&self.message) => Problem::Refused(why),
            _ => Problem::Failed(why),
        }
    }
}

/// A reason on one line of bounded length.
pub fn short(reason: &str) -> String {
    reason.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_short_and_on_one_line() {
        assert_eq!(short("a\nb\u{1b}[31mc"), "ab[31mc");
        assert_eq!(short(&"ä".repeat(1000)).chars().count(), MAX_REASON);
    }
}
