//! Starts, resizes, measures and stops one VM.
//!
//! ```no_run
//! # async fn example() -> squeezy_vmm::Result<()> {
//! use squeezy_vmm::{Artifacts, Kernel, PartitionLayout, Vm, VmConfig};
//! use std::sync::Arc;
//!
//! let files = Artifacts::find(None)?;
//! let mut config = VmConfig::new("html", files.kernel(Kernel::Release), files.initramfs());
//! config.vcpus = 2;
//! let layout = PartitionLayout::new(768 << 20, 8, 128 << 20);
//! config.memory = Arc::new(layout);
//! let vm = Vm::start(config).await?;
//! println!("{}: {}", vm.accelerator().kind, vm.accelerator().reason);
//! let plugged = vm.resize(layout.requested_bytes(1)).await?;
//! println!("one partition more after {:?}", plugged.latency);
//! println!("{:?}", vm.agent()?.info().await?);
//! vm.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Every error is a [`VmError`], one readable sentence. Whatever ends the VM (its process dies or
//! hangs, the VMM pauses it, the kernel panics, the agent disappears) fails every call that is
//! waiting for it with the reason, within seconds; its process is gone then, and its memory is the
//! host's again. Dropping a [`Vm`] kills its process; so does the death of the program that started
//! it. A VM leaves no files: its sockets are passed to the VMM as
//! descriptors.
//!
//! [`memory::GuestMemory`] describes what a VM's memory consists of, and [`mechanism::Mechanism`]
//! how instances get theirs from it.

mod accelerator;
mod agent;
mod artifacts;
mod backend;
mod config;
mod console;
mod cpu_share;
mod error;
#[cfg(test)]
#[path = "../../../scripts/executable.rs"]
mod executable;
mod fate;
pub mod heap;
mod host_memory;
mod hyperalloc;
mod measure;
pub mod mechanism;
pub mod memory;
mod memory_backend;
mod mutex;
mod names;
pub mod network;
mod process;
#[cfg(test)]
#[path = "../../../scripts/skip.rs"]
mod skip;
mod vm;

pub use accelerator::{Accelerator, AcceleratorChoice, AcceleratorKind, probe_kvm};
pub use agent::{AgentClient, OutputReader, OutputStream};
pub use artifacts::{Artifacts, Kernel};
pub use backend::{
    BoxFuture, DeviceRequests,
    qemu::{options::QemuOptions, probe_qemu},
};
pub use config::{GuestClock, Llfree, Timeouts, VmConfig, Vmm};
pub use console::Console;
pub use cpu_share::{CpuShare, CpuShares};
pub use error::{Result, VmError};
pub use host_memory::{SHARED_HUGE_PAGES_ON, SharedHugePages};
pub use hyperalloc::{Grain, Taken};
pub use measure::{
    CpuTimes, Resident, available_bytes, machine_bytes, memory_stat_bytes, transparent_huge_pages,
};
pub use memory::{
    GRANULE_BYTES, MAX_INSTANCES, MEMORY_BLOCK_BYTES, PartitionLayout, Resize, round_up,
};
pub use memory_backend::{MemoryBackend, MemoryBackendChoice};
pub use vm::{BootStep, MemoryUse, Vm};
