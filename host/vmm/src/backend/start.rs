//! Every VMM that there is, and how it is started.

use super::{Started, qemu};
use crate::{
    Result,
    accelerator::{Accelerator, AcceleratorChoice},
    config::{VmConfig, Vmm},
};

impl Vmm {
    /// What it runs the guest's code with. Trying KVM takes up to a second, is done once a process, and
    /// blocks.
    pub fn accelerator(&self, choice: AcceleratorChoice) -> Result<Accelerator> {
        match self {
            Self::Qemu(_) => qemu::accelerator(choice),
        }
    }
}

/// Starts a VM with the VMM of its configuration.
pub(crate) async fn start(config: &VmConfig, accelerator: &Accelerator) -> Result<Started> {
    match &config.vmm {
        Vmm::Qemu(options) => qemu::start(options, config, accelerator).await,
    }
}
