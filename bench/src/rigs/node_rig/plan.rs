//! Settings of a rig.

use squeezy_node::{Contract, PolicyName};
use squeezy_openwhisk::OpenWhisk;
use squeezy_scaler::SqueezePolicy;
use std::{sync::Arc, time::Duration};

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
    /// How the node talks to the servers of instances.
    pub(crate) contract: Arc<dyn Contract>,
}

impl NodeRigPlan {
    /// Unlimited memory, and a VM of its own for each function.
    pub(crate) fn abundant(policy: PolicyName, keep_alive: Duration) -> Self {
        Self::new(policy, u64::MAX, keep_alive)
    }

    /// A memory budget, and a VM of its own for each function, which is in its image.
    pub(crate) fn new(policy: PolicyName, budget_bytes: u64, keep_alive: Duration) -> Self {
        let squeezing = policy.squeezing(budget_bytes);
        let contract = Arc::new(OpenWhisk);
        Self { policy, budget_bytes, squeezing, keep_alive, one_vm: false, contract }
    }
}
