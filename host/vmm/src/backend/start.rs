//! The list of VMMs, and how each is started.

use super::{Started, qemu};
use crate::{
    Result,
    accelerator::{Accelerator, AcceleratorChoice},
    config::{VmConfig, Vmm},
};

impl Vmm {
    /// Which accelerator it uses for this choice. Blocks for up to a second the first time in a
    /// process, while KVM is probed.
    pub fn accelerator(&self, choice: AcceleratorChoice) -> Result<Accelerator> {
        match self {
            Self::Qemu(_) => qemu::accelerator(choice),
        }
    }
}

/// Starts a VM with the VMM that its configuration names.
pub(crate) async fn start(config: &VmConfig, accelerator: &Accelerator) -> Result<Started> {
    match &config.vmm {
        Vmm::Qemu(options) => qemu::start(options, config, accelerator).await,
    }
}
