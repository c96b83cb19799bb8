//! A VM that runs programs of the guest's initramfs to their end.

use super::memhog_vm::instance;
use crate::{
    error::{BenchError, Result},
    harness::Session,
    record::{Guest, Recorded},
};
use serde::de::DeserializeOwned;
use squeezy_protocol::{ExitReason, InstanceSpec, InstanceState, NetworkAccess, PartitionChoice};
use squeezy_vmm::{AgentClient, Kernel, Vm, VmConfig};
use std::time::Duration;

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a partition of its own.
    Partition,
    /// In the memory that the VM boots with.
    BootMemory,
}

/// A VM without instances of functions.
pub(crate) struct ProgramVm {
    vm: Vm,
    guest: Guest,
}

impl ProgramVm {
    /// Boots a VM with this kernel and whatever else `adjust` asks for.
    pub(crate) async fn start<F: Recorded>(
        session: &Session<F>,
        kernel: Kernel,
        adjust: impl FnOnce(&mut VmConfig),
    ) -> Result<Self> {
        let name = "bench-program";
        let mut config =
            VmConfig::new(name, session.files.kernel(kernel), session.files.initramfs());
        session.configure(&mut config);
        adjust(&mut config);
        let vm = Vm::start(config).await?;
        let release = vm.agent()?.info().await?.kernel_release;
        let guest = Guest::new(&release, kernel, vm.vmm_version());
        Ok(Self { vm, guest })
    }

    pub(crate) fn vm(&self) -> &Vm {
        &self.vm
    }

    pub(crate) fn guest(&self) -> &Guest {
        &self.guest
    }

    /// Runs a program, and returns the lines of JSON that it has printed: at least one. `index`
    /// tells programs apart that run at the same time.
    pub(crate) async fn run<T: DeserializeOwned>(
        &self,
        index: u16,
        place: Place,
        command: &[&str],
        limit: Duration,
    ) -> Result<Vec<T>> {
        let mut spec = instance(index, command.iter().map(|&word| word.to_owned()).collect())?;
        if place == Place::Partition {
            spec.partition = PartitionChoice::Any;
            spec.wait_ms = 20_000;
        }
        run_to_end(self.vm.agent()?, &spec, limit).await
    }

    /// Runs a program that may use the VM's network, and returns the line of JSON that it has printed.
    pub(crate) async fn run_outbound<T: DeserializeOwned>(
        &self,
        command: &[&str],
        limit: Duration,
    ) -> Result<T> {
        let mut spec = instance(0, command.iter().map(|&word| word.to_owned()).collect())?;
        spec.network = NetworkAccess::Outbound;
        let mut printed = run_to_end(self.vm.agent()?, &spec, limit).await?;
        Ok(printed.remove(0))
    }

    /// Ends the VM.
    pub(crate) async fn stop(self) -> Result {
        self.vm.stop().await?;
        Ok(())
    }
}

/// Runs a program, and returns the lines of JSON that it has printed: at least one.
pub(super) async fn run_to_end<T: DeserializeOwned>(
    agent: &AgentClient,
    spec: &InstanceSpec,
    limit: Duration,
) -> Result<Vec<T>> {
    let program = spec.command.join(" ");
    let fail = |reason: String| BenchError::Workload { program: program.clone(), reason };
    agent.start(spec).await?;
    let ended = tokio::time::timeout(limit, agent.wait(&spec.id)).await;
    let ended =
        ended.map_err(|_| fail(format!("it has not exited within {} s", limit.as_secs())))??;
    let log = agent.log(&spec.id).await?;
    agent.stop(&spec.id, Duration::ZERO).await?;
    if ended.state != InstanceState::Ended(ExitReason::Exited(0)) {
        return Err(fail(format!("{:?}: {}", ended.state, log.trim().replace('\n', "; "))));
    }
    let printed: Vec<T> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if printed.is_empty() {
        return Err(fail("it did not print a result".to_owned()));
    }
    Ok(printed)
}
