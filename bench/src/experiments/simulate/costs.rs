//! The cost of each step under a policy: medians of the lines that `coldstart` has recorded.

use crate::{
    error::{BenchError, Result},
    experiments::coldstart,
    report::{median, of_method},
};
use squeezy_node::PolicyName;
use squeezy_vmm::mechanism::MechanismName;
use std::time::Duration;

/// The duration of each step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Costs {
    pub(super) boot: Duration,
    /// Plug, sandbox and init of an instance, in sequence or overlapping.
    pub(super) start: Duration,
    pub(super) stop: Duration,
    pub(super) reclaim: Duration,
}

impl Costs {
    /// Costs under a policy, from the lines of one function. `harvest` resizes like `virtio-mem`;
    /// resizing a VM that has all its memory costs nothing.
    pub(super) fn of(lines: &[coldstart::Line], policy: PolicyName) -> Result<Self> {
        let fixed = policy == PolicyName::Mechanism(MechanismName::Static);
        let measured = match policy {
            PolicyName::Microvm => policy,
            _ if fixed => PolicyName::Mechanism(MechanismName::Squeezy),
            _ => PolicyName::Mechanism(policy.mechanism()),
        }
        .name();
        let of = |there: bool, value: fn(&coldstart::Line) -> u64| {
            let lines = of_method(lines, measured).filter(|line| line.vm_was_there == there);
            median(lines.map(|line| value(line) as f64 / 1e9)).map(Duration::from_secs_f64)
        };
        let missing = || {
            BenchError::Arguments(format!(
                "the costs of `{measured}` are not among the lines of coldstart: give others with \
                 --costs"
            ))
        };
        let plug = of(true, |line| line.plug_ns).ok_or_else(missing)?;
        let sandbox = of(true, |line| line.sandbox_ns).ok_or_else(missing)?;
        let init = of(true, |line| line.init_ns).ok_or_else(missing)?;
        let reclaim = of(true, |line| line.reclaim_ns).ok_or_else(missing)?;
        let start = match policy {
            _ if fixed => sandbox,
            // They overlap: the time of the sandbox includes the wait for the partition.
            _ if policy.mechanism() == MechanismName::Squeezy => sandbox.max(plug),
            _ => plug + sandbox,
        };
        Ok(Self {
            boot: of(false, |line| line.boot_ns).ok_or_else(missing)?,
            start: start + init,
            stop: of(true, |line| line.stop_ns).ok_or_else(missing)?,
            reclaim: if fixed { Duration::ZERO } else { reclaim },
        })
    }
}
