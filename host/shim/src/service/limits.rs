//! The limits of an update.

use crate::{
    error::{Error, Result},
    vm::Limits,
};
use serde::Deserialize;

/// The longest `LinuxResources` of an update, in bytes.
const MAX_RESOURCES_BYTES: usize = 64 << 10;

/// Limits from the JSON of OCI's `LinuxResources`; 0 and negative numbers say nothing.
pub(super) fn parse(text: &[u8]) -> Result<Limits> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Resources {
        memory: Memory,
        cpu: Cpu,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Memory {
        limit: Option<i64>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Cpu {
        quota: Option<i64>,
        period: Option<u64>,
    }
    if text.len() > MAX_RESOURCES_BYTES {
        return Err(Error::invalid(format_args!(
            "an update is longer than {} KiB",
            MAX_RESOURCES_BYTES >> 10
        )));
    }
    let resources: Resources = serde_json::from_slice(text).map_err(|error| {
        Error::invalid(format_args!("an update has no resources of Linux: {error}"))
    })?;
    let positive = |number: Option<i64>| {
        number.and_then(|number| u64::try_from(number).ok()).filter(|number| *number > 0)
    };
    let cpu_millis = match (positive(resources.cpu.quota), resources.cpu.period.unwrap_or(100_000))
    {
        (Some(quota), period) if period > 0 => {
            u32::try_from(quota.saturating_mul(1000) / period).ok()
        }
        _ => None,
    };
    Ok(Limits { memory_bytes: positive(resources.memory.limit), cpu_millis })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_is_read_in_units_of_its_own() {
        let text = br#"{"memory":{"limit":1048576},"cpu":{"shares":2,"quota":50000,"period":100000},"pids":{"limit":5}}"#;
        assert_eq!(parse(text), Ok(Limits { memory_bytes: Some(1 << 20), cpu_millis: Some(500) }));
        let nothing = br#"{"memory":{"limit":-1},"cpu":{"quota":-1,"period":0}}"#;
        assert_eq!(parse(nothing), Ok(Limits::default()));
    }

    #[test]
    fn a_broken_update_is_refused() {
        for text in [&b""[..], b"[1", b"\"x\"", &vec![b' '; MAX_RESOURCES_BYTES + 1]] {
            assert!(parse(text).is_err());
        }
        let large = br#"{"cpu":{"quota":9223372036854775807,"period":1}}"#;
        assert_eq!(parse(large), Ok(Limits::default()));
    }
}
