//! One VM, from its start to its end.

mod boot;
mod condemn;
mod lenience;
mod memory;
mod pause;
mod starving;
mod supervisor;
mod swept;
mod upkeep;

use crate::{
    Accelerator, AgentClient, Console, CpuTimes, Result, VmConfig, VmError, backend::Backend,
    fate::Fate, host_memory::HostMemory, hyperalloc::Reclaimer, measure, memory::Elastic,
};
use squeezy_protocol::PartitionNumber;
use std::{
    collections::BTreeSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use swept::Swept;
use tokio::sync::{Mutex, Semaphore, watch};

pub use boot::BootStep;
pub use memory::MemoryUse;

/// How long the VMM's process may take to exit once it has been killed.
const EXIT_LIMIT: Duration = Duration::from_secs(10);

/// Most threads that work on the memory of one VM at a time.
const MOST_HANDS: usize = 8;

/// A running VM. Dropping it kills it.
pub struct Vm {
    shared: Arc<Shared>,
    agent: Option<AgentClient>,
}

/// Shared by the VM's handle and its supervisor.
struct Shared {
    config: VmConfig,
    accelerator: Accelerator,
    backend: Arc<dyn Backend>,
    /// Where its memory is.
    host_memory: HostMemory,
    /// Takes free memory out of the guest, if its page allocator lets the host.
    reclaimer: Arc<OnceLock<Arc<Reclaimer>>>,
    /// The resizable parts of its memory, by number. Dropped with this struct, after the VMM's
    /// process has exited.
    elastic: Vec<Box<dyn Elastic>>,
    console: Console,
    fate: Fate,
    /// Whether the VM is being stopped on purpose.
    stopping: AtomicBool,
    /// Whether its processors were stopped on request.
    paused: watch::Sender<bool>,
    /// Partitions whose instances have to be killed when it runs again. Locked while it is being paused or resumed.
    condemned: Arc<Mutex<BTreeSet<PartitionNumber>>>,
    started: Instant,
    /// What sweeps have taken.
    swept: Swept,
    /// For each thread that may work on its memory at a time.
    hands: Arc<Semaphore>,
}

impl Vm {
    /// The configuration it was started with.
    pub fn config(&self) -> &VmConfig {
        &self.shared.config
    }

    /// Which accelerator it uses, and why.
    pub fn accelerator(&self) -> &Accelerator {
        &self.shared.accelerator
    }

    /// The VMM's name and version.
    pub fn vmm_version(&self) -> &str {
        self.shared.backend.version()
    }

    /// The VMM's process id.
    pub fn process_id(&self) -> u32 {
        self.shared.backend.process().id()
    }

    /// The guest's console.
    pub fn console(&self) -> &Console {
        &self.shared.console
    }

    /// The agent's client. Fails if the VM was started without an agent.
    pub fn agent(&self) -> Result<&AgentClient> {
        self.agent.as_ref().ok_or(VmError::NoAgent)
    }

    /// Why the VM has ended, if it has. Its process is gone then, and its memory is the host's again.
    pub fn ended(&self) -> Option<VmError> {
        self.shared.fate.known()
    }

    /// Waits until the VM has ended; returns why.
    pub async fn wait(&self) -> VmError {
        self.shared.fate.ended().await
    }

    /// CPU time that the VMM's threads have used.
    pub fn cpu_times(&self) -> Result<CpuTimes> {
        measure::cpu_times(self.process_id(), |name| self.shared.backend.thread_role(name))
    }

    /// Ends the VM at once for this reason, unless it ends for another one already. [`Vm::wait`] returns when it has.
    pub fn kill(&self, reason: VmError) {
        self.shared.fate.seal(reason);
    }

    /// Ends the VM: the guest powers off, or is killed if it does not do so in time or is paused.
    /// Returns once its process is gone and its memory is the host's again.
    pub async fn stop(&self) -> Result<()> {
        let shared = &*self.shared;
        shared.stopping.store(true, Ordering::SeqCst);
        let process = shared.backend.process();
        let may_be_asked = !shared.fate.is_sealed() && !self.is_paused();
        if let Some(agent) = self.agent.as_ref().filter(|_| may_be_asked) {
            let polite = async {
                let _ = agent.shutdown().await;
                process.exited().await
            };
            let _ = tokio::time::timeout(shared.config.timeouts.stop, polite).await;
        }
        let _ = tokio::time::timeout(Duration::from_secs(1), shared.backend.quit()).await;
        shared.fate.seal(VmError::Stopped);
        if process.end(EXIT_LIMIT).await {
            shared.fate.ended().await;
            Ok(())
        } else {
            Err(VmError::System {
                what: "the VMM's process does not end",
                reason: format!("process {} hangs in the kernel", process.id()),
            })
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.shared.fate.seal(VmError::Stopped);
        self.shared.backend.process().kill();
    }
}
