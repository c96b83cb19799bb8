//! A promised number against what was measured.

use super::estimate::{CONFIDENCE_PERCENT, Certainty, Estimate};
use std::fmt;

/// One line of the table of numbers to reach (SPECIFICATION.md).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    /// What is promised.
    pub(crate) what: String,
    /// What was measured.
    pub(crate) measured: Estimate,
    /// The promise.
    pub(crate) limit: Limit,
    /// What follows the numbers, with its own space if it wants one: `x`, ` ms`.
    pub(crate) unit: &'static str,
}

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
    /// Exactly this.
    Exactly(f64),
}

/// What the measurements say of a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is kept.
    Met,
    /// They do not tell.
    Unclear,
    /// It is not kept.
    Missed,
}

impl Limit {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
            Self::Exactly(limit) => value == limit,
        }
    }
}

impl Bound {
    /// Whether the promise is kept, by the whole interval and never by its middle alone.
    pub(crate) fn verdict(&self) -> Verdict {
        let kept = |value| if self.limit.holds(value) { Verdict::Met } else { Verdict::Missed };
        match (self.measured.certainty, self.limit) {
            (Certainty::TooFew(_), _) => Verdict::Unclear,
            (Certainty::Counted(_), _) => kept(self.measured.value),
            (Certainty::Within(low, high), Limit::Exactly(limit))
                if low < limit && limit < high =>
            {
                Verdict::Unclear
            }
            (Certainty::Within(low, high), _) if kept(low) == kept(high) => kept(low),
            (Certainty::Within(..), _) => Verdict::Unclear,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, limit) = match self.limit {
            Limit::AtMost(limit) => ("at most ", limit),
            Limit::AtLeast(limit) => ("at least ", limit),
            Limit::Exactly(limit) => ("", limit),
        };
        let verdict = match self.verdict() {
            Verdict::Met => "met    ",
            Verdict::Unclear => "unclear",
            Verdict::Missed => "MISSED ",
        };
        let unit = self.unit;
        let certainty = match self.measured.certainty {
            Certainty::Within(low, high) => {
                format!("{CONFIDENCE_PERCENT}%: {} to {}{unit}", number(low), number(high))
            }
            Certainty::TooFew(1) => "one run".to_owned(),
            Certainty::TooFew(runs) => format!("only {runs} runs"),
            Certainty::Counted(1) => "counted once".to_owned(),
            Certainty::Counted(runs) => format!("counted {runs} times"),
        };
        let measured = number(self.measured.value);
        write!(
            f,
            "{verdict} {}: {measured}{unit} ({certainty}; promised: {word}{limit}{unit})",
            self.what
        )
    }
}

/// Three digits that count.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 1.0 => format!("{value:.3}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(value: f64, certainty: Certainty, limit: Limit) -> Bound {
        let measured = Estimate { value, certainty };
        Bound { what: "speed".to_owned(), measured, limit, unit: "x" }
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
            let bound = bound(334.0, Within(low, high), limit);
            assert_eq!(bound.verdict(), verdict, "{bound}");
        }
    }

    #[test]
    fn a_verdict_says_what_it_is_made_from() {
        let limit = Limit::AtLeast(300.0);
        for (certainty, limit, text) in [
            (
                Certainty::Within(266.0, 476.2),
                limit,
                "unclear speed: 321x (90%: 266 to 476x; promised: at least 300x)",
            ),
            (Certainty::TooFew(1), limit, "unclear speed: 321x (one run; promised: at least 300x)"),
            (
                Certainty::TooFew(3),
                limit,
                "unclear speed: 321x (only 3 runs; promised: at least 300x)",
            ),
            (
                Certainty::Counted(7),
                Limit::Exactly(0.0),
                "MISSED  speed: 321x (counted 7 times; promised: 0x)",
            ),
        ] {
            assert_eq!(bound(321.4, certainty, limit).to_string(), text);
        }
    }
}
