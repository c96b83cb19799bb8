//! Assesses measurements against targets.

use super::{
    Estimate,
    estimate::Certainty,
    number::number,
    target::{Limit, Target},
};
use std::fmt;

/// A target and the measurements for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Assessment {
    pub(crate) target: &'static Target,
    /// Which of the things that the target covers was measured.
    pub(crate) what: String,
    /// The result.
    pub(crate) measured: Estimate,
}

/// Whether measurements reach a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// The target is reached.
    Met,
    /// The measurements do not tell.
    Unclear,
    /// The target is not reached.
    Missed,
}

impl Verdict {
    pub(crate) const ALL: [Self; 3] = [Self::Met, Self::Unclear, Self::Missed];
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Met => "met",
            Self::Unclear => "unclear",
            Self::Missed => "MISSED",
        })
    }
}

/// The assessments of an experiment's targets.
pub(crate) struct Assessments {
    experiment: &'static str,
    assessed: Vec<Assessment>,
}

impl Assessments {
    /// No assessments yet.
    pub(crate) fn of(experiment: &'static str) -> Self {
        Self { experiment, assessed: Vec::new() }
    }

    /// Adds a measurement for the target with this name, if there is one.
    ///
    /// # Panics
    /// If bench/targets.toml has no such target for the experiment. Tests assess all recorded
    /// lines.
    pub(crate) fn add(
        &mut self,
        target: &str,
        what: impl Into<String>,
        measured: Option<Estimate>,
    ) {
        let target = self.target(target);
        let what = what.into();
        self.assessed.extend(measured.map(|measured| Assessment { target, what, measured }));
    }

    /// Adds a count for a target that requires an exact number.
    ///
    /// # Panics
    /// See [`Assessments::add`].
    pub(crate) fn add_counts(
        &mut self,
        target: &str,
        what: impl Into<String>,
        counts: impl IntoIterator<Item = u64>,
    ) {
        let (_, expected) = self.target(target).limit.in_words();
        let counts = counts.into_iter().map(|count| count as f64);
        self.add(target, what, Estimate::counted(counts, expected));
    }

    /// All assessments.
    pub(crate) fn into_vec(self) -> Vec<Assessment> {
        self.assessed
    }

    fn target(&self, name: &str) -> &'static Target {
        let experiment = self.experiment;
        Target::find(experiment, name)
            .unwrap_or_else(|| panic!("bench/targets.toml has no `{name}` of `{experiment}`"))
    }
}

impl Assessment {
    /// Whether the target is reached, judged by the whole interval, never by the point estimate
    /// alone.
    pub(crate) fn verdict(&self) -> Verdict {
        let limit = self.target.limit;
        let judged = |value| if limit.holds(value) { Verdict::Met } else { Verdict::Missed };
        match (self.measured.certainty, limit) {
            (Certainty::TooFew(_), _) => Verdict::Unclear,
            (Certainty::Counted(_), _) => judged(self.measured.value),
            (Certainty::Within(low, high), Limit::Exactly(limit))
                if low < limit && limit < high =>
            {
                Verdict::Unclear
            }
            (Certainty::Within(low, high), _) if judged(low) == judged(high) => judged(low),
            (Certainty::Within(..), _) => Verdict::Unclear,
        }
    }
}

impl fmt::Display for Assessment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, limit) = self.target.limit.in_words();
        let unit = self.target.unit.suffix();
        let certainty = self.measured.certainty.in_words(unit);
        let measured = number(self.measured.value);
        write!(
            f,
            "{:7} {}: {measured}{unit} ({certainty}; target: {word}{limit}{unit})",
            self.verdict(),
            self.what
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::target::{ShownBy, Unit},
        *,
    };

    fn assessment(value: f64, certainty: Certainty, limit: Limit) -> Assessment {
        let target = Target {
            shown_by: ShownBy::Other("somebody".to_owned(), None),
            what: "speed".to_owned(),
            limit,
            unit: Unit::Times,
        };
        let measured = Estimate { value, certainty };
        Assessment { target: Box::leak(Box::new(target)), what: "speed".to_owned(), measured }
    }

    #[test]
    fn a_verdict_is_by_the_whole_interval() {
        use Certainty::Within;
        use Limit::{AtLeast, AtMost, Exactly};
        use Verdict::{Met, Missed, Unclear};
        for (low, high, limit, verdict) in [
            (310.0, 350.0, AtLeast(300.0), Met),
            (266.0, 476.0, AtLeast(300.0), Unclear),
            (250.0, 299.0, AtLeast(300.0), Missed),
            (300.0, 300.0, AtMost(300.0), Met),
            (299.0, 301.0, AtMost(300.0), Unclear),
            (301.0, 302.0, AtMost(300.0), Missed),
            (1.0, 1.0, Exactly(1.0), Met),
            (0.0, 2.0, Exactly(1.0), Unclear),
            (1.0, 2.0, Exactly(1.0), Unclear),
            (2.0, 3.0, Exactly(1.0), Missed),
        ] {
            let assessment = assessment(334.0, Within(low, high), limit);
            assert_eq!(assessment.verdict(), verdict, "{assessment}");
        }
    }

    #[test]
    fn a_verdict_says_what_it_is_made_from() {
        let limit = Limit::AtLeast(300.0);
        for (certainty, limit, text) in [
            (
                Certainty::Within(266.0, 476.2),
                limit,
                "unclear speed: 321x (90%: 266 to 476x; target: at least 300x)",
            ),
            (Certainty::TooFew(1), limit, "unclear speed: 321x (one run; target: at least 300x)"),
            (
                Certainty::TooFew(3),
                limit,
                "unclear speed: 321x (only 3 runs; target: at least 300x)",
            ),
            (
                Certainty::Counted(7),
                Limit::Exactly(0.0),
                "MISSED  speed: 321x (counted 7 times; target: 0x)",
            ),
        ] {
            assert_eq!(assessment(321.4, certainty, limit).to_string(), text);
        }
    }
}
