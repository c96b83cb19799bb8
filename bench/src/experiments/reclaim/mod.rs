//! Latency of reclaiming an instance's memory while the rest of the VM is full (Figure 5 of the
//! Squeezy paper). See README.md.

mod report;

use crate::{
    error::Result,
    harness::{Experiment, Session, Step},
    record::nanoseconds,
    rigs::memhog_vm::{EVERY_METHOD, MemhogVm, Methods, Reclaimed, floor, hog_bytes},
    size,
};
use serde::{Deserialize, Serialize};
use squeezy_vmm::mechanism::{MechanismName, Sizing};
use std::{collections::BTreeMap, fmt, time::Instant};

/// The maximum memory of all instances together, so that the VM fits next to other work on the
/// host.
const MOST_BYTES: u64 = 4 << 30;

/// Kernel functions for the breakdown, as far as the kernel has them.
const FUNCTIONS: [&str; 10] = [
    "virtio_mem_run_wq",
    "virtio_mem_send_request",
    "alloc_contig_range_noprof",
    "migrate_pages",
    "start_isolate_page_range",
    "split_free_pages",
    "post_alloc_hook",
    "update_balloon_size_func",
    "balloon_page_alloc",
    "tell_host",
];

/// Latency of reclaiming an instance's memory while the rest of the VM is full, by size.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    methods: Methods,
    /// Sizes of an instance, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size::parse_instance)]
    sizes: Vec<u64>,
    /// Whether the guest's kernel zeroes memory that it allocates (init_on_alloc): 0, 1 or both
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(0..=1))]
    init_on_alloc: Vec<u8>,
    /// Additional trials in which the guest counts calls of kernel functions, for the breakdown; they
    /// take longer and do not count for the latency
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100))]
    breakdown: Option<u32>,
}

/// A reclaim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Memory of the ended instance, which is reclaimed.
    size_bytes: u64,
    /// Instances that the VM has room for.
    instances: u16,
    /// Memory that the other instances hold.
    rest_bytes: u64,
    init_on_alloc: u8,
    /// Whether calls of kernel functions were counted, which takes time.
    profiled: bool,
    latency_ns: u64,
    guest_ns: u64,
    device_ns: u64,
    migrated_pages: u64,
    /// Pages that the guest took from its allocator while `init_on_alloc` made it zero each one.
    /// Derived from the pages it counts as taken: it does not count what it zeroes.
    init_on_alloc_taken_pages: u64,
    device_requests: u64,
    /// By how much host memory behind the guest's memory decreased; `None` if not measured.
    resident_drop_bytes: Option<u64>,
    /// Memory that was reclaimed; less than `size_bytes` if there is a `failure`.
    reclaimed_bytes: u64,
    /// Why not all memory was reclaimed in time.
    failure: Option<String>,
    /// Time in each counted function and its callees; only if `profiled`.
    functions_ns: BTreeMap<String, u64>,
    /// Calls of each counted function; only if `profiled`.
    functions_calls: BTreeMap<String, u64>,
}

/// The trials in one VM.
struct Setting {
    method: MechanismName,
    size_bytes: u64,
    init_on_alloc: u8,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, size_bytes, init_on_alloc } = self;
        write!(f, "{method}, {}, init_on_alloc={init_on_alloc}", size::show(*size_bytes))
    }
}

impl Step for Setting {
    fn weight(&self) -> f64 {
        self.size_bytes as f64
    }
}

impl Experiment for Arguments {
    const NAME: &'static str = "reclaim";

    fn check(&self) -> Result {
        self.methods.check(&EVERY_METHOD)
    }

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        // `--quick` skips the kernel that a node per instance needs.
        let quick = EVERY_METHOD.into_iter().filter(|&method| method != MechanismName::Numa);
        let default = if session.options.quick { quick.collect() } else { EVERY_METHOD.to_vec() };
        let methods = self.methods.or(session, &EVERY_METHOD, &default)?;
        let settings = self.settings(&methods, session.options.quick);
        let trials = session.options.trials_or(5, 5);
        let breakdown = self.breakdown.unwrap_or(if session.options.quick { 0 } else { 1 });
        session
            .each(&settings, async |session, setting| match setting.method {
                MechanismName::Floor => no_guest(session, setting, trials).await,
                _ => reclaim(session, setting, trials, breakdown).await,
            })
            .await
    }
}

impl Arguments {
    /// In this order, methods take turns, so that changes on the host affect all of them.
    fn settings(&self, methods: &[MechanismName], quick: bool) -> Vec<Setting> {
        let or = |given: &[u64], default: &[u64]| {
            if given.is_empty() { default.to_vec() } else { given.to_vec() }
        };
        let default: &[u64] = match quick {
            true => &[256 << 20, 512 << 20],
            false => &[128 << 20, 256 << 20, 512 << 20, 1 << 30, 2 << 30],
        };
        let init: &[u8] = match (self.init_on_alloc.as_slice(), quick) {
            ([], true) => &[0],
            ([], false) => &[0, 1],
            (given, _) => given,
        };
        let mut settings = Vec::new();
        for size_bytes in or(&self.sizes, default) {
            for &init_on_alloc in init {
                // Without a guest, nothing is zeroed.
                let methods = methods
                    .iter()
                    .filter(|&&m| m != MechanismName::Floor || init_on_alloc == init[0]);
                settings.extend(methods.map(|&method| Setting {
                    method,
                    size_bytes,
                    init_on_alloc,
                }));
            }
        }
        settings
    }
}

/// The number of instances, with at least two besides the one that ends.
fn instances(size_bytes: u64) -> u16 {
    (MOST_BYTES / 2 / size_bytes).clamp(3, 4) as u16
}

async fn reclaim(
    session: &mut Session<Figures>,
    setting: &Setting,
    trials: u32,
    breakdown: u32,
) -> Result {
    let &Setting { method, size_bytes, init_on_alloc } = setting;
    let count = instances(size_bytes);
    let sizing = Sizing { instance_bytes: size_bytes, instances: count, shared_bytes: 0 };
    let arguments = [format!("init_on_alloc={init_on_alloc}")];
    let mut vm = MemhogVm::start(session, method, sizing, &arguments).await?;
    let full: BTreeMap<u16, u64> = (0..count).map(|index| (index, hog_bytes(size_bytes))).collect();
    let mut last = None;
    for trial in 0..trials + breakdown {
        let profiled = trial >= trials;
        // Assumes that a trial takes as long as the previous one.
        let start = Instant::now();
        if last.is_some_and(|last| !session.has_time(last)) {
            session.progress.note(&format!(
                "{setting}: {trial} of {} trials, to stay within the time limit",
                trials + breakdown
            ));
            break;
        }
        session.progress.say(&format!("{setting}: trial {} of {}", trial + 1, trials + breakdown));
        vm.fill(&full).await?;
        let victim = (trial % u32::from(count)) as u16;
        vm.kill(victim).await?;
        vm.settle().await;
        let rest_bytes = vm.held_bytes();
        let functions: &[&str] = if profiled { &FUNCTIONS } else { &[] };
        let reclaimed = vm.reclaim(victim, functions).await?;
        let guest = Some(vm.guest());
        let header = session.header(&method.to_string(), trial, guest);
        session.keep(header, figures(setting, count, rest_bytes, reclaimed))?;
        vm.kill_all().await?;
        last = Some(start.elapsed());
    }
    vm.stop().await
}

fn figures(setting: &Setting, instances: u16, rest_bytes: u64, reclaimed: Reclaimed) -> Figures {
    let profile = reclaimed.profile.unwrap_or_default();
    Figures {
        size_bytes: setting.size_bytes,
        instances,
        rest_bytes,
        init_on_alloc: setting.init_on_alloc,
        profiled: !profile.functions.is_empty(),
        latency_ns: reclaimed.latency_ns,
        guest_ns: reclaimed.guest_ns,
        device_ns: reclaimed.device_ns,
        migrated_pages: reclaimed.migrated_pages,
        init_on_alloc_taken_pages: reclaimed.taken_pages * u64::from(setting.init_on_alloc),
        device_requests: reclaimed.device_requests,
        resident_drop_bytes: Some(reclaimed.resident_drop_bytes),
        reclaimed_bytes: reclaimed.reclaimed_bytes,
        failure: reclaimed.failure,
        functions_ns: profile
            .functions
            .iter()
            .map(|(name, calls)| (name.clone(), calls.time_ns))
            .collect(),
        functions_calls: profile
            .functions
            .iter()
            .map(|(name, calls)| (name.clone(), calls.calls))
            .collect(),
    }
}

async fn no_guest(session: &mut Session<Figures>, setting: &Setting, trials: u32) -> Result {
    let size_bytes = setting.size_bytes;
    for (trial, done) in (0..).zip(floor(size_bytes, session.options.memory_backend, trials).await?)
    {
        let latency_ns = nanoseconds(done.discard);
        session.keep(
            session.header("floor", trial, None),
            Figures {
                size_bytes,
                instances: 1,
                rest_bytes: 0,
                init_on_alloc: setting.init_on_alloc,
                profiled: false,
                latency_ns,
                guest_ns: 0,
                device_ns: latency_ns,
                migrated_pages: 0,
                init_on_alloc_taken_pages: 0,
                device_requests: 0,
                resident_drop_bytes: Some(done.resident_drop_bytes),
                reclaimed_bytes: size_bytes,
                failure: None,
                functions_ns: BTreeMap::new(),
                functions_calls: BTreeMap::new(),
            },
        )?;
    }
    Ok(())
}
