//! The steps of a trial.

use super::{Figures, Method, Step};
use crate::{
    error::{BenchError, Result},
    harness::Session,
    record::nanoseconds,
    rigs::memhog_vm::{MemhogVm, floor as without_guest, hog_bytes},
};
use squeezy_vmm::{
    Grain, Llfree, VmError,
    mechanism::{MechanismName, Sizing},
};
use std::collections::BTreeMap;

/// What a frozen instance has freed, as in the paper's comparison of granularities.
const FROZEN_BYTES: u64 = 256 << 20;

pub(super) async fn one_vm(
    session: &mut Session<Figures>,
    method: Method,
    size_bytes: u64,
    trial: u32,
) -> Result {
    let mechanism = match method {
        Method::Resize(mechanism) => mechanism,
        _ => MechanismName::HyperAlloc,
    };
    let sizing = Sizing { instance_bytes: size_bytes, instances: 1, shared_bytes: 0 };
    let mut vm = MemhogVm::start(session, mechanism, sizing, &[]).await?;
    vm.plug(0).await?;
    vm.fill(&BTreeMap::from([(0, hog_bytes(size_bytes))])).await?;
    vm.kill_all().await?;
    if method == Method::Soft {
        take_free(session, &vm, size_bytes, trial).await?;
    } else {
        for step in [Step::TakeTouched, Step::GiveTouched, Step::TakeUntouched, Step::GiveUntouched]
        {
            resize(session, &mut vm, method, step, size_bytes, trial).await?;
        }
    }
    vm.stop().await
}

/// Takes or gives back the instance's memory.
async fn resize(
    session: &mut Session<Figures>,
    vm: &mut MemhogVm,
    method: Method,
    step: Step,
    size_bytes: u64,
    trial: u32,
) -> Result {
    vm.settle().await;
    let before = vm.vm().memory().await?;
    let is_stopped = method == Method::Stopped;
    if is_stopped {
        vm.vm().pause().await?;
        // Until the threads of its processors have gone to sleep.
        vm.settle().await;
    }
    let times = vm.vm().cpu_times()?;
    let resized = match step {
        Step::TakeTouched | Step::TakeUntouched => vm.take_back(0).await?,
        Step::GiveTouched | Step::GiveUntouched => vm.plug(0).await?,
    };
    let resized = resized.ok_or(VmError::NotResizable("nothing was resized"))?;
    let after = vm.vm().cpu_times()?;
    if is_stopped {
        vm.vm().resume().await?;
    }
    let now = vm.vm().memory().await?;
    let drop = before.resident.resident_bytes.saturating_sub(now.resident.resident_bytes);
    session.keep(
        session.header(&method.to_string(), trial, Some(vm.guest())),
        Figures {
            step,
            size_bytes,
            latency_ns: nanoseconds(resized.latency),
            discard_ns: resized.discarding.map(nanoseconds),
            moved_bytes: before.plugged_bytes.abs_diff(now.plugged_bytes),
            resident_drop_bytes: drop,
            huge_bytes: before.resident.huge_bytes,
            vcpus_ns: after.vcpus_ns.saturating_sub(times.vcpus_ns),
            devices_ns: after.devices_ns.saturating_sub(times.devices_ns),
        },
    )
}

/// Takes what is free, twice: the second time there is nothing left.
async fn take_free(
    session: &mut Session<Figures>,
    vm: &MemhogVm,
    size_bytes: u64,
    trial: u32,
) -> Result {
    for step in [Step::TakeTouched, Step::TakeUntouched] {
        vm.settle().await;
        let before = vm.vm().memory().await?;
        let times = vm.vm().cpu_times()?;
        let taken = vm.vm().take_all_free(Grain::Area).await?;
        let after = vm.vm().cpu_times()?;
        let now = vm.vm().memory().await?;
        let drop = before.resident.resident_bytes.saturating_sub(now.resident.resident_bytes);
        session.keep(
            session.header(&Method::Soft.to_string(), trial, Some(vm.guest())),
            Figures {
                step,
                size_bytes,
                latency_ns: nanoseconds(taken.took),
                discard_ns: Some(nanoseconds(taken.discarding)),
                moved_bytes: taken.bytes,
                resident_drop_bytes: drop,
                huge_bytes: before.resident.huge_bytes,
                vcpus_ns: after.vcpus_ns.saturating_sub(times.vcpus_ns),
                devices_ns: after.devices_ns.saturating_sub(times.devices_ns),
            },
        )?;
    }
    Ok(())
}

/// An instance frees its memory and is frozen, and its VM is stopped. Then the host takes what is free.
pub(super) async fn frozen(session: &mut Session<Figures>, trial: u32) -> Result {
    let sizing =
        Sizing { instance_bytes: FROZEN_BYTES + (64 << 20), instances: 2, shared_bytes: 0 };
    let mut vm = MemhogVm::start_with(session, MechanismName::Squeezy, sizing, &[], |config| {
        config.llfree = Llfree::Partitions;
    })
    .await?;
    let command = ["/bin/memhog".to_owned(), FROZEN_BYTES.to_string(), "--keep-every=16384".into()];
    let instance = vm.run(0, command.to_vec()).await?;
    let frozen = vm.vm().agent()?.freeze(&instance.id).await?;
    let partition =
        frozen.partition.ok_or_else(|| BenchError::Arguments("no partition".to_owned()))?;
    let before = vm.vm().memory().await?;
    vm.vm().pause().await?;
    let resident = vm.vm().partition_resident(partition).await?;
    let times = vm.vm().cpu_times()?;
    let taken = vm.vm().take_free(partition, Grain::Area).await?;
    let after = vm.vm().cpu_times()?;
    let left = vm.vm().partition_resident(partition).await?;
    vm.vm().resume().await?;
    session.keep(
        session.header(&Method::Frozen.to_string(), trial, Some(vm.guest())),
        Figures {
            step: Step::TakeTouched,
            size_bytes: FROZEN_BYTES,
            latency_ns: nanoseconds(taken.took),
            discard_ns: Some(nanoseconds(taken.discarding)),
            moved_bytes: taken.bytes,
            resident_drop_bytes: resident.saturating_sub(left),
            huge_bytes: before.resident.huge_bytes,
            vcpus_ns: after.vcpus_ns.saturating_sub(times.vcpus_ns),
            devices_ns: after.devices_ns.saturating_sub(times.devices_ns),
        },
    )?;
    vm.stop().await
}

/// The host discards as much memory, without a guest.
pub(super) async fn floor(session: &mut Session<Figures>, size_bytes: u64, trial: u32) -> Result {
    // As much as the instance had touched.
    let bytes = hog_bytes(size_bytes);
    for done in without_guest(bytes, session.options.memory_backend, 1).await? {
        session.keep(
            session.header(&Method::Floor.to_string(), trial, None),
            Figures {
                step: Step::TakeTouched,
                size_bytes,
                latency_ns: nanoseconds(done.discard),
                discard_ns: Some(nanoseconds(done.discard)),
                moved_bytes: bytes,
                resident_drop_bytes: done.resident_drop_bytes,
                huge_bytes: 0,
                vcpus_ns: 0,
                devices_ns: 0,
            },
        )?;
    }
    Ok(())
}
