//! What the doctor finds, and how it says so.

use serde::Serialize;

/// What a finding means for the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// It works, but slower or with less than there could be.
    Slow,
    /// The daemon, or some of its functions, cannot work.
    Wrong,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Slow => "slow",
            Self::Wrong => "WRONG",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The thing, in a word or two.
    pub subject: String,
    /// What it means.
    pub verdict: Verdict,
    /// What was found, and its consequence.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    /// Something is as it should be.
    pub fn good(subject: &str, found: impl Into<String>) -> Self {
        let (subject, found) = (subject.to_owned(), found.into());
        Self { subject, verdict: Verdict::Good, found, remedy: None }
    }

    /// Something makes the daemon slow.
    pub fn slow(subject: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { verdict: Verdict::Slow, remedy, ..Self::good(subject, found) }
    }

    /// Something keeps the daemon from working.
    pub fn wrong(subject: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Wrong, ..Self::slow(subject, found, remedy) }
    }

    /// Good, or wrong with an error that says the way out by itself.
    pub fn of<E: std::fmt::Display>(subject: &str, result: Result<String, E>) -> Self {
        match result {
            Ok(found) => Self::good(subject, found),
            Err(error) => {
                let verdict = Verdict::Wrong;
                Self { verdict, ..Self::good(subject, error.to_string()) }
            }
        }
    }
}

/// The findings for people: a line each, one more for what to do, and a summary.
pub fn lines(findings: &[Finding]) -> Vec<String> {
    let width = findings.iter().map(|finding| finding.subject.chars().count()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for Finding { subject, verdict, found, remedy } in findings {
        lines.push(format!("{:5}  {subject:width$}  {found}", verdict.word()));
        lines.extend(remedy.iter().map(|remedy| format!("{:5}  {:width$}  -> {remedy}", "", "")));
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    lines.push(String::new());
    lines.push(match (count(Verdict::Wrong), count(Verdict::Slow)) {
        (0, 0) => "Everything is as it should be.".to_owned(),
        (0, 1) => {
            "`squeezy serve` works here; one of these makes it slower than it could be.".to_owned()
        }
        (0, slow) => {
            format!("`squeezy serve` works here; {slow} of these make it slower than it could be.")
        }
        (1, _) => "One of these has to be mended before everything works.".to_owned(),
        (wrong, _) => format!("{wrong} of these have to be mended before everything works."),
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_what_to_do_about_it() {
        let findings = [
            Finding::good("QEMU", "7.2.22"),
            Finding::slow("KVM", "there is none", "get one"),
            Finding::of("kernel", Err::<String, _>("missing: build it")),
        ];
        let text = lines(&findings).join("\n");
        assert_eq!(
            text,
            "good   QEMU    7.2.22\n\
             slow   KVM     there is none\n\
             \x20              -> get one\n\
             WRONG  kernel  missing: build it\n\n\
             One of these has to be mended before everything works."
        );
        assert!(lines(&findings[..2]).last().unwrap().contains("works here; one of these"));
        assert!(lines(&findings[..1]).last().unwrap().starts_with("Everything"));
    }
}
