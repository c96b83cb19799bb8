//! What is logged, and the form of its line.

use humantime::format_rfc3339_millis;
use serde_json::{Map, Value};
use std::{fmt, str::FromStr, time::SystemTime};

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// It is as it should be.
    Info,
    /// Somebody should look at it.
    Warning,
}

/// The form of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// An object for each line, for programs.
    Json,
}

impl FromStr for Format {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("must be text or json"),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Something to be logged.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// When it happened.
    pub time: SystemTime,
    /// How much it matters.
    pub level: Level,
    /// What it is, in words that name everything they are about.
    pub message: String,
    /// The VM that it is about.
    pub vm: Option<u32>,
    /// The instance that it is about.
    pub instance: Option<u64>,
    /// The function that it is about.
    pub function: Option<String>,
}

impl Entry {
    /// Something that happens now.
    pub fn new(level: Level, message: String) -> Self {
        let time = SystemTime::now();
        Self { time, level, message, vm: None, instance: None, function: None }
    }

    /// Its line, without the end. A reader that records the time itself, which is the journal, gets the level in the
    /// form of sd-daemon(3) instead of the time.
    pub fn line(&self, format: Format, is_journal: bool) -> String {
        let is_warning = self.level == Level::Warning;
        // What has no priority is information.
        let priority = if is_journal && is_warning { "<4>" } else { "" };
        match format {
            Format::Json => format!("{priority}{}", self.json()),
            Format::Text if is_journal => format!("{priority}{}", self.message),
            Format::Text => {
                let level = if is_warning { "warning: " } else { "" };
                format!("{} {level}{}", format_rfc3339_millis(self.time), self.message)
            }
        }
    }

    fn json(&self) -> Value {
        let Self { time, level, message, vm, instance, function } = self;
        let level = match level {
            Level::Info => "info",
            Level::Warning => "warning",
        };
        let mut object = Map::new();
        object.insert("time".to_owned(), format_rfc3339_millis(*time).to_string().into());
        object.insert("level".to_owned(), level.into());
        object.insert("message".to_owned(), message.as_str().into());
        let about = [
            ("vm", vm.map(Value::from)),
            ("instance", instance.map(Value::from)),
            ("function", function.as_deref().map(Value::from)),
        ];
        for (key, value) in about {
            object.extend(value.map(|value| (key.to_owned(), value)));
        }
        Value::Object(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn at_noon(level: Level) -> Entry {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_435_200_042);
        let message = "vm 0: runs \"again\"".to_owned();
        Entry { time, vm: Some(0), ..Entry::new(level, message) }
    }

    #[test]
    fn lines_have_the_time_of_day_once() {
        let entry = at_noon(Level::Info);
        let line = entry.line(Format::Text, false);
        assert_eq!(line, "2026-11-23T12:00:00.042Z vm 0: runs \"again\"");
        assert_eq!(entry.line(Format::Text, true), "vm 0: runs \"again\"");
        let line = at_noon(Level::Warning).line(Format::Text, false);
        assert_eq!(line, "2026-11-23T12:00:00.042Z warning: vm 0: runs \"again\"");
    }

    #[test]
    fn the_journal_is_told_what_matters() {
        let line = at_noon(Level::Warning).line(Format::Text, true);
        assert_eq!(line, "<4>vm 0: runs \"again\"");
        assert!(at_noon(Level::Warning).line(Format::Json, true).starts_with("<4>{"));
    }

    #[test]
    fn programs_get_one_object_on_each_line() {
        let entry = Entry { message: "two\nlines".to_owned(), ..at_noon(Level::Warning) };
        let line = entry.line(Format::Json, false);
        let right = json!({
            "time": "2026-11-23T12:00:00.042Z", "level": "warning", "message": "two\nlines", "vm": 0
        });
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), right);
        assert_eq!(line.lines().count(), 1);
    }
}
