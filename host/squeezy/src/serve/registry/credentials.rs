//! Credentials for registries, in the form of containers-auth.json(5).

use super::{PullError, Reference};
use crate::serve::{config::Config, log::log_warning};
use serde_json::{Map, Value};
use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

/// Name of the file in the state directory.
const IN_STATE: &str = "registry-auth.json";

/// The maximum size of the file, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// Its tables with credentials.
const TABLES: [&str; 2] = ["auths", "credHelpers"];

/// The names under which credentials for Docker's registry are kept.
const DOCKER: [&str; 4] =
    ["docker.io", "index.docker.io", "registry-1.docker.io", "https://index.docker.io/v1/"];

/// Whether the operator's credentials, if there are any, can be used. An error says why not, in one sentence.
pub fn check(config: &Config) -> Result<(), String> {
    read(config.registry_auth.as_deref(), &config.state_directory).map(drop)
}

/// The part of the operator's file that is about the reference's registry, so that only that registry's credentials are
/// ever shown to what talks to it; `None` if there is nothing. The file is the one that is given, or that in the state
/// directory.
pub fn find(
    given: Option<&Path>,
    state: &Path,
    reference: &Reference,
) -> Result<Option<String>, PullError> {
    let whole = read(given, state).map_err(|problem| {
        log_warning(&problem);
        PullError::Internal(
            "the daemon's credentials for registries cannot be used; its log says why".to_owned(),
        )
    })?;
    let mut part = Map::new();
    for table in TABLES {
        let entries = whole.get(table).and_then(Value::as_object).into_iter().flatten();
        let entries = entries.filter(|(name, _)| is_for(name, reference));
        let entries: Map<_, _> =
            entries.map(|(name, value)| (name.clone(), value.clone())).collect();
        if !entries.is_empty() {
            part.insert(table.to_owned(), entries.into());
        }
    }
    Ok((!part.is_empty()).then(|| Value::Object(part).to_string()))
}

/// What is in the file. That in the state directory need not be there.
fn read(given: Option<&Path>, state: &Path) -> Result<Map<String, Value>, String> {
    let file = given.map_or_else(|| state.join(IN_STATE), Path::to_owned);
    let failed = |problem: String| format!("{}: {problem}", file.display());
    let metadata = match fs::metadata(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && given.is_none() => {
            return Ok(Map::new());
        }
        metadata => metadata.map_err(|error| failed(error.to_string()))?,
    };
    if metadata.mode() & 0o077 != 0 {
        return Err(failed("others can read it: chmod 600".to_owned()));
    }
    if metadata.len() > MOST_BYTES {
        return Err(failed(format!("it is larger than {} MiB", MOST_BYTES >> 20)));
    }
    let text = fs::read(&file).map_err(|error| failed(error.to_string()))?;
    // What is wrong with it is not quoted: it may be a password.
    let wrong = |at: usize| failed(format!("line {at}: not in the form of containers-auth.json"));
    let whole: Map<String, Value> =
        serde_json::from_slice(&text).map_err(|error| wrong(error.line()))?;
    let has_tables = TABLES.iter().filter_map(|table| whole.get(*table)).all(Value::is_object);
    if has_tables { Ok(whole) } else { Err(wrong(1)) }
}

/// Whether an entry is for the reference's registry, or a folder there that it is in.
fn is_for(entry: &str, reference: &Reference) -> bool {
    let repository = reference.repository();
    let within =
        repository.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    within || (reference.registry == DOCKER[0] && DOCKER.contains(&entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn written(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn a_registry_is_shown_its_own_credentials_only() {
        let file = written(
            r#"{ "auths": { "r.example": { "auth": "one" }, "r.example/team": { "auth": "two" },
                 "r.example/tea": { "auth": "three" }, "other.example": { "auth": "four" },
                 "https://index.docker.io/v1/": { "auth": "five" } },
                 "credHelpers": { "r.example": "helper" }, "credsStore": "all" }"#,
            0o600,
        );
        let found = |text: &str| {
            let reference = Reference::parse(text).unwrap();
            find(Some(file.path()), Path::new("/nowhere"), &reference).unwrap().unwrap_or_default()
        };
        let team = found("r.example/team/thing");
        assert!(team.contains("one") && team.contains("two") && team.contains("helper"), "{team}");
        assert!(
            !["three", "four", "five", "all"].iter().any(|other| team.contains(other)),
            "{team}"
        );
        assert!(found("alpine:3").contains("five"));
        assert_eq!(found("third.example/a"), "");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_an_error_that_tells_nothing() {
        let (reference, state) = (Reference::parse("r.example/a").unwrap(), Path::new("/nowhere"));
        let secret = written("{ \"auths\": { \"r.example\": \"secret", 0o600);
        let list = written("{ \"auths\": [\"secret\"] }", 0o600);
        let open = written("{}", 0o644);
        for file in [secret.path(), list.path(), open.path(), Path::new("/nowhere/auth.json")] {
            let error = find(Some(file), state, &reference).unwrap_err().to_string();
            assert!(
                error.contains("log") && !error.contains("secret") && !error.contains('/'),
                "{error}"
            );
            // That is for the log, and for the operator.
            let problem = read(Some(file), state).unwrap_err();
            assert!(problem.starts_with(&format!("{}: ", file.display())), "{problem}");
            assert!(!problem.contains("secret") && problem.lines().count() == 1, "{problem}");
        }
        assert_eq!(find(None, state, &reference).unwrap(), None);
    }
}
