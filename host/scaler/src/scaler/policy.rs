//! The limits and timeouts of VMs and functions.

use crate::{FunctionIndex, TenantIndex, VmIndex};
use std::{
    num::{NonZeroU16, NonZeroU32},
    time::Duration,
};

/// The policy for one VM and all instances in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmPolicy {
    /// Memory of the VM without instances, in bytes; 0 if each instance is a VM of its own.
    pub base_bytes: u64,
    /// Memory of one instance, in bytes; 0 if the VM has all its memory from boot on.
    pub instance_bytes: u64,
    /// How many instances may have memory plugged at a time (the concurrency factor N).
    pub max_instances: u32,
    /// How many instances may be starting at a time. A start keeps a processor busy: more starts than
    /// processors only delay each other, while queued requests could go to the first instance that is ready.
    pub max_starting: u32,
    /// How long an empty VM is kept; for ever if absent.
    pub idle_time: Option<Duration>,
}

/// The policy for one function and its instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionPolicy {
    /// The VM its instances run in.
    pub vm: VmIndex,
    /// How many instances it may have at a time, if its VM has room for them.
    pub max_instances: u32,
    /// How many requests one of them may serve at a time.
    pub requests_per_instance: NonZeroU16,
    /// How many of them are kept up, whether or not it is called, while calls leave memory for them.
    pub min_instances: u32,
    /// How long an idle instance is kept.
    pub keep_alive: Duration,
    /// How long an instance is idle before it is frozen; never frozen if absent.
    pub freeze_after: Option<Duration>,
    /// How many requests may wait for an instance.
    pub queue_limit: usize,
    /// How long a request may wait while no instance takes any request of the function; for ever if absent.
    /// As long as some are taken, the ones behind them will get their turn.
    pub wait_limit: Option<Duration>,
}

/// What one tenant may have of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantPolicy {
    /// Its part of the memory, in proportion to that of other tenants, while there is not enough for all.
    pub weight: NonZeroU32,
    /// The most memory that its VMs and instances may have together, in bytes; unlimited if absent.
    pub memory_bytes: Option<u64>,
    /// The most requests that it may have in flight, waiting or being served; unlimited if absent.
    pub calls: Option<usize>,
}

impl Default for TenantPolicy {
    fn default() -> Self {
        Self { weight: NonZeroU32::MIN, memory_bytes: None, calls: None }
    }
}

/// A policy under which no request could ever be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Neither the VM nor its instances have memory.
    #[error("the VM has neither base memory nor memory per instance")]
    NoMemory,
    /// No instance is allowed, or none may start.
    #[error("the limit on instances or on concurrent starts is 0; allow at least one")]
    NoInstance,
    /// No request may wait, so none would ever start an instance.
    #[error("the queue limit is 0; allow at least one request to wait")]
    NoQueue,
    /// There is no such VM.
    #[error("there is no VM {0}")]
    NoVm(VmIndex),
    /// There is no such function.
    #[error("there is no function {0}")]
    NoFunction(FunctionIndex),
    /// There is no such tenant.
    #[error("there is no tenant {0}")]
    NoTenant(TenantIndex),
    /// No request of the tenant may be in flight.
    #[error("the limit on calls in flight is 0; allow at least one")]
    NoCall,
    /// More instances are to be kept up than there may be.
    #[error(
        "{minimum} instances are to be kept up, and the function may have {most} in all: keep up fewer, or allow more"
    )]
    MinimumOverMost {
        /// How many are to be kept up.
        minimum: u32,
        /// How many there may be.
        most: u32,
    },
    /// The memory that the tenant may have is not enough for the instances that are to be kept up.
    #[error(
        "{minimum} instances to be kept up need {} MiB with their VM, and there may be {} MiB in all: keep up fewer, or give an instance less",
        needed_bytes.div_ceil(1 << 20), limit_bytes >> 20
    )]
    MinimumOverMemory {
        /// How many are to be kept up.
        minimum: u32,
        /// Memory of a VM with these, in bytes.
        needed_bytes: u64,
        /// What the tenant may have, in bytes.
        limit_bytes: u64,
    },
    /// The VM has functions of another tenant.
    #[error("VM {0} belongs to another tenant; functions of different tenants cannot share a VM")]
    OtherTenant(VmIndex),
    /// One VM with one instance exceeds the tenant's quota.
    #[error(
        "a VM with one instance needs {} MiB, and the tenant may have {} MiB in all: allow it more, or give an instance less",
        needed_bytes.div_ceil(1 << 20), quota_bytes >> 20
    )]
    OverQuota {
        /// Memory of a VM with one instance, in bytes.
        needed_bytes: u64,
        /// The quota, in bytes.
        quota_bytes: u64,
    },
    /// One VM with one instance exceeds the whole budget.
    #[error(
        "a VM with one instance needs {} MiB, but only {} MiB are allowed for all VMs: allow more, or give an instance less",
        needed_bytes.div_ceil(1 << 20), limit_bytes >> 20
    )]
    OverBudget {
        /// Memory of a VM with one instance, in bytes.
        needed_bytes: u64,
        /// The whole budget, in bytes.
        limit_bytes: u64,
    },
}

impl VmPolicy {
    pub(super) fn check(&self, limit_bytes: u64) -> Result<(), PolicyError> {
        let needed_bytes = self.base_bytes.saturating_add(self.instance_bytes);
        if needed_bytes == 0 {
            Err(PolicyError::NoMemory)
        } else if self.max_instances == 0 || self.max_starting == 0 {
            Err(PolicyError::NoInstance)
        } else if needed_bytes > limit_bytes {
            Err(PolicyError::OverBudget { needed_bytes, limit_bytes })
        } else {
            Ok(())
        }
    }
}

impl TenantPolicy {
    pub(super) fn check(&self) -> Result<(), PolicyError> {
        if self.calls == Some(0) { Err(PolicyError::NoCall) } else { Ok(()) }
    }
}

impl FunctionPolicy {
    pub(super) fn check(&self) -> Result<(), PolicyError> {
        if self.queue_limit == 0 {
            Err(PolicyError::NoQueue)
        } else if self.max_instances == 0 {
            Err(PolicyError::NoInstance)
        } else if self.min_instances > self.max_instances {
            let (minimum, most) = (self.min_instances, self.max_instances);
            Err(PolicyError::MinimumOverMost { minimum, most })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Budget, Scaler,
        scaler::tests::{V, function, vm},
    };

    #[test]
    fn policies_that_could_never_answer_are_refused() {
        let refused = |change: fn(&mut VmPolicy)| {
            let mut policy = vm();
            change(&mut policy);
            Scaler::new(Budget::new(1000)).add_vm(policy).err().map(|e| e.to_string())
        };
        assert!(refused(|p| (p.base_bytes, p.instance_bytes) = (0, 0)).is_some());
        assert!(refused(|p| p.max_instances = 0).is_some());
        assert_eq!(
            refused(|p| p.instance_bytes = 991).unwrap(),
            "a VM with one instance needs 1 MiB, but only 0 MiB are allowed for all VMs: allow more, or give \
             an instance less"
        );
        assert_eq!(
            refused(|p| p.instance_bytes = 0),
            None,
            "a VM may have all its memory from boot on"
        );
        assert_eq!(refused(|_| ()), None);
        let mut scaler = Scaler::new(Budget::new(1000));
        scaler.add_vm(vm()).unwrap();
        let none = FunctionPolicy { queue_limit: 0, ..function(V) };
        assert_eq!(scaler.add_function(TenantIndex::FIRST, none), Err(PolicyError::NoQueue));
        assert_eq!(
            scaler.add_function(TenantIndex::FIRST, function(VmIndex(9))),
            Err(PolicyError::NoVm(VmIndex(9)))
        );
    }
}
