//! Limits of an action's calls.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use squeezy_node::function::{
    Function, MAX_CALLS_PER_INSTANCE, MAX_MEMORY_BYTES, MIN_MEMORY_BYTES,
};
use squeezy_vmm::{GRANULE_BYTES, round_up};
use std::{num::NonZeroU16, ops::RangeInclusive, time::Duration};

/// The maximum size of a call's arguments as text, in bytes, as in OpenWhisk.
pub const MAX_ARGUMENTS_BYTES: usize = 1 << 20;

/// Largest limit for an activation's logs, in MiB, which is the default as in OpenWhisk.
pub const MAX_LOGS_MIB: u64 = 10;

/// Largest limit for how long a call may take, in milliseconds.
pub const MAX_TIMEOUT_MS: u64 = 86_400_000;

/// The limits that an action sets, under OpenWhisk's names. Absent ones are those of the function's
/// definition. An unknown limit is rejected, because whoever sets it relies on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// How long a call may take, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// Memory of an instance, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Maximum size of an activation's logs, in MiB. The agent itself keeps less than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs: Option<u64>,
    /// Calls that an instance serves at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
}

impl Limits {
    /// Checks that all limits can be met; says what is wrong otherwise.
    pub fn check(&self) -> Result<(), String> {
        let within = |name, value: Option<u64>, range: RangeInclusive<u64>, unit| match value {
            Some(value) if !range.contains(&value) => {
                let (least, most) = range.into_inner();
                Err(format!("limits.{name} must be from {least} to {most} {unit}"))
            }
            _ => Ok(()),
        };
        within("timeout", self.timeout, 1..=MAX_TIMEOUT_MS, "ms")?;
        within("memory", self.memory, MIN_MEMORY_BYTES >> 20..=MAX_MEMORY_BYTES >> 20, "MB")?;
        within("logs", self.logs, 0..=MAX_LOGS_MIB, "MB")?;
        within("concurrency", self.concurrency, 1..=MAX_CALLS_PER_INSTANCE.into(), "calls")
    }

    /// Fills in what these leave out from `earlier` limits.
    pub fn or(self, earlier: Self) -> Self {
        Self {
            timeout: self.timeout.or(earlier.timeout),
            memory: self.memory.or(earlier.memory),
            logs: self.logs.or(earlier.logs),
            concurrency: self.concurrency.or(earlier.concurrency),
        }
    }

    /// Applies these limits to a function's definition.
    pub fn apply(&self, function: &mut Function) {
        if let Some(timeout) = self.timeout {
            function.run_timeout = Duration::from_millis(timeout);
        }
        if let Some(memory) = self.memory {
            function.memory_bytes = memory << 20;
        }
        let calls = self.concurrency.and_then(|calls| NonZeroU16::new(calls.try_into().ok()?));
        function.calls_per_instance = calls.unwrap_or(function.calls_per_instance);
    }

    /// Whether logs are kept at all.
    pub fn wants_logs(&self) -> bool {
        self.logs != Some(0)
    }

    /// All limits in force for a function to which these were applied; without a function, those that are
    /// known.
    pub fn describe(&self, function: Option<&Function>) -> Value {
        let logs = self.logs.unwrap_or(MAX_LOGS_MIB);
        let concurrency =
            function.map_or(self.concurrency, |f| Some(f.calls_per_instance.get().into()));
        let mut limits = json!({ "concurrency": concurrency.unwrap_or(1), "logs": logs });
        let timeout = function.map_or(self.timeout, |f| Some(f.run_timeout.as_millis() as u64));
        let memory_bytes = function.map_or(self.memory.map(|m| m << 20), |f| Some(f.memory_bytes));
        let memory = memory_bytes.map(|bytes| round_up(bytes, GRANULE_BYTES) >> 20);
        for (name, value) in [("timeout", timeout), ("memory", memory)] {
            if let Some(value) = value {
                limits[name] = value.into();
            }
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(text: &str) -> Limits {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_is_said_goes_before_the_definition() {
        let text = include_str!("../../../functions/html/function.toml");
        let mut function = Function::parse(text).unwrap();
        let earlier = limits(r#"{ "timeout": 5, "memory": 39, "logs": null, "concurrency": 1 }"#);
        earlier.check().unwrap();
        let limits = limits(r#"{ "memory": 62, "logs": 0, "concurrency": 7 }"#).or(earlier);
        limits.apply(&mut function);
        assert_eq!(
            (function.run_timeout, function.memory_bytes),
            (Duration::from_millis(5), 62 << 20)
        );
        assert!(!limits.wants_logs() && earlier.wants_logs());
        let right = json!({ "timeout": 5, "memory": 64, "concurrency": 7, "logs": 0 });
        assert_eq!(limits.describe(Some(&function)), right, "memory is rounded up");
        let unknown = Limits { memory: None, ..limits }.describe(None);
        assert_eq!(unknown, json!({ "timeout": 5, "concurrency": 7, "logs": 0 }));
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        for (text, part) in [
            (r#"{ "timeout": 0 }"#, "limits.timeout must be from 1 to 86400000 ms"),
            (r#"{ "memory": 1 }"#, "limits.memory must be from 32 to 1048576 MB"),
            (r#"{ "memory": 1048577 }"#, "limits.memory must be from 32 to 1048576 MB"),
            (r#"{ "logs": 11 }"#, "limits.logs must be from 0 to 10 MB"),
            (r#"{ "concurrency": 101 }"#, "limits.concurrency must be from 1 to 100 calls"),
            (r#"{ "concurrency": 0 }"#, "limits.concurrency must be from 1 to 100 calls"),
        ] {
            let error = limits(text).check().unwrap_err();
            assert!(error.starts_with(part), "{text}: {error}");
        }
        let unknown = serde_json::from_str::<Limits>(r#"{ "instances": 3 }"#).unwrap_err();
        assert!(unknown.to_string().contains("unknown field `instances`"), "{unknown}");
    }
}
