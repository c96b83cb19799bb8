//! What a fleet is started with.

use squeezy_node::PolicyName;
use squeezy_scaler::SqueezePolicy;
use std::time::Duration;

/// What a fleet is started with.
pub(crate) struct FleetPlan {
    /// How instances get their memory.
    pub(crate) policy: PolicyName,
    /// Memory for all VMs and instances together.
    pub(crate) budget_bytes: u64,
    /// When frozen instances are squeezed; nothing where they are left as they are.
    pub(crate) squeezing: Option<SqueezePolicy>,
    /// How long an idle instance is kept.
    pub(crate) keep_alive: Duration,
    /// Whether the functions run in one VM.
    pub(crate) one_vm: bool,
}

impl FleetPlan {
    /// With as much memory as anybody asks for, and each function in VMs of its own.
    pub(crate) fn abundant(policy: PolicyName, keep_alive: Duration) -> Self {
        Self::new(policy, u64::MAX, keep_alive)
    }

    /// With so much memory, and each function in VMs of its own.
    pub(crate) fn new(policy: PolicyName, budget_bytes: u64, keep_alive: Duration) -> Self {
        let squeezing = policy.squeezing(budget_bytes);
        Self { policy, budget_bytes, squeezing, keep_alive, one_vm: false }
    }
}
