//! What a namespace may have.

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use squeezy_scaler::TenantPolicy;
use std::num::NonZeroU32;

/// The most that a quota can be, other than none.
const MOST: usize = 1_000_000;

/// What a namespace may have; what is absent has no bound of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quotas {
    /// Memory of its VMs and instances at a time, in MiB.
    pub memory_mb: Option<usize>,
    /// Its part of the memory where there is not enough for all, in proportion to that of others; 1 if absent.
    pub weight: Option<usize>,
    /// Calls at a time, waiting ones included.
    pub concurrent_calls: Option<usize>,
    /// Calls that begin in one minute.
    pub calls_per_minute: Option<usize>,
    /// Actions, and as many packages.
    pub actions: Option<usize>,
    /// Code of its actions, in MiB.
    pub code_mb: Option<usize>,
    /// Images from registries that its actions have, in MiB.
    pub image_mb: Option<usize>,
    /// Activations that are kept, if not as many as the configuration says.
    pub activations: Option<usize>,
}

impl Quotas {
    /// Those of a new namespace on a node with this much memory: half of that, so that no namespace can hold all of it
    /// for as long as its calls run; no bound if half is more than a quota can be.
    pub fn new(memory_bytes: u64) -> Self {
        let half = usize::try_from(memory_bytes >> 21).ok();
        Self {
            memory_mb: half.filter(|half| (1..=MOST).contains(half)),
            weight: None,
            concurrent_calls: Some(256),
            calls_per_minute: Some(6000),
            actions: Some(100),
            code_mb: Some(512),
            image_mb: Some(4096),
            activations: None,
        }
    }

    /// What images from registries may take, in bytes.
    pub fn image_bytes(&self) -> Option<u64> {
        self.image_mb.map(|allowed| (allowed as u64) << 20)
    }

    /// What the scaler has to know of them. Calls are counted before they get there.
    pub fn policy(&self) -> TenantPolicy {
        let weight = self.weight.and_then(|weight| u32::try_from(weight).ok());
        TenantPolicy {
            weight: weight.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN),
            memory_bytes: self.memory_mb.map(|memory| (memory as u64) << 20),
            calls: None,
        }
    }

    /// These with what an object says otherwise; `null` takes a bound away.
    pub fn changed(&self, change: Map<String, Value>) -> Result<Self, String> {
        let mut all = serde_json::to_value(self).map_err(|error| error.to_string())?;
        if let Some(all) = all.as_object_mut() {
            all.extend(change);
        }
        let changed: Self =
            serde_json::from_value(all).map_err(|error| format!("quotas: {error}"))?;
        let Self { concurrent_calls, calls_per_minute, actions, code_mb, image_mb, .. } = changed;
        for (name, least, quota) in [
            ("memory_mb", 1, changed.memory_mb),
            ("weight", 1, changed.weight),
            ("concurrent_calls", 1, concurrent_calls),
            ("calls_per_minute", 1, calls_per_minute),
            ("actions", 0, actions),
            ("code_mb", 0, code_mb),
            ("image_mb", 0, image_mb),
            ("activations", 1, changed.activations),
        ] {
            if quota.is_some_and(|quota| !(least..=MOST).contains(&quota)) {
                return Err(format!(
                    "quotas: {name} must be from {least} to {MOST}, or null for no bound"
                ));
            }
        }
        Ok(changed)
    }
}

/// Why a namespace gets no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverQuota {
    /// Too many calls at a time, worded as in OpenWhisk.
    #[error("Too many concurrent requests in flight (count: {count}, allowed: {allowed}).")]
    Concurrency {
        /// How many there are.
        count: usize,
        /// How many there may be.
        allowed: usize,
    },
    /// Too many calls in a minute, worded as in OpenWhisk.
    #[error("Too many requests in the last minute (count: {count}, allowed: {allowed}).")]
    Rate {
        /// How many there were with this one.
        count: usize,
        /// How many there may be.
        allowed: usize,
    },
    /// Too much memory.
    #[error(
        "This namespace's requests and answers take as much memory as they may; try again later."
    )]
    Bodies,
    /// Too many actions.
    #[error("The namespace may have {allowed} actions: delete one first.")]
    Actions {
        /// How many there may be.
        allowed: usize,
    },
    /// Too many packages.
    #[error("The namespace may have {allowed} packages: delete one first.")]
    Packages {
        /// How many there may be.
        allowed: usize,
    },
    /// Too much of images.
    #[error(
        "The images of the namespace's actions would take {} of at most {}: delete some first.",
        ByteSize(*bytes),
        ByteSize(*allowed)
    )]
    Images {
        /// What they would take.
        bytes: u64,
        /// What they may take.
        allowed: u64,
    },
    /// An image that is larger than all may be.
    #[error(
        "The layers of the image have {}, and the images of the namespace's actions may take {}.",
        ByteSize(*bytes),
        ByteSize(*allowed)
    )]
    Layers {
        /// What they have.
        bytes: u64,
        /// What the images may take together.
        allowed: u64,
    },
    /// Too much code.
    #[error(
        "The code of the namespace's actions would take {} of at most {}: delete some first.",
        ByteSize(*bytes),
        ByteSize(*allowed)
    )]
    Code {
        /// What it would take.
        bytes: u64,
        /// What it may take.
        allowed: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_too_much_is_said_in_units_for_people() {
        let (bytes, allowed) = (5 << 19, 2 << 20);
        for over in [
            OverQuota::Images { bytes, allowed },
            OverQuota::Layers { bytes, allowed },
            OverQuota::Code { bytes, allowed },
        ] {
            let said = over.to_string();
            assert!(said.contains(" 2.5 MiB") && said.contains(" 2.0 MiB"), "{said}");
        }
    }

    #[test]
    fn what_is_not_said_stays() {
        let new = Quotas::new(4 << 30);
        assert_eq!(new.memory_mb, Some(2048));
        let changed = |change: Value| new.changed(change.as_object().unwrap().clone());
        assert_eq!(changed(json!({})), Ok(new));
        let other = changed(json!({ "calls_per_minute": 7, "code_mb": null })).unwrap();
        let right = Quotas { calls_per_minute: Some(7), code_mb: None, ..new };
        assert_eq!(other, right);
        let other = changed(json!({ "memory_mb": 3, "weight": 2 })).unwrap().policy();
        assert_eq!((other.memory_bytes, other.weight.get()), (Some(3 << 20), 2));
        assert_eq!(
            changed(json!({ "memory_mb": null })).unwrap().policy(),
            TenantPolicy::default()
        );
        for wrong in [
            json!({ "calls": 1 }),
            json!({ "actions": -1 }),
            json!({ "actions": "many" }),
            json!({ "calls_per_minute": 0 }),
            json!({ "activations": 1_000_001 }),
        ] {
            let error = changed(wrong).unwrap_err();
            assert!(error.starts_with("quotas: ") && error.lines().count() == 1, "{error}");
        }
    }
}
