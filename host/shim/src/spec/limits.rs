//! The limits of a container: of its spec, and of an update.

use super::document::Resources;
use crate::{
    cgroup::SHARES,
    error::{Error, Result},
};
use squeezy_protocol::InstanceSpec;

/// The longest `LinuxResources` of an update, in bytes.
const MAX_RESOURCES_BYTES: usize = 64 << 10;
/// The period of a quota that says none, in microseconds: the kernel's.
const PERIOD_US: u64 = 100_000;

/// Limits of a container. In an update, what is absent stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Memory, in bytes; [`u64::MAX`] for all that its pod has.
    pub memory_bytes: Option<u64>,
    /// What it gets of the processors where they are short, in thousandths of one.
    pub cpu_share_millis: Option<u32>,
    /// The most that it gets of the processors, in thousandths of one.
    pub cpu_limit_millis: Option<u32>,
}

impl Limits {
    /// Whether there is less memory than all that the pod has.
    pub fn bounds_memory(&self) -> bool {
        self.memory_bytes.is_some_and(|bytes| bytes < u64::MAX)
    }
}

/// Limits from the JSON of OCI's `LinuxResources`.
///
/// # Errors
/// It is something else.
pub fn update(text: &[u8]) -> Result<Limits> {
    if text.len() > MAX_RESOURCES_BYTES {
        return Err(Error::invalid(format_args!(
            "an update is longer than {} KiB",
            MAX_RESOURCES_BYTES >> 10
        )));
    }
    let resources = serde_json::from_slice(text).map_err(|error| {
        Error::invalid(format_args!("an update has no resources of Linux: {error}"))
    })?;
    Ok(limits(&resources))
}

/// What OCI says of memory and processors: 0 says nothing, and a negative number that there is no limit.
pub(super) fn limits(resources: &Resources) -> Limits {
    let cpu = &resources.cpu;
    let period_us = cpu.period.filter(|period| *period > 0).unwrap_or(PERIOD_US);
    Limits {
        memory_bytes: resources.memory.limit.and_then(bounded),
        cpu_share_millis: cpu
            .shares
            .filter(|shares| *shares > 0)
            .map(|shares| millis(shares, SHARES)),
        cpu_limit_millis: cpu.quota.and_then(bounded).map(|quota_us| millis(quota_us, period_us)),
    }
}

/// A limit; the largest number if there is none, and nothing if nothing is said.
fn bounded(number: i64) -> Option<u64> {
    (number != 0).then(|| number.try_into().unwrap_or(u64::MAX))
}

/// Thousandths of a processor, of which `one` is one. More than the most is as good as no limit.
fn millis(number: u64, one: u64) -> u32 {
    let millis = u128::from(number) * 1000 / u128::from(one);
    let most = InstanceSpec::MAX_CPU_MILLIS;
    u32::try_from(millis).unwrap_or(most).clamp(InstanceSpec::MIN_CPU_MILLIS, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_is_read_in_units_of_its_own() {
        let text = br#"{"memory":{"limit":1048576},"cpu":{"shares":512,"quota":50000,"period":100000},"pids":{"limit":5}}"#;
        let expected = Limits {
            memory_bytes: Some(1 << 20),
            cpu_share_millis: Some(500),
            cpu_limit_millis: Some(500),
        };
        assert_eq!(update(text), Ok(expected));
        assert_eq!(
            update(br#"{"memory":{"limit":0},"cpu":{"shares":0,"period":0}}"#),
            Ok(Limits::default())
        );
    }

    #[test]
    fn whatever_is_said_is_within_what_the_vm_takes() {
        let most = Limits {
            memory_bytes: Some(u64::MAX),
            cpu_share_millis: Some(InstanceSpec::MAX_CPU_MILLIS),
            cpu_limit_millis: Some(InstanceSpec::MAX_CPU_MILLIS),
        };
        let unlimited =
            br#"{"memory":{"limit":-1},"cpu":{"shares":18446744073709551615,"quota":-1,"period":0}}"#;
        assert_eq!(update(unlimited), Ok(most));
        let large = br#"{"cpu":{"quota":9223372036854775807,"period":1}}"#;
        assert_eq!(update(large).unwrap().cpu_limit_millis, most.cpu_limit_millis);
        let small = update(br#"{"cpu":{"shares":2,"quota":1000}}"#).unwrap();
        assert_eq!((small.cpu_share_millis, small.cpu_limit_millis), (Some(10), Some(10)));
    }

    #[test]
    fn a_memory_limit_is_told_from_none() {
        let bounds = |text: &[u8]| update(text).unwrap().bounds_memory();
        assert!(bounds(br#"{"memory":{"limit":1048576}}"#));
        for text in [&b"{}"[..], br#"{"memory":{"limit":0}}"#, br#"{"memory":{"limit":-1}}"#] {
            assert!(!bounds(text));
        }
    }

    #[test]
    fn a_broken_update_is_refused() {
        for text in [&b""[..], b"[1", b"\"x\"", &vec![b' '; MAX_RESOURCES_BYTES + 1]] {
            assert!(update(text).is_err());
        }
    }
}
