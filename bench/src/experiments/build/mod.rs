//! The host memory of a VM while a C project is compiled in it, when its products are removed, and when the page
//! cache is dropped (Figures 7 and 8 of the HyperAlloc paper). See README.md.

mod report;

use crate::{
    error::Result,
    harness::{Experiment, Session},
    rigs::compile_vm::{
        CLEAN, CompileVm, Footprint, LIMIT, PERIOD, Reclaim, SHORT_PERIOD, compile, watch,
    },
};
use serde::{Deserialize, Serialize};
use squeezy_vmm::{Grain, Kernel, MemoryBackend};
use std::time::{Duration, Instant};

/// In the order of the plot.
const METHODS: [Reclaim; 9] = [
    Reclaim::Nothing,
    Reclaim::NothingLlfree,
    Reclaim::Reporting(9),
    Reclaim::Reporting(0),
    Reclaim::ReportingSoon(9),
    Reclaim::ReportingSoon(0),
    Reclaim::Soft(Grain::Area, PERIOD),
    Reclaim::Soft(Grain::Page, PERIOD),
    Reclaim::Soft(Grain::Page, SHORT_PERIOD),
];

/// How often the project is compiled, each time into a directory of its own.
const DIRECTORIES: u32 = 2;
/// How long the VM is watched after each of the others: more than a period.
const SETTLING: Duration = Duration::from_secs(8);

/// The host memory of a VM while a C project is compiled in it, and afterwards.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// What happens in the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    /// The project is compiled.
    Compile,
    /// What was made is removed.
    Clean,
    /// The page cache is dropped.
    DropCache,
}

/// A phase of a trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    phase: Phase,
    #[serde(flatten)]
    footprint: Footprint,
    /// What the guest does not have free at the end.
    used_bytes: u64,
    /// CPU time of the VM's virtual processors.
    vcpus_ns: u64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "build";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        // Only memory that the host shares can be taken from outside, so all methods have it.
        session.options.memory_backend = MemoryBackend::Memfd;
        let trials = session.options.trials_or(1, 5);
        let has_benchmark =
            session.has_kernel(Kernel::Benchmark, &"free page reporting after 100 ms");
        let methods: Vec<_> = METHODS
            .into_iter()
            .filter(|reclaim| has_benchmark || reclaim.kernel() != Kernel::Benchmark)
            .collect();
        let in_trial = |trial| Reclaim::in_trial(&methods, trial);
        session.progress.plan((0..trials).flat_map(in_trial).count() as f64);
        for trial in 0..trials {
            let start = Instant::now();
            for reclaim in in_trial(trial) {
                session.progress.say(&format!("trial {} of {trials}: {reclaim}", trial + 1));
                one(session, reclaim, trial).await?;
                session.progress.advance(1.0);
            }
            if !session.has_time(start.elapsed()) {
                break;
            }
        }
        Ok(())
    }
}

/// Everything in one VM.
async fn one(session: &mut Session<Figures>, reclaim: Reclaim, trial: u32) -> Result {
    let vm = CompileVm::start(session, reclaim).await?;
    vm.begin(&format!(
        "{}; echo built; sleep {}; {CLEAN}; echo clean; sleep 1000",
        compile(DIRECTORIES),
        SETTLING.as_secs()
    ))
    .await?;
    for phase in [Phase::Compile, Phase::Clean, Phase::DropCache] {
        let before = vm.vm().cpu_times()?;
        let work = async {
            match phase {
                Phase::Compile => vm.said("built", LIMIT).await?,
                Phase::Clean => {
                    vm.said("clean", SETTLING * 3).await?;
                    tokio::time::sleep(SETTLING).await;
                }
                Phase::DropCache => {
                    vm.vm().agent()?.drop_page_cache().await?;
                    tokio::time::sleep(SETTLING).await;
                }
            }
            Ok(())
        };
        let ((), footprint) = watch(&[&vm], reclaim, work).await?;
        let after = vm.vm().cpu_times()?;
        let memory = vm.vm().agent()?.memory().await?.meminfo_bytes;
        let of = |name: &str| memory.get(name).copied().unwrap_or(0);
        let figures = Figures {
            phase,
            footprint,
            used_bytes: of("MemTotal").saturating_sub(of("MemFree")),
            vcpus_ns: after.vcpus_ns.saturating_sub(before.vcpus_ns),
        };
        session.keep(session.header(&reclaim.to_string(), trial, Some(vm.guest())), figures)?;
    }
    vm.stop().await
}
