//! Makes a machine from a [`VmPlan`].

use super::{Blueprint, Machine, MachineDetails, micro::MicroVms, shared::SharedVm};
use crate::{PolicyName, VmPlan};
use squeezy_vmm::{
    BootStep, BoxFuture, VmError,
    network::{NetworkCounts, Uplink},
};
use std::{path::PathBuf, sync::Arc};

impl Blueprint for VmPlan {
    fn images(&self) -> &[PathBuf] {
        &self.images
    }

    fn network_counts(&self) -> Option<NetworkCounts> {
        let is_judged = self.networks.iter().any(|uplink| matches!(uplink, Uplink::Judged(_)));
        is_judged.then(|| self.network_counters.read())
    }

    fn boot<'a>(
        &'a self,
        tell: Box<dyn FnMut(BootStep) + Send + 'a>,
    ) -> BoxFuture<'a, Result<Arc<dyn Machine>, VmError>> {
        Box::pin(async move {
            let micro = self.policy == PolicyName::Microvm;
            let plan = if micro { self.for_one() } else { self.clone() };
            let (vm, mechanism) = plan.boot_vm(tell).await?;
            let details = MachineDetails::of(&vm, self.sizing.instance_bytes).await?;
            Ok(if micro {
                Arc::new(MicroVms::new(plan, self.sizing.instances, vm, details))
                    as Arc<dyn Machine>
            } else {
                Arc::new(SharedVm::new(vm, mechanism, details))
            })
        })
    }
}
