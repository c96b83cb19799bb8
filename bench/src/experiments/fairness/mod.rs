//! What a tenant notices of another one that floods the node. See README.md.
//!
//! A tenant's calls must not take more than 10% longer than *its share* gives it. What its share gives it is measured
//! beside a tenant that uses exactly its own share: with two tenants of the same weight, half of the processors and no
//! more than half of the memory. That is the right comparison, because a neighbour may always use its share, and a
//! tenant that is slower beside such a neighbour than alone has lost nothing that it was promised. It is stricter than
//! a machine of half the size would be: a VM of two processors on half of a machine of two spends part of its time on
//! waiting for itself, which would flatter the flood. Against a node that is all its own, which is measured too, every
//! neighbour costs something.

mod load;
mod report;
mod tenant;

use crate::{
    error::{BenchError, Result},
    harness::{
        Experiment, Session, Step,
        processor::{reaped_ns, spent_ns},
    },
    record::{Measured, nanoseconds},
    rigs::daemon::{Daemon, Setup},
};
use load::{Clients, Counts, at_a_rate};
use serde::{Deserialize, Serialize};
use squeezy_node::series;
use std::{
    collections::BTreeSet,
    fmt,
    time::{Duration, Instant},
};
use tenant::{Called, Outcome, Tenant, Work};

/// What the daemon may use for all VMs and instances. A tenant's share is half of that.
const MEMORY: &str = "4G";

/// The tenant that stays within its share: small calls, one every quarter of a second.
const OWN: Work = Work { rounds: 50_000, bytes: 1 << 20 };
const OWN_MEMORY_MB: u64 = 128;
const EVERY: Duration = Duration::from_millis(250);
const STEADY: &str = "steady";
/// An action that was never called before.
const NEW: &str = "new";

/// Instances that it has before anything is measured, and how often they are called before that.
const WARM_INSTANCES: usize = 2;
const WARM_ROUNDS: usize = 2;

/// The other tenant's calls: several times as long, and 64 MiB each.
const OTHERS: Work = Work { rounds: 300_000, bytes: 64 << 20 };
const OTHERS_MEMORY_MB: u64 = 256;
/// How many actions a flood has, each with a VM of its own, and how many clients each of these.
const FLOOD_ACTIONS: usize = 4;
const FLOOD_CLIENTS: usize = 8;

/// How long the flood's VMs may take to boot before the next measurement begins anyway.
const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// How long VMs may take to end.
const END_LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// How the daemon shares the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum Sharing {
    /// The policy `squeezy`
    Squeezy,
    /// The policy `overcommit`
    Overcommit,
}

impl Sharing {
    const ALL: [Self; 2] = [Self::Squeezy, Self::Overcommit];

    fn name(self) -> &'static str {
        match self {
            Self::Squeezy => "squeezy",
            Self::Overcommit => "overcommit",
        }
    }

    /// Its part of the daemon's configuration.
    fn configuration(self) -> String {
        let policy = match self {
            Self::Squeezy => "squeezy",
            Self::Overcommit => "overcommit",
        };
        format!("memory = \"{MEMORY}\"\npolicy = \"{policy}\"\n")
    }
}

/// What the other tenant does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Beside {
    /// There is none.
    Nothing,
    /// It always has one call, and so uses half of two processors.
    Share,
    /// It begins to flood the node with calls of several actions, whose VMs boot.
    Boots,
    /// It floods the node, and its VMs are up.
    Flood,
}

impl Beside {
    const ALL: [Self; 4] = [Self::Nothing, Self::Share, Self::Boots, Self::Flood];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Share => "share",
            Self::Boots => "boots",
            Self::Flood => "flood",
        }
    }
}

/// Calls of a tenant within its share while another one floods the node.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How the node is shared, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    methods: Vec<Sharing>,
    /// How long the tenant calls in each situation, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(5..=600))]
    duration: Option<u32>,
}

/// One situation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// `nothing`, `share`, `boots` or `flood`.
    beside: Beside,
    /// The tenant's calls.
    calls_count: u64,
    /// Those that were refused.
    refused_count: u64,
    /// Those that were answered wrongly, or not at all.
    failed_count: u64,
    /// Those for which an instance was started.
    cold_count: u64,
    /// Latencies on the caller's clock; what was not answered counts as infinitely long.
    p50_ns: u64,
    p99_ns: u64,
    /// The first call of a new action, with the boot of its VM, after all situations with this neighbour.
    new_ns: Option<u64>,
    /// How long the calls were made.
    elapsed_ns: u64,
    /// CPU time of the tenant's VM meanwhile, and of all other VMs.
    own_cpu_ns: u64,
    others_cpu_ns: u64,
    /// The other tenant's calls meanwhile, that were answered, refused, and not answered.
    others_calls_count: u64,
    others_refused_count: u64,
    others_failed_count: u64,
    /// Memory that the other tenant had on the average.
    others_memory_bytes: u64,
}

pub(crate) type Line = Measured<Figures>;

/// The other tenant, and its actions.
struct Neighbour {
    tenant: Tenant,
    actions: Vec<String>,
    /// Clients of each action.
    clients: usize,
}

impl Neighbour {
    /// Makes the one of a situation. That of a flood is new to the node; the other one's VM is up.
    async fn create(daemon: &Daemon, beside: Beside) -> Result<Option<Self>> {
        let (count, clients) = match beside {
            Beside::Nothing => return Ok(None),
            Beside::Share => (1, 1),
            Beside::Boots | Beside::Flood => (FLOOD_ACTIONS, FLOOD_CLIENTS),
        };
        let tenant = Tenant::create(daemon, "other").await?;
        let actions: Vec<_> = (0..count).map(|number| format!("hungry-{number}")).collect();
        for action in &actions {
            tenant.put(action, OTHERS_MEMORY_MB).await?;
        }
        if beside == Beside::Share {
            tenant.must_call(&actions[0], OTHERS).await?;
        }
        Ok(Some(Self { tenant, actions, clients }))
    }

    fn start(&self) -> Clients {
        Clients::start(&self.tenant, &self.actions, self.clients, OTHERS)
    }
}

/// A daemon, in which the tenant meets all situations.
struct Trial {
    sharing: Sharing,
    number: u32,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, trial {}", self.sharing.name(), self.number)
    }
}

impl Step for Trial {}

impl Trial {
    /// The situations with each neighbour. Neither of the two that are compared always comes first.
    fn neighbours(&self) -> [&'static [Beside]; 3] {
        const FLOOD: &[Beside] = &[Beside::Boots, Beside::Flood];
        match self.number % 2 {
            0 => [&[Beside::Nothing], &[Beside::Share], FLOOD],
            _ => [&[Beside::Nothing], FLOOD, &[Beside::Share]],
        }
    }
}

impl Experiment for Arguments {
    const NAME: &'static str = "fairness";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let chosen: BTreeSet<Sharing> = self.methods.iter().copied().collect();
        let quick = session.options.quick;
        let chosen: Vec<Sharing> = match chosen.is_empty() {
            true if quick => vec![Sharing::Squeezy],
            true => Sharing::ALL.to_vec(),
            false => chosen.into_iter().collect(),
        };
        let count = session.options.trials_or(1, 5);
        let trials: Vec<Trial> = (0..count)
            .flat_map(|number| chosen.iter().map(move |&sharing| Trial { sharing, number }))
            .collect();
        session.each(&trials, async |session, trial| self.run(session, trial).await).await
    }
}

impl Arguments {
    async fn run(&self, session: &mut Session<Figures>, trial: &Trial) -> Result {
        let directory = tempfile::tempdir().map_err(|e| BenchError::file("/tmp", e))?;
        let configuration = trial.sharing.configuration();
        let setup = Setup { directory, configuration: &configuration, images: &[] };
        let daemon = Daemon::start(session, setup).await?;
        let own = Tenant::create(&daemon, "own").await?;
        own.put(STEADY, OWN_MEMORY_MB).await?;
        for situations in trial.neighbours() {
            let measured = self.beside(session, trial, &daemon, &own, situations).await?;
            let guest = daemon.guest()?;
            for figures in measured {
                let header = session.header(trial.sharing.name(), trial.number, Some(&guest));
                session.keep(header, figures)?;
            }
        }
        Ok(())
    }

    /// Measures in all situations with one neighbour.
    async fn beside(
        &self,
        session: &Session<Figures>,
        trial: &Trial,
        daemon: &Daemon,
        own: &Tenant,
        situations: &[Beside],
    ) -> Result<Vec<Figures>> {
        // Boots its VM, if that was ended for another.
        own.must_call(STEADY, OWN).await?;
        let own_vm = match daemon.vm_processes()?[..] {
            [vm] => vm,
            ref vms => {
                return Err(BenchError::function(format!("{} VMs instead of one", vms.len())));
            }
        };
        let neighbour = Neighbour::create(daemon, situations[0]).await?;
        warm_up(own).await?;
        let clients = neighbour.as_ref().map(Neighbour::start);
        let mut measured = Vec::new();
        for &beside in situations {
            session.progress.tick(&format!("{trial}, beside {}", beside.name()));
            if beside == Beside::Flood {
                flooded(clients.as_ref()).await;
            }
            let other = neighbour.as_ref().zip(clients.as_ref());
            measured.push(self.situation(daemon, own, own_vm, beside, other).await?);
        }
        own.put(NEW, OWN_MEMORY_MB).await?;
        let new = own.must_call(NEW, OWN).await?;
        own.delete(NEW).await?;
        if let Some(last) = measured.last_mut() {
            last.new_ns = Some(nanoseconds(new.latency));
        }
        if let Some(clients) = clients {
            clients.end();
        }
        if let Some(neighbour) = neighbour {
            neighbour.tenant.end().await?;
        }
        at_most_one_vm(daemon).await?;
        Ok(measured)
    }

    async fn situation(
        &self,
        daemon: &Daemon,
        own: &Tenant,
        own_vm: u32,
        beside: Beside,
        other: Option<(&Neighbour, &Clients)>,
    ) -> Result<Figures> {
        let seconds = self.duration.unwrap_or(if beside == Beside::Nothing { 10 } else { 25 });
        let count = Duration::from_secs(seconds.into()).as_nanos() / EVERY.as_nanos();
        let tenant = other.map(|(neighbour, _)| &neighbour.tenant);
        let counts = || other.map(|(_, clients)| clients.counts()).unwrap_or_default();
        let start = Instant::now();
        let (own_before, vms_before) = (spent_ns(own_vm)?, vms_ns(daemon)?);
        let (held_before, counts_before) = (held(tenant).await?, counts());
        let called = at_a_rate(own, STEADY, OWN, EVERY, count as u32).await;
        let elapsed = start.elapsed();
        // Its VM may have been ended, and its processor time be lost with it; the cold starts then tell.
        let own_cpu_ns = spent_ns(own_vm).unwrap_or(own_before) - own_before;
        let vms_cpu_ns = vms_ns(daemon)?.saturating_sub(vms_before);
        let held = held(tenant).await? - held_before;
        let others = counts().since(counts_before);
        Ok(Figures {
            elapsed_ns: nanoseconds(elapsed),
            own_cpu_ns,
            others_cpu_ns: vms_cpu_ns.saturating_sub(own_cpu_ns),
            others_memory_bytes: (held * f64::from(1 << 30) / elapsed.as_secs_f64()) as u64,
            ..Figures::of(beside, &called, others)
        })
    }
}

impl Figures {
    /// What calls of both tenants say.
    fn of(beside: Beside, called: &[Called], others: Counts) -> Self {
        let count = |outcome| called.iter().filter(|call| call.outcome == outcome).count() as u64;
        let latencies: Vec<f64> = called
            .iter()
            .map(|call| match call.outcome {
                Outcome::Warm | Outcome::Cold => call.latency.as_secs_f64(),
                Outcome::Refused | Outcome::Failed => f64::INFINITY,
            })
            .collect();
        let percentile = |percent| {
            let seconds = series::percentile(&latencies, percent).filter(|s| s.is_finite());
            seconds.map_or(u64::MAX, |s| nanoseconds(Duration::from_secs_f64(s)))
        };
        Self {
            beside,
            calls_count: called.len() as u64,
            refused_count: count(Outcome::Refused),
            failed_count: count(Outcome::Failed),
            cold_count: count(Outcome::Cold),
            p50_ns: percentile(50.0),
            p99_ns: percentile(99.0),
            new_ns: None,
            elapsed_ns: 0,
            own_cpu_ns: 0,
            others_cpu_ns: 0,
            others_calls_count: others.answered,
            others_refused_count: others.refused,
            others_failed_count: others.failed,
            others_memory_bytes: 0,
        }
    }
}

/// Has the tenant's instances at work, none of them frozen and its VM not paused.
async fn warm_up(own: &Tenant) -> Result {
    for _ in 0..WARM_ROUNDS {
        let every = Duration::ZERO;
        let called = at_a_rate(own, STEADY, OWN, every, WARM_INSTANCES as u32).await;
        let is_answered = |call: &Called| matches!(call.outcome, Outcome::Warm | Outcome::Cold);
        if !called.iter().all(is_answered) {
            return Err(BenchError::function("a call before the measurement fails".to_owned()));
        }
    }
    Ok(())
}

/// CPU time of all VMs that the daemon has had, in nanoseconds.
fn vms_ns(daemon: &Daemon) -> Result<u64> {
    let vms = daemon.vm_processes()?;
    // One that has just ended is counted as such at the next look.
    let running: u64 = vms.into_iter().filter_map(|vm| spent_ns(vm).ok()).sum();
    Ok(running + reaped_ns(daemon.process())?)
}

/// GiB times seconds that the other tenant has held so far.
async fn held(other: Option<&Tenant>) -> Result<f64> {
    match other {
        Some(other) => other.promised_gib_seconds().await,
        None => Ok(0.0),
    }
}

/// Waits until as many calls as a flood has actions have been answered.
async fn flooded(clients: Option<&Clients>) {
    let deadline = Instant::now() + BOOT_LIMIT;
    let answered = || clients.map_or(0, |clients| clients.counts().answered);
    while answered() < FLOOD_ACTIONS as u64 && Instant::now() < deadline {
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until the VMs of what was deleted have ended.
async fn at_most_one_vm(daemon: &Daemon) -> Result {
    let deadline = Instant::now() + END_LIMIT;
    while daemon.vm_processes()?.len() > 1 {
        if Instant::now() > deadline {
            return Err(BenchError::function("VMs that nobody needs do not end".to_owned()));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
