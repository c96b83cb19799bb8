//! What allocating a page costs with LLFree and with Linux' own allocator, and how whole a long life leaves free
//! memory. See README.md.

mod report;
mod together;

use crate::{
    error::{BenchError, Result},
    harness::{Experiment, Session},
    record::Recorded,
    rigs::{
        faultbench::faultbench,
        program_vm::{Place, ProgramVm},
    },
};
use serde::{Deserialize, Serialize};
use squeezy_vmm::{GuestClock, Kernel, PartitionLayout, VmConfig};
use std::{fmt, sync::Arc, time::Duration};

/// Size of the partition.
const PARTITION_BYTES: u64 = 256 << 20;
/// Base memory of each VM: Linux disables transparent huge pages in a VM that boots with less than
/// 512 MiB.
const BASE_BYTES: u64 = 1 << 30;
/// Page faults that are measured by the instructions they take.
const FAULTS: [&str; 2] = ["fault-small", "fault-huge"];
/// Processes that fault at the same time, each on a processor of its own.
const PROCESSORS: [u16; 3] = [1, 2, 4];
/// Processors that do not exist, which take turns.
const MANY: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];
/// How long the VM may take for its long life, and to boot while it measures.
const LIMIT: Duration = Duration::from_secs(600);

/// The allocators to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allocator {
    /// Linux' own: free lists, and lists for each processor in front of them
    Buddy,
    /// LLFree, also for the memory that the VM boots with
    Llfree,
}

impl fmt::Display for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Buddy => "buddy",
            Self::Llfree => "llfree",
        })
    }
}

const ALLOCATORS: [Allocator; 2] = [Allocator::Buddy, Allocator::Llfree];

/// What allocating a page costs, and how whole free memory is after a long life, by allocator.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "test")]
pub(crate) enum Test {
    /// The kernel allocates blocks of an order, and then frees them.
    Many { order: u32 },
    /// The kernel allocates a block and frees it, again and again.
    One { order: u32 },
    /// Page faults of `faultbench`, by the name of its test.
    Fault {
        /// Its name there.
        fault: String,
        /// Whether the process is in a partition.
        in_partition: bool,
        /// Processes that do so at the same time.
        processes_count: u16,
    },
    /// Memory after a long life.
    Life,
    /// First writes to 2 MiB then; an operation is 4 KiB of them.
    FaultAfterLife {
        /// Whether the kernel may move others' pages for them.
        compacts: bool,
        /// Whether they have become a huge page.
        is_huge: bool,
    },
    /// Pages allocated and freed by processors that do not exist, by the guest's code in this program.
    Together {
        /// Processors.
        processors_count: u16,
        /// Turns of each after an allocation: none, or as many as a page fault takes otherwise.
        turns: u32,
    },
}

/// A trial of a test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    #[serde(flatten)]
    test: Test,
    /// What was counted: `instructions` by the guest's clock, at one per nanosecond, `time` by it, or `accesses`
    /// to the allocator's state.
    clock: String,
    /// Operations of each process.
    operations_count: u64,
    /// Duration of an operation; the mean of the processes.
    operation_ns: f64,
    /// Memory that a process asked for: three quarters of what was free.
    asked_bytes: u64,
    /// What it got in huge pages.
    huge_bytes: u64,
    /// What it got in huge pages if the kernel moved others' pages for them.
    compacted_bytes: u64,
    /// Accesses to the allocator's state, if they were counted, for an operation.
    accesses: Option<f64>,
    /// Changes of it that another processor had come before, likewise.
    failed_changes: Option<f64>,
}

impl Figures {
    fn timed(test: Test, clock: &str, operations_count: u64, elapsed_ns: f64) -> Self {
        Self {
            test,
            clock: clock.to_owned(),
            operations_count,
            operation_ns: elapsed_ns / operations_count.max(1) as f64,
            asked_bytes: 0,
            huge_bytes: 0,
            compacted_bytes: 0,
            accesses: None,
            failed_changes: None,
        }
    }
}

/// A line of the kernel's benchmark.
#[derive(Deserialize)]
struct Benchmark {
    order: u32,
    blocks: u64,
    get_ns: u64,
    put_ns: u64,
    pair_ns: u64,
}

/// What `churn` prints.
#[derive(Deserialize)]
struct Life {
    asked_bytes: u64,
    huge_bytes: u64,
    compacted_bytes: u64,
    at_once: Faults,
    compacted: Faults,
}

/// How long first writes to 2 MiB took, of those that became huge pages and of those that did not.
#[derive(Deserialize)]
struct Faults {
    huge_count: u64,
    huge_ns: u64,
    small_count: u64,
    small_ns: u64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "allocator";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        if !session.has_kernel(Kernel::Benchmark, &"everything; `make kernel-benchmark` builds it")
        {
            return Ok(());
        }
        let quick = session.options.quick;
        let trials = session.options.trials_or(2, 10);
        let lives = if quick { 1 } else { trials };
        session.progress.plan(f64::from(3 * trials + 4 * lives));
        together(session, trials)?;
        by_instructions(session, trials).await?;
        at_once(session, trials, if quick { 500 } else { 2_000 }).await?;
        for trial in 0..lives {
            for clock in [GuestClock::Time, GuestClock::Instructions] {
                for allocator in ALLOCATORS {
                    session.progress.say(&format!("life {} of {lives}, {allocator}", trial + 1));
                    long_life(session, allocator, clock, trial).await?;
                    session.progress.advance(1.0);
                }
            }
        }
        Ok(())
    }
}

/// How much processors get in each other's way, on as many as this machine does not have.
fn together(session: &mut Session<Figures>, trials: u32) -> Result {
    for trial in 0..trials {
        session.progress.say(&format!("processors taking turns: round {} of {trials}", trial + 1));
        for turns in [0, together::FAULT_TURNS] {
            for processors_count in MANY {
                let counted = together::together(processors_count, turns, trial.into());
                let each = |count: u64| Some(count as f64 / counted.operations_count as f64);
                let test = Test::Together { processors_count, turns };
                let figures = Figures {
                    accesses: each(counted.accesses_count),
                    failed_changes: each(counted.failed_count),
                    ..Figures::timed(test, "accesses", counted.operations_count, 0.0)
                };
                let header = session.header(&Allocator::Llfree.to_string(), trial, None);
                session.keep(header, figures)?;
            }
        }
    }
    Ok(())
}

async fn boot<F: Recorded>(
    session: &Session<F>,
    allocator: Allocator,
    adjust: impl FnOnce(&mut VmConfig),
) -> Result<ProgramVm> {
    ProgramVm::start(session, Kernel::Benchmark, |config| {
        config.base_bytes = BASE_BYTES;
        // Without a host that works on it: that would need a clock that counts time.
        if allocator == Allocator::Llfree {
            config.command_line.push("llfree=all".to_owned());
        }
        adjust(config);
    })
    .await
}

/// What a clock counts that is to count instructions: without emulation, time.
fn counted(session: &Session<Figures>) -> &'static str {
    if session.accelerator().emulates() { "instructions" } else { "time" }
}

/// What each operation costs, on a processor without others.
async fn by_instructions(session: &mut Session<Figures>, trials: u32) -> Result {
    let clock = counted(session);
    let mut vms = Vec::new();
    for allocator in ALLOCATORS {
        session.progress.say(&format!("booting with {allocator}"));
        let layout = PartitionLayout::new(PARTITION_BYTES, 1, 0);
        let vm = boot(session, allocator, |config| {
            config.memory = Arc::new(layout);
            config.clock = GuestClock::Instructions;
            config.vcpus = 1;
            config.command_line.push(format!("llfree_benchmark={trials}"));
        })
        .await?;
        vm.vm().resize(layout.requested_bytes(1)).await?;
        blocks(session, allocator, &vm, clock)?;
        vms.push((allocator, vm));
    }
    // The first round touches memory that the host has not allocated yet.
    for round in 0..=trials {
        session.progress.say(&format!("page faults: round {round} of {trials}"));
        for (allocator, vm) in &vms {
            for place in [Place::BootMemory, Place::Partition] {
                for printed in faultbench(vm, 0, place, &FAULTS, 200).await? {
                    let Some(trial) = round.checked_sub(1) else { continue };
                    let test = Test::Fault {
                        fault: printed.test,
                        in_partition: place == Place::Partition,
                        processes_count: 1,
                    };
                    let figures =
                        Figures::timed(test, clock, printed.operations, printed.elapsed_ns as f64);
                    let header = session.header(&allocator.to_string(), trial, Some(vm.guest()));
                    session.keep(header, figures)?;
                }
            }
        }
        session.progress.advance(1.0);
    }
    for (_, vm) in vms {
        vm.stop().await?;
    }
    Ok(())
}

/// What the kernel has measured while it booted.
fn blocks(
    session: &mut Session<Figures>,
    allocator: Allocator,
    vm: &ProgramVm,
    clock: &str,
) -> Result {
    const MARK: &str = "llfree benchmark: ";
    let mut trials = std::collections::BTreeMap::<u32, u32>::new();
    for line in vm.vm().console().tail(usize::MAX) {
        let Some((_, text)) = line.split_once(MARK) else { continue };
        let Ok(measured) = serde_json::from_str::<Benchmark>(text) else { continue };
        let trial = trials.entry(measured.order).or_default();
        let Benchmark { order, blocks, .. } = measured;
        let both_ns = measured.get_ns + measured.put_ns;
        for (test, elapsed_ns) in
            [(Test::Many { order }, both_ns), (Test::One { order }, measured.pair_ns)]
        {
            let figures = Figures::timed(test, clock, blocks, elapsed_ns as f64);
            session
                .keep(session.header(&allocator.to_string(), *trial, Some(vm.guest())), figures)?;
        }
        *trial += 1;
    }
    if trials.is_empty() {
        return Err(BenchError::Arguments(
            "the guest's kernel has printed no benchmark".to_owned(),
        ));
    }
    Ok(())
}

/// Faults of several processes at once, each on its own processor of the guest; in time.
async fn at_once(session: &mut Session<Figures>, trials: u32, duration_ms: u32) -> Result {
    let most = PROCESSORS.into_iter().max().unwrap_or(1);
    let mut vms = Vec::new();
    for allocator in ALLOCATORS {
        let vm = boot(session, allocator, |config| config.vcpus = u32::from(most)).await?;
        vms.push((allocator, vm));
    }
    for round in 0..=trials {
        session.progress.say(&format!("processes at once: round {round} of {trials}"));
        for processes_count in PROCESSORS {
            for (allocator, vm) in &vms {
                let run =
                    |index| faultbench(vm, index, Place::BootMemory, &FAULTS[..1], duration_ms);
                let printed =
                    futures_util::future::try_join_all((0..processes_count).map(run)).await?;
                let Some(trial) = round.checked_sub(1) else { continue };
                let all = || printed.iter().flatten();
                let count = all().count().max(1) as f64;
                let mean_ns = all()
                    .map(|one| one.elapsed_ns as f64 / one.operations.max(1) as f64)
                    .sum::<f64>()
                    / count;
                let operations = all().map(|one| one.operations).min().unwrap_or(0);
                let test = Test::Fault {
                    fault: all().next().map_or(String::new(), |one| one.test.clone()),
                    in_partition: false,
                    processes_count,
                };
                let figures = Figures::timed(test, "time", operations, mean_ns * operations as f64);
                let header = session.header(&allocator.to_string(), trial, Some(vm.guest()));
                session.keep(header, figures)?;
            }
        }
        session.progress.advance(1.0);
    }
    for (_, vm) in vms {
        vm.stop().await?;
    }
    Ok(())
}

/// Many processes come and go in a VM, the same in each trial of both allocators. Under a clock that counts
/// instructions, on a processor without others.
async fn long_life(
    session: &mut Session<Figures>,
    allocator: Allocator,
    guest_clock: GuestClock,
    trial: u32,
) -> Result {
    let rounds = if session.options.quick { "8" } else { "30" };
    let always = "transparent_hugepage=always".to_owned();
    let counts = guest_clock == GuestClock::Instructions;
    let clock = if counts { counted(session) } else { "time" };
    let vm = boot(session, allocator, |config| {
        config.command_line.push(always);
        config.clock = guest_clock;
        if counts {
            config.vcpus = 1;
        }
    })
    .await?;
    let seed = (trial + 1).to_string();
    let command = ["/bin/churn", "--rounds", rounds, "--seed", &seed];
    for life in vm.run::<Life>(0, Place::BootMemory, &command, LIMIT).await? {
        let header = session.header(&allocator.to_string(), trial, Some(vm.guest()));
        for (compacts, faults) in [(false, &life.at_once), (true, &life.compacted)] {
            for (is_huge, count, elapsed_ns) in [
                (true, faults.huge_count, faults.huge_ns),
                (false, faults.small_count, faults.small_ns),
            ] {
                // There may be none that did not become huge.
                if count > 0 {
                    let test = Test::FaultAfterLife { compacts, is_huge };
                    let figures = Figures::timed(test, clock, count * 512, elapsed_ns as f64);
                    session.keep(header.clone(), figures)?;
                }
            }
        }
        let figures = Figures {
            asked_bytes: life.asked_bytes,
            huge_bytes: life.huge_bytes,
            compacted_bytes: life.compacted_bytes,
            ..Figures::timed(Test::Life, clock, 0, 0.0)
        };
        session.keep(header, figures)?;
    }
    vm.stop().await
}
