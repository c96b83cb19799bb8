//! A VM that is resized while a program runs in it.

mod figures;
mod report;

pub(crate) use figures::Figures;
pub(crate) use report::{Wording, assess, chart, table};

use super::memhog_vm::{Beside, MemhogVm, hog_bytes};
use crate::{
    error::Result,
    harness::{Session, Step},
    size,
};
use figures::Printed;
use squeezy_vmm::{
    MemoryBackend,
    mechanism::{MechanismName, Sizing},
};
use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, Instant},
};

/// Base memory for the program.
const PROGRAM_BYTES: u64 = 128 << 20;
/// How much longer than asked the program may take.
const LIMIT: Duration = Duration::from_secs(120);

/// What resizes the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum Method {
    /// The host by itself
    #[value(name = "hyperalloc")]
    HyperAlloc,
    /// Stock virtio-mem
    VirtioMem,
    /// A stock balloon
    Balloon,
    /// Nothing
    Baseline,
}

impl Method {
    const ALL: [Self; 4] = [Self::HyperAlloc, Self::VirtioMem, Self::Balloon, Self::Baseline];

    fn mechanism(self) -> MechanismName {
        match self {
            Self::HyperAlloc => MechanismName::HyperAlloc,
            Self::VirtioMem => MechanismName::VirtioMem,
            Self::Balloon => MechanismName::Balloon,
            Self::Baseline => MechanismName::Static,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Baseline => f.pad("baseline"),
            _ => self.mechanism().fmt(f),
        }
    }
}

/// The options of experiments with such VMs.
#[derive(Debug, clap::Args)]
pub(crate) struct Resizing {
    /// The methods to compare, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    methods: Vec<Method>,
    /// Memory that is taken and given back
    #[arg(long, value_name = "SIZE", value_parser = size::parse_instance)]
    size: Option<u64>,
}

/// A trial of a method.
struct Trial {
    method: Method,
    number: u32,
    count: u32,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: trial {} of {}", self.method, self.number + 1, self.count)
    }
}

impl Step for Trial {
    fn weight(&self) -> f64 {
        // The VM boots before its first trial.
        if self.number == 0 { 1.5 } else { 1.0 }
    }
}

impl Resizing {
    /// Runs the program in a VM for each method, which take turns, and records a line for each trial.
    /// `program` gets `--duration MS`, and prints samples.
    pub(crate) async fn measure(
        &self,
        session: &mut Session<Figures>,
        program: &'static str,
    ) -> Result {
        // Only memory that the host shares can be taken from outside, so all methods have it.
        session.options.memory_backend = MemoryBackend::Memfd;
        let quick = session.options.quick;
        let size_bytes = self.size.unwrap_or(if quick { 256 << 20 } else { 512 << 20 });
        let program = Program {
            name: program,
            alone: Duration::from_millis(if quick { 1500 } else { 3000 }),
            resized: Duration::from_millis(if quick { 3000 } else { 5000 }),
        };
        let count = session.options.trials_or(2, 5);
        let methods = if self.methods.is_empty() { &Method::ALL[..] } else { &self.methods };
        let is_chosen = |method: &Method| methods.contains(method);
        let trials: Vec<Trial> = (0..count)
            .flat_map(|number| {
                let chosen = Method::ALL.into_iter().filter(is_chosen);
                chosen.map(move |method| Trial { method, number, count })
            })
            .collect();
        let mut vms = BTreeMap::new();
        let mut slowest = Duration::ZERO;
        session
            .each(&trials, async |session, trial| {
                if trial.number > 0 && !session.has_time(slowest) {
                    return Ok(());
                }
                let begin = Instant::now();
                let vm = match vms.remove(&trial.method) {
                    None if trial.number == 0 => {
                        Some(boot(session, trial.method, &program, size_bytes).await?)
                    }
                    // One in which something has failed is gone.
                    vm => vm,
                };
                let Some(mut vm) = vm else { return Ok(()) };
                one(session, &mut vm, trial, &program, size_bytes).await?;
                vms.insert(trial.method, vm);
                slowest = slowest.max(begin.elapsed());
                Ok(())
            })
            .await?;
        for vm in vms.into_values() {
            vm.stop().await?;
        }
        Ok(())
    }
}

/// The program.
struct Program {
    name: &'static str,
    /// How long it runs while nobody resizes the VM, each time.
    alone: Duration,
    /// And while it is resized.
    resized: Duration,
}

impl Program {
    async fn run(
        &self,
        vm: &mut MemhogVm,
        duration: Duration,
        is_resized: bool,
    ) -> Result<Beside<Printed>> {
        let duration_ms = duration.as_millis().to_string();
        let command = vec![format!("/bin/{}", self.name), "--duration".to_owned(), duration_ms];
        vm.settle().await;
        vm.run_beside(command, duration + LIMIT, is_resized).await
    }
}

async fn boot(
    session: &Session<Figures>,
    method: Method,
    program: &Program,
    size_bytes: u64,
) -> Result<MemhogVm> {
    let sizing = Sizing { instance_bytes: size_bytes, instances: 1, shared_bytes: 0 };
    let mut vm = MemhogVm::start_with(session, method.mechanism(), sizing, &[], |config| {
        config.base_bytes += PROGRAM_BYTES;
    })
    .await?;
    // A first run touches memory that the host has not allocated yet, and is translated.
    touch(&mut vm, size_bytes).await?;
    program.run(&mut vm, Duration::from_millis(500), false).await?;
    Ok(vm)
}

/// The program runs while nobody resizes its VM, while it is resized, and once more while it is not. Then the VM
/// is resized on its own.
async fn one(
    session: &mut Session<Figures>,
    vm: &mut MemhogVm,
    trial: &Trial,
    program: &Program,
    size_bytes: u64,
) -> Result {
    let is_resized = trial.method != Method::Baseline;
    touch(vm, size_bytes).await?;
    let before = program.run(vm, program.alone, false).await?;
    let resized = program.run(vm, program.resized, is_resized).await?;
    vm.plug(0).await?;
    let after = program.run(vm, program.alone, false).await?;
    let times = if is_resized {
        touch(vm, size_bytes).await?;
        vm.settle().await;
        Some(vm.resize_alone().await?)
    } else {
        None
    };
    let header = session.header(&trial.method.to_string(), trial.number, Some(vm.guest()));
    session.keep(header, Figures::of(size_bytes, &before.and(after), &resized, times))
}

/// Has a process use the memory and end.
async fn touch(vm: &mut MemhogVm, size_bytes: u64) -> Result {
    vm.fill(&BTreeMap::from([(0, hog_bytes(size_bytes))])).await?;
    vm.kill_all().await
}
