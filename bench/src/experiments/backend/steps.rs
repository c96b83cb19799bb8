//! The steps of a trial.

use super::{Figures, Step};
use crate::{
    error::{BenchError, Result},
    harness::Session,
    record::{Guest, nanoseconds},
    rigs::{
        load::Arrival,
        memhog_vm::{MemhogVm, floor as without_guest, hog_bytes},
        node_rig::{NodeRig, NodeRigPlan, Seen},
    },
};
use squeezy_node::{FunctionImage, PolicyName};
use squeezy_vmm::{
    Grain, Llfree, MemoryBackend, MemoryUse, VmError,
    mechanism::{MechanismName, Sizing},
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The size of an instance.
const SIZE_BYTES: u64 = 512 << 20;
/// What a frozen instance has had; most of it is free by then.
const FROZEN_BYTES: u64 = 256 << 20;
/// How long an idle function's VM may take to be paused.
const PAUSE_LIMIT: Duration = Duration::from_secs(60);
/// Interval of looks whether it is.
const LOOK: Duration = Duration::from_millis(50);

/// A VM of memhog from boot to end.
pub(super) async fn memhog(session: &mut Session<Figures>, trial: u32) -> Result {
    let is_file = session.options.memory_backend == MemoryBackend::Memfd;
    let sizing = Sizing { instance_bytes: SIZE_BYTES, instances: 2, shared_bytes: 0 };
    let begin = Instant::now();
    let mut vm = MemhogVm::start_with(session, MechanismName::Squeezy, sizing, &[], |config| {
        // What gives a frozen instance's free memory back.
        if is_file {
            config.llfree = Llfree::Partitions;
        } else {
            config.free_page_reporting = true;
        }
    })
    .await?;
    keep(session, &vm, trial, Step::Boot, begin.elapsed()).await?;

    let plug = vm.plug(0).await?.ok_or(VmError::NotResizable("nothing was plugged"))?;
    keep(session, &vm, trial, Step::Plug, plug.latency).await?;
    let touched = vm.fill(&BTreeMap::from([(0, hog_bytes(SIZE_BYTES))])).await?;
    keep(session, &vm, trial, Step::Touch, Duration::from_nanos(touched.values().sum())).await?;

    vm.kill_all().await?;
    vm.settle().await;
    let before = Before::of(&vm).await?;
    // As a node does: it is the host's before the guest is even asked for it.
    let taken = if is_file { Some(vm.vm().take_all_free(Grain::Area).await?) } else { None };
    vm.take_back(0).await?;
    before.keep(session, &vm, trial, Step::Reclaim).await?;
    if let Some(taken) = taken {
        let now = vm.vm().memory().await?.resident;
        let figures = Figures {
            discard_ns: Some(nanoseconds(taken.discarding)),
            ..figures(Step::Take, taken.took, now.resident_bytes, now.huge_bytes)
        };
        write(session, trial, vm.guest(), figures)?;
    }

    for (step, freed, grain) in [
        (Step::Frozen, "--keep-every=16384", Grain::Area),
        (Step::FrozenPages, "--keep-every=2", Grain::Page),
    ] {
        let command = ["/bin/memhog".to_owned(), FROZEN_BYTES.to_string(), freed.to_owned()];
        let instance = vm.run(0, command.to_vec()).await?;
        let agent = vm.vm().agent()?;
        let partition = agent.freeze(&instance.id).await?.partition;
        let partition =
            partition.ok_or_else(|| BenchError::Arguments("no partition".to_owned()))?;
        vm.settle().await;
        let before = Before::of(&vm).await?;
        if is_file {
            vm.vm().take_free(partition, grain).await?;
        } else {
            agent.squeeze(&instance.id).await?;
        }
        before.keep(session, &vm, trial, step).await?;
        vm.vm().agent()?.stop(&instance.id, Duration::ZERO).await?;
        vm.take_back(0).await?;
    }
    vm.stop().await
}

/// The host discards what an instance had touched of a file, without a guest.
pub(super) async fn floor(session: &mut Session<Figures>, trial: u32) -> Result {
    for done in without_guest(hog_bytes(SIZE_BYTES), MemoryBackend::Memfd, 1).await? {
        let figures = Figures {
            discard_ns: Some(nanoseconds(done.discard)),
            resident_drop_bytes: Some(done.resident_drop_bytes),
            ..figures(Step::Take, done.discard, 0, 0)
        };
        session.keep(session.header("floor", trial, None), figures)?;
    }
    Ok(())
}

/// Just before memory is given back.
struct Before {
    memory: MemoryUse,
    vcpus_ns: u64,
    at: Instant,
}

impl Before {
    async fn of(vm: &MemhogVm) -> Result<Self> {
        let memory = vm.vm().memory().await?;
        let vcpus_ns = vm.vm().cpu_times()?.vcpus_ns;
        Ok(Self { memory, vcpus_ns, at: Instant::now() })
    }

    /// Records what has changed.
    async fn keep(
        self,
        session: &mut Session<Figures>,
        vm: &MemhogVm,
        trial: u32,
        step: Step,
    ) -> Result {
        let latency = self.at.elapsed();
        let vcpus_ns = vm.vm().cpu_times()?.vcpus_ns.saturating_sub(self.vcpus_ns);
        let now = vm.vm().memory().await?.resident;
        let figures = Figures {
            vcpus_ns: Some(vcpus_ns),
            resident_drop_bytes: Some(
                self.memory.resident.resident_bytes.saturating_sub(now.resident_bytes),
            ),
            ..figures(step, latency, now.resident_bytes, now.huge_bytes)
        };
        write(session, trial, vm.guest(), figures)
    }
}

/// Records a step that gives no memory back.
async fn keep(
    session: &mut Session<Figures>,
    vm: &MemhogVm,
    trial: u32,
    step: Step,
    latency: Duration,
) -> Result {
    let now = vm.vm().memory().await?.resident;
    let figures = figures(step, latency, now.resident_bytes, now.huge_bytes);
    write(session, trial, vm.guest(), figures)
}

fn figures(step: Step, latency: Duration, resident_bytes: u64, huge_bytes: u64) -> Figures {
    Figures {
        step,
        latency_ns: nanoseconds(latency),
        discard_ns: None,
        vcpus_ns: None,
        resident_drop_bytes: None,
        resident_bytes,
        huge_bytes,
    }
}

fn write(session: &mut Session<Figures>, trial: u32, guest: &Guest, figures: Figures) -> Result {
    let backend = session.options.memory_backend.to_string();
    session.keep(session.header(&backend, trial, Some(guest)), figures)
}

/// A function with a running VM and no instance is called.
pub(super) async fn cold_start(
    session: &mut Session<Figures>,
    functions: &[FunctionImage],
    trial: u32,
) -> Result {
    let policy = PolicyName::Mechanism(MechanismName::Squeezy);
    let plan = NodeRigPlan::abundant(policy, Duration::from_secs(3600));
    let rig = NodeRig::start(session, functions, &plan).await?;
    rig.warm_up().await?;
    let latency = call(&rig).await?;
    keep_of_rig(session, &rig, trial, Step::ColdStart, latency).await?;
    rig.stop().await;
    Ok(())
}

/// A function's VM is paused once nobody calls it.
pub(super) async fn paused(
    session: &mut Session<Figures>,
    functions: &[FunctionImage],
    trial: u32,
) -> Result {
    // Enough for the VM; what matters is only that there is a limit.
    let plan = NodeRigPlan::new(PolicyName::Overcommit, 16 << 30, Duration::from_secs(3600));
    let rig = NodeRig::start(session, functions, &plan).await?;
    call(&rig).await?;
    let begin = Instant::now();
    while !rig.seen().iter().any(|seen| matches!(seen, Seen::Paused)) {
        if begin.elapsed() > PAUSE_LIMIT {
            return Err(BenchError::function("its VM was not paused".to_owned()));
        }
        tokio::time::sleep(LOOK).await;
    }
    keep_of_rig(session, &rig, trial, Step::Paused, begin.elapsed()).await?;
    rig.stop().await;
    Ok(())
}

/// The latency of a correctly answered call.
async fn call(rig: &NodeRig) -> Result<Duration> {
    let answered = rig.call(Arrival { at: Duration::ZERO, member: 0 }).await;
    match answered.problem {
        None => Ok(answered.latency),
        Some(problem) => Err(BenchError::function(problem)),
    }
}

async fn keep_of_rig(
    session: &mut Session<Figures>,
    rig: &NodeRig,
    trial: u32,
    step: Step,
    latency: Duration,
) -> Result {
    let now = rig.sample(Instant::now()).await?.memory.resident;
    let guest = rig.guest();
    let guest = guest.ok_or_else(|| BenchError::function("no VM was booted".to_owned()))?;
    write(session, trial, &guest, figures(step, latency, now.resident_bytes, now.huge_bytes))
}
