//! Files without which the daemon does not start, once they are there or the configuration names them: the operator's
//! key, the certificate, and what requests to a collector need.

use super::finding::Finding;
use crate::serve::{Config, KEY, Key, OTHER_STATE, check_collector};
use std::path::Path;

/// What is to be done about a certificate that cannot be used.
const OTHER_CERTIFICATE: &str =
    "have `tls_certificate` and `tls_key` name a pair in PEM that the daemon's user may read";

/// Looks at those that a daemon with this configuration would read.
pub fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = vec![key(&config.state_directory)];
    findings.extend(config.tls.clone().map(|files| {
        let (subject, shown) = ("certificate", files.certificate.display().to_string());
        match files.load() {
            Ok(_) => Finding::good(subject, shown),
            Err(error) => Finding::wrong(subject, error.to_string(), OTHER_CERTIFICATE),
        }
    }));
    findings.extend(config.collector.as_ref().map(|collector| {
        let checked = check_collector(collector);
        let found = format!("traces and metrics are sent to {}", collector.endpoint);
        Finding::of("collector", checked.map(|()| found))
    }));
    findings
}

fn key(state_directory: &Path) -> Finding {
    let (subject, path) = ("key", state_directory.join(KEY));
    let shown = path.display();
    match Key::read(&path) {
        Ok(Some(_)) => Finding::good(subject, shown.to_string()),
        Ok(None) => Finding::good(subject, format!("{shown} will be made")),
        Err(error) => {
            let found = format!("{shown}: {error}");
            // The way out is missing only where the error is the system's.
            match error.raw_os_error() {
                Some(_) => Finding::wrong(subject, found, OTHER_STATE),
                None => Finding::of(subject, Err(found)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict::{Good, Wrong};
    use super::*;
    use crate::serve::make_certificate;
    use std::{fs, os::unix::fs::PermissionsExt};

    /// What is found about a subject with this configuration, if anything, for a daemon whose state is in this
    /// directory, too.
    fn found(directory: &Path, configuration: &str, subject: &str) -> Option<Finding> {
        let text = format!("state_directory = \".\"\n{configuration}");
        let config = Config::parse(&text, directory).unwrap();
        examine(&config).into_iter().find(|finding| finding.subject == subject)
    }

    /// Checks that something is wrong, and that this is said, in one line each of what is found and of the way out.
    #[track_caller]
    fn is_wrong(finding: Option<Finding>, part: &str) {
        let Finding { verdict, found, remedy, .. } = finding.unwrap();
        let said = [found, remedy.unwrap_or_default()];
        assert_eq!(verdict, Wrong, "{said:?}");
        assert!(said.iter().any(|line| line.contains(part)), "{said:?}");
        assert!(said.iter().all(|line| line.lines().count() <= 1), "{said:?}");
    }

    #[test]
    fn a_key_that_the_daemon_would_refuse_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let path = directory.join(KEY);
        let found = || found(directory, "", "key");
        assert_eq!(found().unwrap().verdict, Good);
        assert!(!path.exists());
        fs::write(&path, "name:0123456789abcdef\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(found().unwrap().verdict, Good);
        fs::write(&path, "short").unwrap();
        is_wrong(found(), "delete it to get a new one");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        is_wrong(found(), "run `chmod 600 ");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        is_wrong(found(), "`state_directory`");
    }

    #[test]
    fn a_certificate_that_cannot_be_used_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        assert_eq!(found(directory, "", "certificate"), None);
        let with = |certificate: &str, key: &str| {
            let text = format!("tls_certificate = \"{certificate}.pem\"\ntls_key = \"{key}.key\"");
            found(directory, &text, "certificate")
        };
        is_wrong(with("own", "own"), "`tls_certificate` and `tls_key`");
        make_certificate(directory, "own");
        assert_eq!(with("own", "own").unwrap().verdict, Good);
        make_certificate(directory, "other");
        is_wrong(with("own", "other"), "other.key cannot be used together");
        fs::write(directory.join("own.pem"), "no PEM").unwrap();
        is_wrong(with("own", "own"), "no certificate in PEM");
    }

    #[test]
    fn headers_that_a_collector_cannot_get_are_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        assert_eq!(found(directory, "", "collector"), None);
        let endpoint = "otlp_endpoint = \"http://127.0.0.1:4318\"";
        assert_eq!(found(directory, endpoint, "collector").unwrap().verdict, Good);
        let text = format!("{endpoint}\notlp_headers_file = \"headers\"");
        let found = || found(directory, &text, "collector");
        is_wrong(found(), "name another `otlp_headers_file`");
        fs::write(directory.join("headers"), "secret").unwrap();
        assert!(!found().unwrap().found.contains("secret"));
        is_wrong(found(), "line 1: must be NAME: VALUE");
        fs::write(directory.join("headers"), "Authorization: Bearer t").unwrap();
        assert_eq!(found().unwrap().verdict, Good);
    }
}
