//! Policies: how instances get their memory and give it back.

use squeezy_scaler::SqueezePolicy;
use squeezy_vmm::{MemoryBackendChoice, mechanism::MechanismName};
use std::{fmt, str::FromStr};

/// A policy, by name: a mechanism to resize VMs, or a variant of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyName {
    /// Instances share VMs that are resized with this mechanism.
    Mechanism(MechanismName),
    /// Stock virtio-mem with HarvestVM's two ideas: a reserve of free memory that new instances can use at
    /// once, and ending idle instances ahead of need to refill it.
    Harvest,
    /// Partitions, with frozen instances charged only for what they hold: that is measured, and if it is too
    /// much, they are squeezed.
    Overcommit,
    /// A VM of its own for each instance (1:1).
    Microvm,
}

/// The divisor of the part of memory that [`PolicyName::Harvest`] keeps free.
const HARVEST_RESERVE: u64 = 8;

/// All policies, with name and meaning.
const POLICIES: [(PolicyName, &str, &str); 8] = [
    (
        PolicyName::Mechanism(MechanismName::Squeezy),
        "squeezy",
        "Partitions: one request to the device gives an instance's memory back",
    ),
    (
        PolicyName::Mechanism(MechanismName::VirtioMem),
        "virtio-mem",
        "Stock virtio-mem: the guest migrates pages to free the requested memory",
    ),
    (PolicyName::Mechanism(MechanismName::Balloon), "balloon", "Stock ballooning"),
    (
        PolicyName::Mechanism(MechanismName::Static),
        "static",
        "The VM has all its memory from the start, and keeps it",
    ),
    (
        PolicyName::Harvest,
        "harvest",
        "virtio-mem with a reserve of free memory, refilled by ending idle instances ahead of need",
    ),
    (
        PolicyName::Overcommit,
        "overcommit",
        "squeezy, with frozen instances charged only for the memory they occupy; they give back what they can",
    ),
    (
        PolicyName::Mechanism(MechanismName::HyperAlloc),
        "hyperalloc",
        "HyperAlloc: the host takes unused memory out of the guest, which has no part in it",
    ),
    (PolicyName::Microvm, "microvm", "One VM per instance"),
];

impl PolicyName {
    /// Every policy.
    pub const ALL: [Self; POLICIES.len()] = {
        let mut all = [Self::Harvest; POLICIES.len()];
        let mut index = 0;
        while index < all.len() {
            all[index] = POLICIES[index].0;
            index += 1;
        }
        all
    };

    /// Its name and what it means.
    fn words(self) -> (&'static str, &'static str) {
        let found = POLICIES.iter().find(|(policy, ..)| *policy == self);
        found.map_or(("none", "For experiments only"), |(_, name, meaning)| (name, meaning))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// What it does, in a sentence.
    pub fn meaning(self) -> &'static str {
        self.words().1
    }

    /// How its VMs are resized.
    pub fn mechanism(self) -> MechanismName {
        match self {
            Self::Mechanism(mechanism) => mechanism,
            Self::Harvest => MechanismName::VirtioMem,
            Self::Overcommit => MechanismName::Squeezy,
            Self::Microvm => MechanismName::Static,
        }
    }

    /// Why its VMs cannot have this memory backend, if they cannot.
    pub fn problem_with(self, memory_backend: MemoryBackendChoice) -> Option<String> {
        let is_private = memory_backend == MemoryBackendChoice::Ram;
        (is_private && self.mechanism().needs_memfd()).then(|| {
            format!(
                "with the policy {self} the host works on the guest's memory, and {memory_backend} is private to the \
                 VMM: choose the memory backend auto or memfd, or another policy"
            )
        })
    }

    /// When to squeeze frozen instances, with `limit_bytes` of memory in total; `None` if they are not
    /// squeezed.
    pub fn squeezing(self, limit_bytes: u64) -> Option<SqueezePolicy> {
        let processors = || std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        (self == Self::Overcommit).then(|| SqueezePolicy::of_memory(limit_bytes, processors()))
    }

    /// Bytes to keep free ahead of need, with `limit_bytes` of memory in total.
    pub fn reserve_bytes(self, limit_bytes: u64) -> u64 {
        if self == Self::Harvest { limit_bytes / HARVEST_RESERVE } else { 0 }
    }
}

/// There is no policy of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be one of {}", PolicyName::ALL.map(PolicyName::name).join(", "))]
pub struct UnknownPolicy;

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL.into_iter().find(|policy| policy.name() == text).ok_or(UnknownPolicy)
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_reads_back_by_its_name() {
        for policy in PolicyName::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let error = "floor".parse::<PolicyName>().unwrap_err().to_string();
        assert!(error.contains("harvest, overcommit, hyperalloc, microvm"), "{error}");
    }

    #[test]
    fn only_hyperalloc_is_impossible_with_private_memory() {
        let refused =
            |backend| PolicyName::ALL.map(|policy| policy.problem_with(backend).is_some());
        assert_eq!(refused(MemoryBackendChoice::Auto), [false; 8]);
        assert_eq!(refused(MemoryBackendChoice::Memfd), [false; 8]);
        let ram = [false, false, false, false, false, false, true, false];
        assert_eq!(refused(MemoryBackendChoice::Ram), ram);
    }

    #[test]
    fn only_harvest_has_a_reserve() {
        let reserves = PolicyName::ALL.map(|policy| policy.reserve_bytes(800));
        assert_eq!(reserves, [0, 0, 0, 0, 100, 0, 0, 0]);
    }
}
