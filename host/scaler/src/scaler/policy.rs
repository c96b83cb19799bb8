//! What the scaler has to keep to.

use crate::{FunctionIndex, VmIndex};
use std::time::Duration;

/// What holds for one VM and every instance in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmPolicy {
    /// Memory of the VM while it has no instance, in bytes; 0 where an instance is a VM.
    pub base_bytes: u64,
    /// Memory of one instance, in bytes; 0 where the VM has it from its boot on.
    pub instance_bytes: u64,
    /// Instances whose memory may be plugged at a time (the concurrency factor N).
    pub max_instances: u32,
    /// Instances that may be starting at a time. A start is work for a processor: more of them than
    /// there are processors only make each other late, while requests that wait could go to the first
    /// that is ready.
    pub max_starting: u32,
    /// How long the VM is kept without an instance; for ever when absent.
    pub idle_time: Option<Duration>,
}

/// What holds for every instance of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionPolicy {
    /// Where its instances run.
    pub vm: VmIndex,
    /// Instances of it at a time, if its VM has room for them.
    pub max_instances: u32,
    /// How long an instance without a request stays.
    pub keep_alive: Duration,
    /// How long an instance is idle before it is frozen; never when absent.
    pub freeze_after: Option<Duration>,
    /// Requests that may wait for an instance.
    pub queue_limit: usize,
    /// How long a request may wait without any of the function's being taken by an instance; for ever
    /// when absent. As long as some are, those behind them have their turn to come.
    pub wait_limit: Option<Duration>,
}

/// A policy under which no request could ever be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Neither VM nor instance have memory.
    #[error("neither the VM nor an instance would have memory")]
    NoMemory,
    /// No instance is allowed.
    #[error("there may be no instance, or none may start; allow one at least")]
    NoInstance,
    /// No request may wait, so none would ever lead to an instance.
    #[error("no request may wait; allow one at least")]
    NoQueue,
    /// There is no such VM.
    #[error("there is no VM {0}")]
    NoVm(VmIndex),
    /// There is no such function.
    #[error("there is no function {0}")]
    NoFunction(FunctionIndex),
    /// One VM with one instance is more than the whole budget.
    #[error(
        "a VM with one instance needs {} MiB, and there are {} MiB for all: allow more, or give an instance less",
        needed_bytes.div_ceil(1 << 20), limit_bytes >> 20
    )]
    OverBudget {
        /// What they need.
        needed_bytes: u64,
        /// What there is.
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

impl FunctionPolicy {
    pub(super) fn check(&self) -> Result<(), PolicyError> {
        if self.queue_limit == 0 {
            Err(PolicyError::NoQueue)
        } else if self.max_instances == 0 {
            Err(PolicyError::NoInstance)
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
            "a VM with one instance needs 1 MiB, and there are 0 MiB for all: allow more, or give an instance \
             less"
        );
        assert_eq!(refused(|p| p.instance_bytes = 0), None, "a VM may have all from its boot on");
        assert_eq!(refused(|_| ()), None);
        let mut scaler = Scaler::new(Budget::new(1000));
        scaler.add_vm(vm()).unwrap();
        let none = FunctionPolicy { queue_limit: 0, ..function(V) };
        assert_eq!(scaler.add_function(none), Err(PolicyError::NoQueue));
        assert_eq!(scaler.add_function(function(VmIndex(9))), Err(PolicyError::NoVm(VmIndex(9))));
    }
}
