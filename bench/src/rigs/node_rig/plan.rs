//! Settings of a rig.

use squeezy_node::PolicyName;
use squeezy_scaler::SqueezePolicy;
use std::time::Duration;

/// Settings of a rig.
pub(crate) struct NodeRigPlan {
    /// How instances get their memory.
    pub(crate) policy: PolicyName,
    /// Memory budget of all VMs and instances.
    pub(crate) budget_bytes: u64,
    /// When frozen instances are squeezed; `None` if never.
    pub(crate) squeezing: Option<SqueezePolicy>,
    /// How long an idle instance is kept.
    pub(crate) keep_alive: Duration,
    /// Whether all functions share one VM.
    pub(crate) one_vm: bool,
}

impl NodeRigPlan {
    /// Unlimited memory, and a VM of its own for each function.
    pub(crate) fn abundant(policy: PolicyName, keep_alive: Duration) -> Self {
        Self::new(policy, u64::MAX, keep_alive)
    }

    /// A memory budget, and a VM of its own for each function.
    pub(crate) fn new(policy: PolicyName, budget_bytes: u64, keep_alive: Duration) -> Self {
        let squeezing = policy.squeezing(budget_bytes);
        Self { policy, budget_bytes, squeezing, keep_alive, one_vm: false }
    }
}
