//! A promised number against what was measured.

use std::fmt;

/// One line of the table of numbers to reach (SPECIFICATION.md).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    /// What is promised.
    pub(crate) what: String,
    /// What was measured.
    pub(crate) measured: f64,
    /// How far from it the truth may well be, either way; 0 where that does not matter.
    pub(crate) doubt: f64,
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

impl Bound {
    /// Whether the promise is kept.
    pub(crate) fn met(&self) -> bool {
        match self.limit {
            Limit::AtMost(limit) => self.measured <= limit,
            Limit::AtLeast(limit) => self.measured >= limit,
            Limit::Exactly(limit) => self.measured == limit,
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
        let unit = self.unit;
        let verdict = match self.limit {
            Limit::AtMost(limit) | Limit::AtLeast(limit)
                if (self.measured - limit).abs() < self.doubt =>
            {
                "unclear"
            }
            _ if self.met() => "met    ",
            _ => "MISSED ",
        };
        let doubt = if self.doubt > 0.0 {
            format!(" ± {}{unit}", number(self.doubt))
        } else {
            String::new()
        };
        write!(
            f,
            "{verdict} {}: {}{unit}{doubt} (promised: {word}{limit}{unit})",
            self.what,
            number(self.measured)
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

    #[test]
    fn a_verdict_says_both_numbers() {
        let mut bound = Bound {
            what: "speed".to_owned(),
            measured: 321.4,
            doubt: 0.0,
            limit: Limit::AtLeast(300.0),
            unit: "x",
        };
        assert_eq!(bound.to_string(), "met     speed: 321x (promised: at least 300x)");
        bound.measured = 299.9;
        assert!(bound.to_string().starts_with("MISSED"));
        bound.doubt = 2.0;
        assert!(bound.to_string().starts_with("unclear speed: 300x ± 2.00x"), "{bound}");
        bound.limit = Limit::AtMost(299.9);
        assert!(bound.met());
        bound.limit = Limit::Exactly(0.0);
        assert!(!bound.met());
    }
}
