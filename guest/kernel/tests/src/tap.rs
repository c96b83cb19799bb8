//! Reads the TAP that the runner in the guest writes.

use std::fmt;

/// How one test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It failed.
    Failed,
    /// It could not run; the reason is among the notes.
    Skipped,
}

/// One test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The program it belongs to.
    pub program: String,
    /// Its name.
    pub name: String,
    /// How it ended.
    pub verdict: Verdict,
    /// What it said.
    pub notes: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Passed => "ok     ",
            Verdict::Failed => "FAILED ",
            Verdict::Skipped => "skipped",
        };
        write!(f, "{verdict} {}: {}", self.program, self.name)?;
        self.notes.iter().try_for_each(|note| write!(f, "\n          {note}"))
    }
}

/// What has been read until now.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    pub(crate) outcomes: Vec<Outcome>,
    /// Whether the runner has said that all programs have ended.
    pub(crate) ended: bool,
    program: String,
    notes: Vec<String>,
}

impl Tap {
    /// Takes one line.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("# program ") {
            self.program(rest);
        } else if line.starts_with("# all programs ended") {
            self.ended = true;
        } else if let Some(rest) = line.strip_prefix("not ok ") {
            self.push(rest, Verdict::Failed);
        } else if let Some(rest) = line.strip_prefix("ok ") {
            let verdict = if rest.contains("# SKIP") { Verdict::Skipped } else { Verdict::Passed };
            self.push(rest, verdict);
        } else if let Some(reason) = line.strip_prefix("Bail out!") {
            self.notes.push(reason.trim().to_owned());
            self.push("0 - the whole program", Verdict::Failed);
        } else if !line.is_empty() && !line.starts_with("TAP version") && !line.starts_with("1..") {
            self.notes.push(line.trim_start_matches("# ").to_owned());
        }
    }

    /// `NAME` at the start of a program, `NAME ended with CODE` at its end.
    fn program(&mut self, rest: &str) {
        match rest.split_once(" ended with ") {
            // 0: passed, 4: skipped, 1: a test has failed, which is known already.
            Some((_, "0" | "1" | "4")) => {}
            Some((_, code)) => {
                self.notes.push(format!("it ended with {code}"));
                self.push("0 - the whole program", Verdict::Failed);
            }
            None => self.program = rest.to_owned(),
        }
    }

    /// `NUMBER - NAME # comment`
    fn push(&mut self, rest: &str, verdict: Verdict) {
        let name = rest.split_once(" - ").map_or(rest, |(_, name)| name);
        let name = name.split(" #").next().unwrap_or(name).to_owned();
        let notes = std::mem::take(&mut self.notes);
        self.outcomes.push(Outcome { program: self.program.clone(), name, verdict, notes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_belong_to_the_test_after_them() {
        let mut tap = Tap::default();
        for line in [
            "# program assign",
            "TAP version 13",
            "1..3",
            "ok 1 - a # time=3ms",
            "# SKIP there is no b",
            "ok 2 - b # SKIP see above # time=1ms",
            "# c.c:3: x == y: 1, 2",
            "not ok 3 - c # time=9ms",
            "# program assign ended with 1",
            "# program race",
            "# program race ended with 139",
            "# all programs ended: failed",
        ] {
            tap.line(line);
        }
        let verdicts: Vec<_> =
            tap.outcomes.iter().map(|o| (o.name.as_str(), o.verdict.clone())).collect();
        assert_eq!(
            verdicts,
            [
                ("a", Verdict::Passed),
                ("b", Verdict::Skipped),
                ("c", Verdict::Failed),
                ("the whole program", Verdict::Failed)
            ]
        );
        assert_eq!(tap.outcomes[2].notes, ["c.c:3: x == y: 1, 2"]);
        assert_eq!(tap.outcomes[3].program, "race");
        assert!(tap.ended);
    }
}
