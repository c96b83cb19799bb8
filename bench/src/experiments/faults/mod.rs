//! The cost of page faults, new processes and system calls that allocate kernel memory: in a
//! partition, and in a kernel built with partitions but not using them. See README.md.

mod report;

use crate::{
    error::{BenchError, Result},
    harness::{Experiment, Session},
    rigs::{
        faultbench::faultbench,
        program_vm::{Place, ProgramVm},
    },
};
use serde::{Deserialize, Serialize};
use squeezy_vmm::{
    GuestClock, Kernel, PartitionLayout,
    memory::{Fixed, GuestMemory},
};
use std::{collections::BTreeSet, fmt, sync::Arc};

/// Size of the partition, and of the shared memory, so that both processes have the same room.
const PARTITION_BYTES: u64 = 256 << 20;
/// Base memory of each VM: Linux disables transparent huge pages in a VM that boots with less than
/// 512 MiB.
const BASE_BYTES: u64 = 640 << 20;

/// The cases to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum Case {
    /// A process in a partition
    Assigned,
    /// A process outside any partition, in the same VM
    Unassigned,
    /// The same kernel without a partition
    Unused,
    /// A kernel built without the option
    Off,
}

impl Case {
    const ALL: [Self; 4] = [Self::Assigned, Self::Unassigned, Self::Unused, Self::Off];

    fn kernel(self) -> Kernel {
        if self == Self::Off { Kernel::Off } else { Kernel::Release }
    }

    fn place(self) -> Place {
        if self == Self::Assigned { Place::Partition } else { Place::BootMemory }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Assigned => "assigned",
            Self::Unassigned => "unassigned",
            Self::Unused => "unused",
            Self::Off => "off",
        })
    }
}

/// What the guest's clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Clock {
    /// Instructions without KVM, time with it
    Auto,
    /// The guest's instructions, at one per nanosecond; not with KVM
    Instructions,
    /// Time
    Time,
}

/// Cost of page faults, new processes and system calls in a partition, and in a kernel built with
/// partitions.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The cases to compare, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    methods: Vec<Case>,
    /// What the guest's clock counts
    #[arg(long, value_enum, default_value_t = Clock::Auto)]
    clock: Clock,
    /// Minimum duration of a trial of one test, in milliseconds of the guest's clock
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(10..=60_000))]
    duration: Option<u32>,
}

/// One trial of one test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// What the guest's clock counted: `instructions`, at one per nanosecond, or `time`.
    clock: String,
    /// The test's name in `faultbench`.
    test: String,
    /// Number of operations.
    operations_count: u64,
    /// Their total duration on the guest's clock.
    elapsed_ns: u64,
    /// Duration of one operation.
    operation_ns: f64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "faults";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let mut cases: Vec<Case> =
            self.methods.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        if cases.is_empty() {
            cases = Case::ALL.to_vec();
            cases.retain(|&case| case != Case::Off || session.has_kernel(Kernel::Off, &case));
        }
        let emulates = session.accelerator().emulates();
        if self.clock == Clock::Instructions && !emulates {
            return Err(BenchError::Arguments(
                "only the accelerator `tcg` can count instructions".to_owned(),
            ));
        }
        let counting = self.clock != Clock::Time && emulates;
        let trials = session.options.trials_or(4, if counting { 10 } else { 40 });
        let duration = self.duration.unwrap_or(if session.options.quick { 100 } else { 200 });
        // The first round is a warm-up: it touches memory that the host has not allocated yet.
        session.progress.plan(f64::from(trials + 1));
        let beds = Beds::start(session, &cases, counting).await?;
        for round in 0..=trials {
            let start = std::time::Instant::now();
            session.progress.say(&format!("round {round} of {trials}"));
            // Rotated, so that each case is at each position equally often.
            let mut order = cases.clone();
            if round % 2 == 1 {
                order.reverse();
            }
            for case in order {
                let bed = beds.of(case)?;
                for printed in faultbench(bed, 0, case.place(), &[], duration).await? {
                    if let Some(trial) = round.checked_sub(1) {
                        session.keep(
                            session.header(&case.to_string(), trial, Some(bed.guest())),
                            Figures {
                                clock: if counting { "instructions" } else { "time" }.to_owned(),
                                test: printed.test,
                                operations_count: printed.operations,
                                elapsed_ns: printed.elapsed_ns,
                                operation_ns: printed.elapsed_ns as f64
                                    / printed.operations.max(1) as f64,
                            },
                        )?;
                    }
                }
            }
            session.progress.advance(1.0);
            if round > 0 && !session.has_time(start.elapsed()) {
                break;
            }
        }
        beds.stop().await
    }
}

/// A VM for some of the cases.
async fn boot(
    session: &Session<Figures>,
    kernel: Kernel,
    memory: impl GuestMemory + 'static,
    counting: bool,
) -> Result<ProgramVm> {
    ProgramVm::start(session, kernel, |config| {
        config.base_bytes = BASE_BYTES;
        config.memory = Arc::new(memory);
        if counting {
            config.clock = GuestClock::Instructions;
            // Instructions of other processors would count too.
            config.vcpus = 1;
        }
    })
    .await
}

/// The VMs, all running at the same time, so that the cases can take turns.
struct Beds {
    partitions: Option<ProgramVm>,
    unused: Option<ProgramVm>,
    off: Option<ProgramVm>,
}

impl Beds {
    async fn start(session: &Session<Figures>, cases: &[Case], counting: bool) -> Result<Self> {
        let mut beds = Self { partitions: None, unused: None, off: None };
        // As much memory as the VM with partitions has.
        let fixed = Fixed { extra_bytes: 2 * PARTITION_BYTES };
        for &case in cases {
            session.progress.say(&format!("booting for {case}"));
            match case {
                Case::Assigned | Case::Unassigned if beds.partitions.is_none() => {
                    let layout = PartitionLayout::new(PARTITION_BYTES, 1, PARTITION_BYTES);
                    let bed = boot(session, case.kernel(), layout, counting).await?;
                    bed.vm().resize(layout.requested_bytes(1)).await?;
                    beds.partitions = Some(bed);
                }
                Case::Assigned | Case::Unassigned => {}
                Case::Unused => {
                    beds.unused = Some(boot(session, case.kernel(), fixed, counting).await?)
                }
                Case::Off => beds.off = Some(boot(session, case.kernel(), fixed, counting).await?),
            }
        }
        Ok(beds)
    }

    fn of(&self, case: Case) -> Result<&ProgramVm> {
        let bed = match case {
            Case::Assigned | Case::Unassigned => &self.partitions,
            Case::Unused => &self.unused,
            Case::Off => &self.off,
        };
        bed.as_ref()
            .ok_or_else(|| BenchError::Arguments(format!("there is no VM for the case `{case}`")))
    }

    async fn stop(self) -> Result {
        for bed in [self.partitions, self.unused, self.off].into_iter().flatten() {
            bed.stop().await?;
        }
        Ok(())
    }
}
