//! A container in the VM, and the memory of its pod.

use super::Booted;
use crate::{
    error::{Error, ErrorKind, Result},
    layers::Taken,
    vm::{Container, Ended, Output, Signal, Usage},
};
use squeezy_protocol::{
    ErrorCode, ExitReason, InstanceId, InstanceSpec, InstanceState, NetworkAccess, OutputKind,
    PartitionChoice, PartitionNumber, Seccomp, SignalRequest,
};
use squeezy_vmm::{
    OutputStream, VmError,
    mechanism::{Slot, outside_bytes},
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::task::JoinHandle;

/// How long an instance may wait for its partition, in milliseconds. It is plugged already.
const PARTITION_WAIT_MS: u32 = 30_000;
/// The part of a pod's memory that its files may take, as a divisor: half, the default of tmpfs.
const FILES_PART: u64 = 2;

/// The memory of a pod: a slot of the VM's mechanism, and which container it is for. Locked until it is plugged or back.
#[derive(Clone, Default)]
pub(super) struct Memory(Arc<tokio::sync::Mutex<Option<(u64, Slot)>>>);

impl Memory {
    /// Gets memory for the container of this number. An error if another one has it.
    async fn plug(&self, booted: &Booted, container: u64) -> Result<()> {
        let mut memory = self.0.lock().await;
        if memory.is_some() {
            return Err(Error::unimplemented(
                "a second container in a pod is not supported by this runtime",
            ));
        }
        let slot = booted.mechanism.slots().take()?;
        booted.mechanism.plug(&booted.vm, slot).await?;
        *memory = Some((container, slot));
        Ok(())
    }

    /// Begins to give back the memory of this container, or of whichever has it. Whoever comes after this finds it gone.
    pub(super) async fn give_back(
        &self,
        booted: &Arc<Booted>,
        container: Option<u64>,
    ) -> JoinHandle<()> {
        let mut memory = self.0.clone().lock_owned().await;
        let slot = memory.take_if(|(owner, _)| container.is_none_or(|number| number == *owner));
        let booted = booted.clone();
        tokio::spawn(async move {
            if let Some((_, slot)) = slot {
                reclaim(&booted, slot).await;
            }
            drop(memory);
        })
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

async fn reclaim(booted: &Booted, slot: Slot) {
    let reclaimed = match booted.mechanism.slots().free(slot) {
        Ok(()) => booted.mechanism.reclaim(&booted.vm, slot).await,
        Err(error) => Err(error),
    };
    match reclaimed {
        Ok(resize) => {
            let latency = resize.map(|resize| resize.latency).unwrap_or_default();
            tracing::info!(?latency, "the memory of a pod is back");
        }
        // The guest goes on with it, and whoever resizes next asks for as much more.
        Err(error) => tracing::error!("the memory of a pod is not back: {error}"),
    }
}

/// A container that was made.
pub(super) struct Made {
    number: u64,
    spec: InstanceSpec,
    memory: Memory,
    partition_bytes: u64,
    layers: Mutex<Option<Taken>>,
    /// Its partition, once it has started.
    partition: Mutex<Option<PartitionNumber>>,
}

impl Made {
    /// Makes a container, which is the only one of its pod. If that fails, nothing of it is left.
    pub(super) async fn new(
        booted: &Arc<Booted>,
        number: u64,
        container: &Container,
        memory: Memory,
        partition_bytes: u64,
    ) -> Result<Self> {
        memory.plug(booted, number).await?;
        let taken = match booted.pool.take(&booted.cache, &**booted, &container.layers).await {
            Ok(taken) => taken,
            Err(error) => {
                let _ = memory.give_back(booted, Some(number)).await.await;
                return Err(error);
            }
        };
        let process = &container.process;
        let spec = InstanceSpec {
            // containerd's identifiers are longer than the agent's, and have other letters.
            id: format!("container-{number}").parse().expect("it is an id"),
            command: process.arguments.clone(),
            environment: process.environment.clone(),
            working_directory: process.working_directory.clone(),
            image: None,
            layers: taken.offsets().to_vec(),
            partition: PartitionChoice::Any,
            wait_ms: PARTITION_WAIT_MS,
            memory_limit_bytes: Some(outside_bytes(partition_bytes)),
            files_limit_bytes: Some(partition_bytes / FILES_PART),
            memory_node: None,
            cpu_share_millis: None,
            cpu_limit_millis: None,
            seccomp: Seccomp::Default,
            output: OutputKind::Streams,
            user: process.user.clone(),
            read_only_root: process.read_only_root,
            port: None,
            network: NetworkAccess::None,
        };
        let layers = Mutex::new(Some(taken));
        Ok(Self { number, spec, memory, partition_bytes, layers, partition: Mutex::default() })
    }

    fn id(&self) -> &InstanceId {
        &self.spec.id
    }

    /// Whether its memory is this pod's.
    pub(super) fn belongs_to(&self, memory: &Memory) -> bool {
        self.memory.is_same(memory)
    }

    /// Starts its process. If that fails, it is as it was.
    pub(super) async fn start(&self, booted: &Arc<Booted>) -> Result<Output> {
        let agent = booted.vm.agent()?;
        let instance = agent.start(&self.spec).await?;
        *lock(&self.partition) = instance.partition;
        let streams = tokio::try_join!(
            agent.output(self.id(), OutputStream::Output),
            agent.output(self.id(), OutputStream::Error)
        );
        match streams {
            Ok((stdout, stderr)) => {
                Ok(Output { stdout: Box::new(stdout), stderr: Box::new(stderr) })
            }
            Err(error) => {
                let _ = agent.stop(self.id(), Duration::ZERO).await;
                Err(error.into())
            }
        }
    }

    /// Waits until its process has ended. Its memory is being given back when this returns.
    pub(super) async fn wait(&self, booted: &Arc<Booted>) -> Result<Ended> {
        let agent = booted.vm.agent()?;
        let instance = agent.wait(self.id()).await?;
        // All processes are gone, and with it the guest forgets the instance.
        if let Err(error) = agent.stop(self.id(), Duration::ZERO).await {
            tracing::error!("instance {}: {error}", self.id());
        }
        // Nobody has to wait for it.
        drop(self.memory.give_back(booted, Some(self.number)).await);
        ended(instance.state)
    }

    /// Sends a signal to its process, or to all of them.
    pub(super) async fn signal(
        &self,
        booted: &Arc<Booted>,
        signal: Signal,
        all: bool,
    ) -> Result<()> {
        let request = SignalRequest { signal: signal.number(), all };
        match booted.vm.agent()?.signal(self.id(), request).await {
            // containerd takes this for what it is.
            Err(VmError::Agent { code: ErrorCode::NotFound | ErrorCode::Unavailable, .. }) => {
                Err(Error::new(ErrorKind::NotFound, "the process has ended already"))
            }
            other => Ok(other?),
        }
    }

    /// What it uses now.
    pub(super) async fn usage(&self, booted: &Arc<Booted>) -> Result<Usage> {
        let outside = booted.vm.agent()?.usage(self.id()).await?;
        let partition = *lock(&self.partition);
        let resident_bytes = match partition {
            Some(number) => booted.vm.partition_resident(number).await?,
            None => 0,
        };
        Ok(Usage {
            memory_bytes: resident_bytes + outside.memory_bytes,
            memory_limit_bytes: self.partition_bytes,
            cpu_us: outside.cpu_us,
            processes: outside.processes,
        })
    }

    /// Gives back what it has. Its process does not run.
    pub(super) async fn unmake(&self, booted: &Arc<Booted>) {
        let _ = self.memory.give_back(booted, Some(self.number)).await.await;
        let layers = lock(&self.layers).take();
        if let Some(layers) = layers {
            booted.pool.leave(layers).await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How an instance has ended, as a shell has it.
fn ended(state: InstanceState) -> Result<Ended> {
    let number = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    let (status, out_of_memory) = match state {
        InstanceState::Ended(ExitReason::Exited(status)) => (number(status), false),
        InstanceState::Ended(ExitReason::Killed(signal)) => {
            (number(signal.saturating_add(128)), false)
        }
        InstanceState::Ended(ExitReason::ExceededMemory) => (Signal::KILL.status(), true),
        InstanceState::Ended(ExitReason::Stopped) => (Signal::KILL.status(), false),
        InstanceState::Starting | InstanceState::Running => {
            return Err(Error::failed("the guest says that a process has ended that runs"));
        }
    };
    Ok(Ended { status, out_of_memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_as_a_shell_has_it() {
        let of = |reason| ended(InstanceState::Ended(reason)).unwrap();
        for (reason, status, out_of_memory) in [
            (ExitReason::Exited(0), 0, false),
            (ExitReason::Exited(7), 7, false),
            (ExitReason::Killed(15), 143, false),
            (ExitReason::Killed(9), 137, false),
            (ExitReason::Stopped, 137, false),
            (ExitReason::ExceededMemory, 137, true),
            // What no kernel says.
            (ExitReason::Exited(-1), 255, false),
            (ExitReason::Killed(i32::MAX), 255, false),
        ] {
            assert_eq!(of(reason), Ended { status, out_of_memory }, "{reason:?}");
        }
        assert!(ended(InstanceState::Running).is_err());
    }
}
