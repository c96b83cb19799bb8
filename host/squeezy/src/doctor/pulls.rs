//! Whether images can be pulled from registries. Whatever has been pulled or built runs also if not.

use super::finding::Finding;
use crate::serve::{Config, NEEDS_OF_PULLS, check_credentials, probe_pulls};

const SUBJECT: &str = "images from registries";

/// Looks at the operator's credentials, and tries the sandbox in which they would be pulled, if there is a registry to
/// pull from.
pub async fn examine(config: &Config) -> Finding {
    if config.registries.is_empty() {
        return Finding::good(SUBJECT, "none, for `registries` lists none");
    }
    match check_credentials(config) {
        Ok(()) => found(probe_pulls().await),
        Err(problem) => cannot_be_pulled(
            &problem,
            "mend it, readable by the daemon's user alone, or name another file in `registry_auth`",
        ),
    }
}

fn cannot_be_pulled(problem: &str, remedy: impl Into<String>) -> Finding {
    Finding::slow(SUBJECT, format!("cannot be pulled: {problem}"), remedy)
}

fn found(probed: Result<(), String>) -> Finding {
    match probed {
        Ok(()) => Finding::good(SUBJECT, "can be pulled"),
        Err(problem) => cannot_be_pulled(
            &problem,
            format!("install {NEEDS_OF_PULLS}, and let users make namespaces"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict::{Good, Slow};
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};

    #[tokio::test]
    async fn what_a_pull_needs_is_looked_for_if_there_may_be_one() {
        let config = |text| Config::parse(text, Path::new("/")).unwrap();
        let none = examine(&config("")).await;
        assert!(none.verdict == Good && none.found.starts_with("none"), "{none:?}");
        let listed = examine(&config("registries = [\"registry.example\"]")).await;
        assert_eq!((listed.verdict, &*listed.found), (Good, "can be pulled"), "{listed:?}");
        assert_eq!(found(Err("missing: umoci".to_owned())).verdict, Slow);
    }

    #[tokio::test]
    async fn credentials_that_no_pull_can_use_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let examined = async |text: &str| {
            let text = format!("registry_auth = \"auth.json\"\n{text}");
            examine(&Config::parse(&text, directory.path()).unwrap()).await
        };
        let registries = "registries = [\"registry.example\"]";
        assert_eq!(examined("").await.verdict, Good);
        let missing = examined(registries).await;
        assert!(missing.found.contains("auth.json: No such file"), "{missing:?}");
        let file = directory.path().join("auth.json");
        fs::write(&file, "{}").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let open = examined(registries).await;
        assert!(open.verdict == Slow && open.found.ends_with("chmod 600"), "{open:?}");
        assert!(open.remedy.unwrap().contains("`registry_auth`"));
    }
}
