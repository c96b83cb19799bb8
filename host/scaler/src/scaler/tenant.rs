//! A tenant, what it has, and how its memory compares with another's.

use super::Vm;
use crate::{InstanceState, TenantPolicy, VmState, instance::Instance};
use std::{cmp::Ordering, num::NonZeroU32};

/// A tenant and what it has.
#[derive(Debug, PartialEq)]
pub(super) struct Tenant {
    pub(super) policy: TenantPolicy,
    /// Charged to its VMs and their instances, in bytes.
    pub(super) used_bytes: u64,
    /// The part of it that is not on its way back to the host.
    pub(super) held_bytes: u64,
    /// Its queued calls.
    pub(super) queued: usize,
    /// How many instances are wanted ahead of calls.
    pub(super) prewarming: usize,
    /// Requests that its instances serve.
    pub(super) running: usize,
    /// Its instances that start, and its VMs that boot.
    pub(super) starting: usize,
    /// For the first instance of each of its VMs that boots, in bytes.
    pub(super) promised_bytes: u64,
    /// Its VMs and functions.
    pub(super) parts: usize,
    /// Whether it gets no more functions.
    pub(super) removed: bool,
}

/// A tenant's calls and memory at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantCounts {
    /// Requests that wait for an instance.
    pub queued: usize,
    /// Requests that instances serve.
    pub running: usize,
    /// Memory charged to its VMs and their instances, in bytes.
    pub promised_bytes: u64,
}

/// Memory in proportion to a weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    bytes: u64,
    weight: NonZeroU32,
}

impl Level {
    fn times(self, other: NonZeroU32) -> u128 {
        u128::from(self.bytes) * u128::from(other.get())
    }
}

impl Ord for Level {
    fn cmp(&self, other: &Self) -> Ordering {
        self.times(other.weight).cmp(&other.times(self.weight))
    }
}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Level {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Level {}

impl Tenant {
    pub(super) fn new(policy: TenantPolicy) -> Self {
        Self {
            policy,
            used_bytes: 0,
            held_bytes: 0,
            queued: 0,
            prewarming: 0,
            running: 0,
            starting: 0,
            promised_bytes: 0,
            parts: 0,
            removed: false,
        }
    }

    /// The level with this much memory.
    pub(super) fn level(&self, bytes: u64) -> Level {
        Level { bytes, weight: self.policy.weight }
    }

    /// What its quota leaves it, in bytes.
    pub(super) fn left_bytes(&self) -> u64 {
        self.policy.memory_bytes.map_or(u64::MAX, |most| most.saturating_sub(self.used_bytes))
    }

    pub(super) fn works(&self) -> bool {
        self.running + self.starting > 0
    }

    pub(super) fn count(&mut self, instance: &Instance, adds: bool) {
        let held = !matches!(
            instance.state,
            InstanceState::Stopping
                | InstanceState::Reclaiming
                | InstanceState::Condemned { done: false, .. }
        );
        match instance.state {
            InstanceState::Starting => add(&mut self.starting, adds),
            InstanceState::Busy { requests, .. } if adds => self.running += usize::from(requests),
            InstanceState::Busy { requests, .. } => self.running -= usize::from(requests),
            _ => {}
        }
        self.charge(instance.charged_bytes, held, adds);
    }

    pub(super) fn count_vm(&mut self, vm: &Vm, adds: bool) {
        if vm.state == VmState::Booting {
            add(&mut self.starting, adds);
            add_bytes(&mut self.promised_bytes, vm.policy.instance_bytes, adds);
        }
        self.charge(vm.charged_bytes, vm.state != VmState::Ending, adds);
    }

    fn charge(&mut self, bytes: u64, held: bool, adds: bool) {
        add_bytes(&mut self.used_bytes, bytes, adds);
        if held {
            add_bytes(&mut self.held_bytes, bytes, adds);
        }
    }
}

fn add(count: &mut usize, adds: bool) {
    if adds { *count += 1 } else { *count -= 1 }
}

fn add_bytes(sum: &mut u64, bytes: u64, adds: bool) {
    if adds { *sum += bytes } else { *sum -= bytes }
}
