//! Runs real processes under the node's scaler, which decides when each one is started, frozen,
//! squeezed and ended.

use super::{
    counters::Counters,
    instance_task::{Completion, InstanceTask, Order, Report},
};
use crate::{
    error::{BenchError, Result},
    rigs::{
        load::Arrival,
        process::{NativeFunction, Setup},
    },
};
use squeezy_scaler::{
    Budget, Command, Event, FunctionIndex, FunctionPolicy, InstanceNumber, Moment, PolicyError,
    RequestNumber, Scaler, SqueezePolicy, StopReason, TenantIndex, VmPolicy,
};
use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroU16,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
};

/// How long an instance is idle before it is frozen, so that requests in quick succession use the
/// same one.
const FREEZE_AFTER: Duration = Duration::from_millis(20);

/// Longer than any run, so that instances end only for lack of memory.
const KEEP_ALIVE: Duration = Duration::from_secs(3600);

/// How long nothing may happen while a request is waiting.
const LIMIT: Duration = Duration::from_secs(120);

/// Settings that all instances of a run share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Memory for all instances.
    pub(super) cache_bytes: u64,
    pub(super) setup: Setup,
    /// When frozen instances are squeezed. They are charged for what they occupy in any case.
    pub(super) squeezing: SqueezePolicy,
    /// Number of processors of the machine.
    pub(super) processors: u32,
}

/// Functions and their instances.
pub(super) struct ProcessHost {
    scaler: Scaler,
    begin: Instant,
    functions: Vec<Arc<NativeFunction>>,
    setup: Setup,
    processors: u32,
    living: BTreeMap<InstanceNumber, UnboundedSender<Order>>,
    tasks: JoinSet<()>,
    reporter: UnboundedSender<Report>,
    reports: UnboundedReceiver<Report>,
    /// When each unanswered request arrived.
    open: BTreeMap<RequestNumber, Instant>,
    next_request: u64,
    counters: Counters,
}

impl ProcessHost {
    /// A host without instances.
    pub(super) fn new(functions: Vec<Arc<NativeFunction>>, rules: &Rules) -> Result<Self> {
        let refused = |error: PolicyError| BenchError::Arguments(error.to_string());
        let budget = Budget::new(rules.cache_bytes);
        let mut scaler = Scaler::new(budget).with_squeezing(rules.squeezing);
        // Processes need no VM: this one takes no memory and is ready at once.
        let vm = scaler.add_vm(VmPolicy {
            base_bytes: 0,
            instance_bytes: rules.setup.memory_bytes,
            max_instances: u32::MAX,
            max_starting: rules.processors,
            idle_time: None,
        });
        let vm = vm.map_err(refused)?;
        for _ in &functions {
            let policy = FunctionPolicy {
                vm,
                max_instances: u32::MAX,
                requests_per_instance: NonZeroU16::MIN,
                min_instances: 0,
                keep_alive: KEEP_ALIVE,
                freeze_after: Some(FREEZE_AFTER),
                queue_limit: usize::MAX,
                wait_limit: None,
            };
            scaler.add_function(TenantIndex::FIRST, policy).map_err(refused)?;
        }
        let (reporter, reports) = unbounded_channel();
        Ok(Self {
            scaler,
            begin: Instant::now(),
            functions,
            setup: rules.setup,
            processors: rules.processors,
            living: BTreeMap::new(),
            tasks: JoinSet::new(),
            reporter,
            reports,
            open: BTreeMap::new(),
            next_request: 0,
            counters: Counters::default(),
        })
    }

    /// Calls each function this many times in a row to fill the cache, with at most as many calls
    /// at a time as there are processors.
    pub(super) async fn warm_up(&mut self, calls: u32) -> Result {
        let members: Vec<usize> = (0..self.functions.len()).collect();
        for together in members.chunks(self.processors as usize) {
            for _ in 0..calls {
                for &member in together {
                    self.request(member)?;
                }
                while !self.open.is_empty() {
                    self.step(None).await?;
                }
            }
        }
        self.counters.trouble.take().map_or(Ok(()), Err)
    }

    /// Sends all calls when they are due, waits for the responses, and returns the counters.
    pub(super) async fn replay(
        &mut self,
        arrivals: &[Arrival],
        mut tell: impl FnMut(Duration, &Counters),
    ) -> Result<Counters> {
        self.counters = Counters::default();
        let start = Instant::now();
        for arrival in arrivals {
            let due = start + arrival.at;
            while Instant::now() < due {
                self.step(Some(due)).await?;
                tell(start.elapsed(), &self.counters);
            }
            self.counters.alive_sum += self.living.len() as u64;
            self.counters.charged_sum_bytes += self.scaler.budget().committed_bytes();
            self.request(arrival.member)?;
        }
        while !self.open.is_empty() {
            self.step(None).await?;
            tell(start.elapsed(), &self.counters);
        }
        let mut counters = std::mem::take(&mut self.counters);
        counters.took = start.elapsed();
        Ok(counters)
    }

    /// Ends all instances.
    pub(super) async fn stop(mut self) {
        for orders in self.living.values() {
            let _ = orders.send(Order::Stop);
        }
        while self.tasks.join_next().await.is_some() {}
    }

    /// Handles the next event, or returns at `until`.
    async fn step(&mut self, until: Option<Instant>) -> Result {
        let limit = Instant::now() + LIMIT;
        let tick = self.scaler.next_deadline().map(|Moment(at)| self.begin + at);
        let next = [until, tick].into_iter().flatten().fold(limit, Instant::min);
        let report = tokio::time::timeout_at(next.into(), self.reports.recv()).await;
        match report {
            Ok(Some(report)) => self.take_note(report),
            Ok(None) => Ok(()),
            Err(_) if tick == Some(next) => self.tell(Event::Tick),
            Err(_) if until == Some(next) => Ok(()),
            Err(_) => Err(BenchError::Arguments(format!(
                "{} requests are waiting, and nothing has happened for {} s",
                self.open.len(),
                LIMIT.as_secs()
            ))),
        }
    }

    fn request(&mut self, member: usize) -> Result {
        let request = RequestNumber(self.next_request);
        self.next_request += 1;
        self.open.insert(request, Instant::now());
        let function = FunctionIndex(u32::try_from(member).unwrap_or(u32::MAX));
        self.tell(Event::Request { function, request })
    }

    fn take_note(&mut self, report: Report) -> Result {
        let Report { instance, completion, cpu_ns } = report;
        self.counters.cpu_ns += cpu_ns;
        let event = match completion {
            Completion::Started(Ok(())) => Event::Started(instance),
            Completion::Started(Err(error)) => {
                self.counters.trouble(error);
                Event::StartFailed(instance)
            }
            Completion::Answered(request, answer) => {
                let came = self.open.remove(&request);
                match answer {
                    Ok(()) => {
                        self.counters.latencies.extend(came.map(|came| came.elapsed()));
                        Event::Answered(instance)
                    }
                    Err(error) => {
                        self.counters.wrong_count += 1;
                        self.counters.trouble(error);
                        Event::Broken(instance)
                    }
                }
            }
            Completion::Frozen(resident_bytes) => Event::Frozen { instance, resident_bytes },
            Completion::Squeezed(Ok(squeezed)) => {
                self.counters.squeezed(&squeezed);
                let Some(resident_bytes) = squeezed.after_bytes else { return Ok(()) };
                Event::Squeezed { instance, resident_bytes, cpu: squeezed.cpu }
            }
            Completion::Squeezed(Err(error)) => {
                self.counters.squeeze_failures_count += 1;
                self.counters.trouble(error);
                Event::SqueezeFailed(instance)
            }
            Completion::Lost(error) => {
                self.counters.trouble(error);
                Event::Died(instance)
            }
            Completion::Stopped => {
                self.living.remove(&instance);
                Event::Stopped(instance)
            }
        };
        self.tell(event)
    }

    fn tell(&mut self, event: Event) -> Result {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let now = Moment(self.begin.elapsed());
            let commands = self.scaler.handle(now, event);
            let commands =
                commands.map_err(|e| BenchError::Arguments(format!("a mistake: {e}")))?;
            events.extend(commands.into_iter().filter_map(|command| self.carry_out(command)));
        }
        Ok(())
    }

    /// Executes a command; returns an event if it completes immediately.
    fn carry_out(&mut self, command: Command) -> Option<Event> {
        match command {
            Command::BootVm(vm) => return Some(Event::VmBooted(vm)),
            Command::EndVm { vm, .. } => return Some(Event::VmEnded(vm)),
            // The VM has no base memory, so pausing it would free nothing.
            Command::PauseVm { .. }
            | Command::ResumeVm(_)
            | Command::Condemn(_)
            | Command::Prewarmed(_)
            | Command::LendVm { .. }
            | Command::KillVm { .. } => {}
            Command::Reclaim { instance, .. } => return Some(Event::Reclaimed(instance)),
            Command::Start { function, instance, .. } => {
                self.counters.cold_boots_count += 1;
                self.start(instance, function);
            }
            Command::Dispatch { instance, request, thaw } => {
                self.order(instance, Order::Call { request, thaw, since: Instant::now() });
            }
            Command::Freeze(instance) => self.order(instance, Order::Freeze),
            Command::Squeeze(instance) => self.order(instance, Order::Squeeze),
            Command::Stop { instance, reason } => {
                self.counters.evictions_count += u64::from(reason == StopReason::Evicted);
                self.order(instance, Order::Stop);
            }
            Command::Reject { request, .. } => {
                self.open.remove(&request);
                self.counters.wrong_count += 1;
            }
        }
        None
    }

    fn start(&mut self, number: InstanceNumber, function: FunctionIndex) {
        let (orders, receiver) = unbounded_channel();
        let task = InstanceTask::new(number, receiver, self.reporter.clone());
        self.tasks.spawn(task.run(self.functions[function.0 as usize].clone(), self.setup));
        self.living.insert(number, orders);
    }

    /// An order to an instance that has ended is ignored; its end is about to be reported.
    fn order(&self, instance: InstanceNumber, order: Order) {
        if let Some(orders) = self.living.get(&instance) {
            let _ = orders.send(order);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        rigs::process::{Language, find},
        skip::skip,
    };
    use std::path::Path;

    const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

    /// Two functions with memory for one instance.
    #[tokio::test]
    async fn instances_are_frozen_squeezed_and_evicted() {
        if !std::process::Command::new("node").arg("-v").status().is_ok_and(|s| s.success()) {
            return skip("there is no node: apt-get install nodejs");
        }
        // The squeezer from the repository, which works without its addon.
        let build = tempfile::tempdir().unwrap();
        std::fs::create_dir(build.path().join("squeezers")).unwrap();
        let squeezer = Path::new(REPOSITORY).join("squeezers/v8");
        std::os::unix::fs::symlink(squeezer, build.path().join("squeezers/v8")).unwrap();
        let functions = Path::new(REPOSITORY).join("functions");
        let function = |name| find(&functions, build.path(), Language::JavaScript, name).unwrap();
        let memory_bytes = 128 << 20;
        let rules = Rules {
            cache_bytes: memory_bytes + (8 << 20),
            setup: Setup { memory_bytes, processors: 1.0, eager: false },
            squeezing: SqueezePolicy {
                floor_bytes: 0,
                ceiling_bytes: 0,
                rise: Duration::from_secs(1),
                frozen_for: Duration::ZERO,
                processors: 1,
                tolerance_bytes: SqueezePolicy::TOLERANCE_BYTES,
            },
            processors: 1,
        };
        let mut host = ProcessHost::new(vec![function("pi"), function("clock")], &rules).unwrap();
        host.warm_up(1).await.unwrap();
        // The first instance leaves no room for the second, frozen or not.
        assert_eq!((host.counters.cold_boots_count, host.counters.evictions_count), (2, 1));

        let call = |member| Arrival { at: Duration::ZERO, member };
        let counters = host.replay(&[call(1)], |_, _| {}).await.unwrap();
        assert_eq!((counters.latencies.len(), counters.cold_boots_count), (1, 0));
        assert!(counters.cpu_ns > 0);
        while host.counters.squeezes_count == 0 {
            host.step(None).await.unwrap();
        }
        let counters = host.replay(&[call(1)], |_, _| {}).await.unwrap();
        assert_eq!(
            (counters.latencies.len(), counters.cold_boots_count, counters.wrong_count),
            (1, 0, 0)
        );
        assert!(counters.trouble.is_none(), "{:?}", counters.trouble);
        assert_eq!(host.living.len(), 1);
        host.stop().await;
    }
}
