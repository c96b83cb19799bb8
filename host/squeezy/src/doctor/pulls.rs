//! Whether images can be pulled from registries.

use super::finding::Finding;
use crate::serve::{Config, NEEDS_OF_PULLS, probe_pulls};

const SUBJECT: &str = "images from registries";

/// Tries the sandbox in which they would be pulled, if there is a registry to pull from.
pub async fn examine(config: &Config) -> Finding {
    if config.registries.is_empty() {
        return Finding::good(SUBJECT, "none, for `registries` lists none");
    }
    found(probe_pulls().await)
}

fn found(probed: Result<(), String>) -> Finding {
    match probed {
        Ok(()) => Finding::good(SUBJECT, "can be pulled"),
        // Whatever has been pulled or built still runs.
        Err(problem) => Finding::slow(
            SUBJECT,
            format!("cannot be pulled: {problem}"),
            format!("install {NEEDS_OF_PULLS}, and let users make namespaces"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict::{Good, Slow};
    use super::*;
    use std::path::Path;

    #[tokio::test]
    async fn what_a_pull_needs_is_looked_for_if_there_may_be_one() {
        let config = |text| Config::parse(text, Path::new("/")).unwrap();
        let none = examine(&config("")).await;
        assert!(none.verdict == Good && none.found.starts_with("none"), "{none:?}");
        let listed = examine(&config("registries = [\"registry.example\"]")).await;
        assert_eq!((listed.verdict, &*listed.found), (Good, "can be pulled"), "{listed:?}");
        assert_eq!(found(Err("missing: umoci".to_owned())).verdict, Slow);
    }
}
