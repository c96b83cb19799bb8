//! The targets, read from bench/targets.toml.

use serde::Deserialize;
use squeezy_node::parse_toml;
use std::sync::LazyLock;

/// Every target, in the order of the file.
pub(crate) static TARGETS: LazyLock<Vec<Target>> = LazyLock::new(|| {
    // The file is compiled in, and a test parses it.
    parse(include_str!("../../targets.toml")).unwrap_or_else(|e| panic!("bench/targets.toml: {e}"))
});

/// A performance target.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Entry")]
pub(crate) struct Target {
    pub(crate) shown_by: ShownBy,
    /// What is measured.
    pub(crate) what: String,
    pub(crate) limit: Limit,
    pub(crate) unit: Unit,
}

/// What shows whether a target is reached.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ShownBy {
    /// The name of an experiment, and its name for the target.
    Experiment(String, String),
    /// Something else, in Markdown, and what runs that and fails if the target is missed, if anything.
    Other(String, Option<String>),
}

/// The limit that a number is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
    /// Exactly this.
    Exactly(f64),
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unit {
    /// A plain count.
    #[default]
    Count,
    /// A ratio.
    Times,
    Percent,
    Milliseconds,
    Nanoseconds,
    Minutes,
    Mebibytes,
}

/// A target as it appears in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    experiment: Option<String>,
    name: Option<String>,
    shown_by: Option<String>,
    held_by: Option<String>,
    what: String,
    at_most: Option<f64>,
    at_least: Option<f64>,
    exactly: Option<f64>,
    #[serde(default)]
    unit: Unit,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetFile {
    target: Vec<Target>,
}

fn parse(text: &str) -> Result<Vec<Target>, String> {
    parse_toml::<TargetFile>(text).map(|file| file.target).map_err(|error| error.to_string())
}

impl TryFrom<Entry> for Target {
    type Error = String;

    fn try_from(entry: Entry) -> Result<Self, String> {
        let Entry { experiment, name, shown_by, held_by, what, at_most, at_least, exactly, unit } =
            entry;
        let shown_by = match (experiment, name, shown_by) {
            (Some(experiment), Some(name), None) if held_by.is_none() => {
                ShownBy::Experiment(experiment, name)
            }
            (None, _, Some(other)) => ShownBy::Other(other, held_by),
            _ => return Err(format!("`{what}` needs an experiment and a name, or shown_by")),
        };
        let limit = match (at_most, at_least, exactly) {
            (Some(limit), None, None) => Limit::AtMost(limit),
            (None, Some(limit), None) => Limit::AtLeast(limit),
            (None, None, Some(limit)) => Limit::Exactly(limit),
            _ => return Err(format!("`{what}` needs one of at_most, at_least and exactly")),
        };
        Ok(Self { shown_by, what, limit, unit })
    }
}

impl Target {
    /// The target of an experiment with this name.
    pub(crate) fn find(experiment: &str, name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| match &target.shown_by {
            ShownBy::Experiment(of, named) => of == experiment && named == name,
            ShownBy::Other(..) => false,
        })
    }
}

#[cfg(test)]
impl Target {
    /// The experiment that shows it, if any.
    pub(crate) fn experiment(&self) -> Option<&str> {
        match &self.shown_by {
            ShownBy::Experiment(experiment, _) => Some(experiment),
            ShownBy::Other(..) => None,
        }
    }
}

impl Limit {
    /// Whether a value satisfies the limit.
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
            Self::Exactly(limit) => value == limit,
        }
    }

    /// The limit, and the words before it including a space.
    pub(crate) fn in_words(self) -> (&'static str, f64) {
        match self {
            Self::AtMost(limit) => ("at most ", limit),
            Self::AtLeast(limit) => ("at least ", limit),
            Self::Exactly(limit) => ("", limit),
        }
    }
}

impl Unit {
    /// What follows a number in a verdict, including a space if necessary.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Times => "x",
            Self::Percent => "%",
            Self::Milliseconds => " ms",
            Self::Nanoseconds => " ns",
            Self::Minutes => " min",
            Self::Mebibytes => " MiB",
        }
    }

    /// What follows a number in prose.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::Times => " times",
            Self::Minutes => " minutes",
            other => other.suffix(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_says_what_it_is_and_what_shows_it() {
        let good = "[[target]]\nexperiment = \"plug\"\nname = \"again\"\nwhat = \"plug\"\n\
            at_most = 5\nunit = \"milliseconds\"\n";
        let expected = Target {
            shown_by: ShownBy::Experiment("plug".to_owned(), "again".to_owned()),
            what: "plug".to_owned(),
            limit: Limit::AtMost(5.0),
            unit: Unit::Milliseconds,
        };
        assert_eq!(parse(good).unwrap(), [expected]);
        for (wrong, complaint) in [
            (good.replace("at_most = 5\n", ""), "needs one of at_most"),
            (good.replace("at_most = 5", "at_most = 5\nexactly = 0"), "needs one of at_most"),
            (good.replace("name = \"again\"\n", ""), "needs an experiment and a name"),
            (
                good.replace("unit", "held_by = \"make test\"\nunit"),
                "needs an experiment and a name",
            ),
            (good.replace("unit", "units"), "units"),
            (good.replace("milliseconds", "ms"), "ms"),
        ] {
            let error = parse(&wrong).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
    }

    #[test]
    fn a_target_has_one_name() {
        for target in TARGETS.iter() {
            if let ShownBy::Experiment(experiment, name) = &target.shown_by {
                assert_eq!(Target::find(experiment, name), Some(target), "{name} appears twice");
            }
        }
        assert_eq!(Target::find("plug", "nonsense"), None);
    }
}
