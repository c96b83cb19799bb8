//! A VM and a host that keep count, and panic when the contract of [`Vm`] is broken.

use crate::{
    Id, Name,
    error::{Error, ErrorKind, Result},
    host::{Holder, Host},
    spec::{Limits, Pod},
    vm::{Added, Container, Ended, Input, Listed, Output, Signal, Usage, Use, Vm},
};
use futures_util::future::BoxFuture;
use squeezy_protocol::TerminalSize;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{
    io::{AsyncBufRead, AsyncReadExt, AsyncWriteExt, BufReader, duplex, empty},
    sync::watch,
    time::sleep,
};

pub struct FakeVm {
    inside: Mutex<Inside>,
    why: watch::Sender<Option<String>>,
    /// Whether all pods are frozen, and cannot be thawed.
    frozen: watch::Sender<bool>,
    /// Each use has one.
    used: Arc<()>,
}

#[derive(Default)]
struct Inside {
    pods: BTreeSet<Id>,
    /// Of these, the ones that take no containers any more.
    ended_pods: BTreeSet<Id>,
    containers: BTreeMap<Id, FakeContainer>,
    /// Those that were started and have not been waited for.
    processes: BTreeMap<Name, watch::Sender<Option<Ended>>>,
    /// What all of them have read, and how many have read to the end.
    input: (Vec<u8>, usize),
    /// How long the next calls take, in milliseconds, and whether they fail; at once and not, at the end.
    script: Vec<(u64, bool)>,
    /// How many kills fail from now on.
    failing_kills: u32,
    /// Whether what processes write that are started from now on has no end.
    writes_on: bool,
    /// Whether there is no room for more pods and containers beside those of other pods.
    is_crowded: bool,
}

struct FakeContainer {
    pod: Id,
    has_started: bool,
    is_starting: bool,
    is_paused: bool,
    /// Those of the last update.
    limits: Limits,
    /// How many processes are on their way into it.
    comes: usize,
}

impl Inside {
    fn start(&mut self, name: &Name) -> Output {
        let started = self.processes.insert(name.clone(), watch::channel(None).0);
        assert!(started.is_none(), "{name} is started twice");
        let stdout = if self.writes_on { endless() } else { Box::new(empty()) };
        Output { stdout, stderr: Box::new(empty()) }
    }

    fn check_room(&self) -> Result<()> {
        if self.is_crowded {
            return Err(Error::new(ErrorKind::Crowded, "no room beside other pods"));
        }
        Ok(())
    }

    fn check_empty(&self, pod: &Id) {
        let is_empty = self.containers.values().all(|container| container.pod != *pod);
        assert!(is_empty, "{pod} has containers");
    }

    /// Whether this kill fails.
    fn kill_fails(&mut self) -> bool {
        let fails = self.failing_kills > 0;
        self.failing_kills -= u32::from(fails);
        fails
    }

    fn runs(&self, name: &Name) -> bool {
        self.processes.get(name).is_some_and(|ended| ended.borrow().is_none())
    }

    /// Whether its container is paused: nothing happens to it by itself then.
    fn is_paused(&self, name: &Name) -> bool {
        self.containers.get(&name.task).is_some_and(|container| container.is_paused)
    }

    /// A process ends, if it runs, and with it what was added to its container.
    fn end(&mut self, name: &Name, ended: Ended) {
        for (other, end) in &self.processes {
            let is_added = name.added.is_none() && other.task == name.task && other != name;
            let ended = if other == name { ended } else { KILLED };
            if other == name || is_added {
                end.send_if_modified(|has| {
                    let is_first = has.is_none();
                    *has = has.or(Some(ended));
                    is_first
                });
            }
        }
    }
}

/// A byte a second, as long as somebody reads.
fn endless() -> Box<dyn AsyncBufRead + Send + Unpin> {
    let (mut writer, reader) = duplex(1);
    tokio::spawn(async move {
        while writer.write_all(b".").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    });
    Box::new(BufReader::new(reader))
}

const KILLED: Ended = Ended { status: 137, out_of_memory: false };

impl FakeVm {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            inside: Mutex::default(),
            why: watch::channel(None).0,
            frozen: watch::channel(false).0,
            used: Arc::default(),
        })
    }

    /// From now on, no use begins, or each does that has been waited for.
    pub fn freeze(&self, is_frozen: bool) {
        self.frozen.send_replace(is_frozen);
    }

    fn is_used(&self) -> bool {
        Arc::strong_count(&self.used) > 1
    }

    /// What the next calls do.
    pub fn follow(&self, script: Vec<(u64, bool)>) {
        self.inside().script = script;
    }

    /// Whether all of them have begun.
    pub fn has_begun_all(&self) -> bool {
        self.inside().script.is_empty()
    }

    /// The next kills fail, so many of them.
    pub fn fail_kills(&self, count: u32) {
        self.inside().failing_kills = count;
    }

    /// What processes write that are started from now on goes on after their ends.
    pub fn write_on(&self) {
        self.inside().writes_on = true;
    }

    /// There is no room for more pods and containers beside those of other pods.
    pub fn crowd(&self) {
        self.inside().is_crowded = true;
    }

    /// A process ends by itself, if it runs.
    pub fn end_process(&self, name: &Name, ended: Ended) {
        let mut inside = self.inside();
        if !inside.is_paused(name) {
            inside.end(name, ended);
        }
    }

    /// What all processes have read from their standard input, and how many have read it to its end.
    pub fn input(&self) -> (Vec<u8>, usize) {
        self.inside().input.clone()
    }

    /// Whether the memory of a pod goes back though it is not deleted yet.
    pub fn has_ended_pod(&self, id: &Id) -> bool {
        self.inside().ended_pods.contains(id)
    }

    /// What a container was updated to last.
    pub fn limits_of(&self, id: &Id) -> Limits {
        self.inside().containers[id].limits
    }

    /// The VM ends by itself.
    pub fn end(&self) {
        self.why.send_replace(Some("killed".to_owned()));
    }

    pub fn has_ended(&self) -> bool {
        self.why.borrow().is_some()
    }

    /// Pods and containers, with their processes.
    pub fn left(&self) -> (usize, usize) {
        let inside = self.inside();
        (inside.pods.len(), inside.containers.len() + inside.processes.len())
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap()
    }

    /// Does something, after a while; a VM that has ended never answers.
    fn call<'a, T: Send + 'a>(
        &'a self,
        may_fail: bool,
        act: impl FnOnce(&mut Inside) -> T + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        let (pause_ms, fails) = self.inside().script.pop().unwrap_or_default();
        Box::pin(async move {
            sleep(Duration::from_millis(pause_ms)).await;
            if self.has_ended() {
                std::future::pending::<()>().await;
            }
            if fails && may_fail {
                Err(Error::failed("as the test wants it"))
            } else {
                Ok(act(&mut self.inside()))
            }
        })
    }
}

impl Vm for FakeVm {
    fn create_pod<'a>(&'a self, id: &'a Id, _: &'a Pod) -> BoxFuture<'a, Result<()>> {
        let made = self.call(true, move |inside| -> Result<()> {
            inside.check_room()?;
            assert!(inside.pods.insert(id.clone()), "{id} is made twice");
            Ok(())
        });
        Box::pin(async move { made.await? })
    }

    fn end_pod<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        self.call(true, move |inside| {
            inside.check_empty(id);
            if inside.pods.contains(id) {
                inside.ended_pods.insert(id.clone());
            }
        })
    }

    fn delete_pod<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        self.call(true, move |inside| {
            inside.check_empty(id);
            inside.pods.remove(id);
            inside.ended_pods.remove(id);
        })
    }

    fn create<'a>(&'a self, id: &'a Id, container: &'a Container) -> BoxFuture<'a, Result<()>> {
        let made = self.call(true, move |inside| -> Result<()> {
            assert!(inside.pods.contains(&container.pod), "{} is not there", container.pod);
            assert!(!inside.ended_pods.contains(&container.pod), "{} has ended", container.pod);
            inside.check_room()?;
            let made = FakeContainer {
                pod: container.pod.clone(),
                has_started: false,
                is_starting: false,
                is_paused: false,
                limits: Limits::default(),
                comes: 0,
            };
            assert!(inside.containers.insert(id.clone(), made).is_none(), "{id} is made twice");
            Ok(())
        });
        Box::pin(async move { made.await? })
    }

    fn begin_use<'a>(&'a self, _: &'a Id) -> BoxFuture<'a, Result<Use>> {
        let mut frozen = self.frozen.subscribe();
        Box::pin(async move {
            let _ = frozen.wait_for(|is_frozen| !is_frozen).await;
            Ok(Box::new(self.used.clone()) as Use)
        })
    }

    fn start<'a>(&'a self, id: &'a Id, _: Use) -> BoxFuture<'a, Result<Output>> {
        Box::pin(async move {
            let starting = |is_starting| {
                let mut inside = self.inside();
                inside.containers.get_mut(id).expect("it is there").is_starting = is_starting;
            };
            starting(true);
            let started = self.call(true, move |inside| {
                let container = inside.containers.get_mut(id).expect("it is there");
                let has_started = std::mem::replace(&mut container.has_started, true);
                assert!(!has_started, "{id} is started twice");
                inside.start(&id.clone().into())
            });
            let started = started.await;
            starting(false);
            started
        })
    }

    fn add<'a>(&'a self, name: &'a Name, _: &'a Added, _: Use) -> BoxFuture<'a, Result<Output>> {
        Box::pin(async move {
            let comes = self.inside().containers.get_mut(&name.task).map(|container| {
                assert!(!container.is_paused, "{name} is added to a paused container");
                container.comes += 1;
            });
            let added = self.call(true, move |inside| {
                let container = name.task.clone().into();
                inside.runs(&container).then(|| inside.start(name))
            });
            let added = added.await;
            if let Some(container) = self.inside().containers.get_mut(&name.task)
                && comes.is_some()
            {
                container.comes -= 1;
            }
            added?.ok_or_else(|| Error::state("the container has ended"))
        })
    }

    fn input<'a>(&'a self, _: &'a Name, mut from: Input) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut all = Vec::new();
            let read = from.read_to_end(&mut all).await;
            let mut inside = self.inside();
            inside.input.0.extend(all);
            inside.input.1 += 1;
            drop(inside);
            read.map(drop).map_err(Error::failed)
        })
    }

    fn wait<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Ended>> {
        let mut ended = self.inside().processes[name].subscribe();
        Box::pin(async move {
            let ended = ended
                .wait_for(Option::is_some)
                .await
                .expect("it is waited for once")
                .expect("it has ended");
            self.call(false, move |inside| {
                inside.processes.remove(name);
                ended
            })
            .await
        })
    }

    fn signal<'a>(&'a self, name: &'a Name, signal: Signal, _: bool) -> BoxFuture<'a, Result<()>> {
        let kills = signal == Signal::KILL;
        Box::pin(async move {
            self.call(!kills, move |_| ()).await?;
            if kills && self.inside().kill_fails() {
                return Err(Error::failed("the VM is busy"));
            }
            let ended = Ended { status: signal.status(), out_of_memory: false };
            if kills {
                self.inside().end(name, ended);
            } else if signal.ends_by_default() {
                self.end_process(name, ended);
            }
            Ok(())
        })
    }

    fn pause<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        assert!(self.is_used(), "{id} is paused without a use");
        Box::pin(async move {
            let paused = self.call(true, move |inside| {
                let runs = inside.runs(&id.clone().into());
                let container = inside.containers.get_mut(id).expect("it is there");
                assert_eq!(container.comes, 0, "{id} is paused while something is added");
                assert!(!container.is_paused, "{id} is paused twice");
                container.is_paused = runs;
                runs
            });
            if paused.await? { Ok(()) } else { Err(Error::state("the container has ended")) }
        })
    }

    fn resume<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        assert!(self.is_used(), "{id} is resumed without a use");
        self.call(true, move |inside| {
            let runs = inside.runs(&id.clone().into());
            let container = inside.containers.get_mut(id).expect("it is there");
            assert!(std::mem::take(&mut container.is_paused) || !runs, "{id} was not paused");
        })
    }

    fn resize<'a>(&'a self, name: &'a Name, _: TerminalSize) -> BoxFuture<'a, Result<()>> {
        assert!(self.is_used(), "{name} has another size without a use");
        self.call(true, move |inside| assert!(inside.processes.contains_key(name)))
    }

    fn delete<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        self.call(true, move |inside| {
            inside.containers.remove(id);
            let mut names = inside.processes.keys();
            assert!(!names.any(|name| name.task == *id && inside.runs(name)), "{id} runs");
        })
    }

    fn processes<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Vec<Listed>>> {
        self.call(true, move |inside| {
            let names = inside.processes.keys().filter(|name| name.task == *id);
            let listed = |(pid, name): (u32, &Name)| Listed { pid, added: name.added.clone() };
            (2..).zip(names).map(listed).collect()
        })
    }

    fn usage<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Usage>> {
        self.call(true, move |inside| {
            assert!(inside.pods.contains(id) || inside.containers.contains_key(id));
            Usage { memory_bytes: 4096, ..Default::default() }
        })
    }

    fn update<'a>(&'a self, id: &'a Id, limits: Limits) -> BoxFuture<'a, Result<()>> {
        self.call(true, move |inside| match inside.containers.get_mut(id) {
            Some(container) => {
                assert!(!container.is_starting, "{id} is updated while it is being started");
                container.limits = limits;
            }
            None => assert!(inside.pods.contains(id)),
        })
    }

    fn ended(&self) -> BoxFuture<'_, String> {
        let mut why = self.why.subscribe();
        Box::pin(async move { why.wait_for(Option::is_some).await.unwrap().clone().unwrap() })
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// A host that counts holders.
#[derive(Default)]
pub struct FakeHost {
    holders: Arc<()>,
    /// No place is given back while somebody has this.
    pub registry: tokio::sync::Mutex<()>,
    released: Mutex<Vec<Id>>,
    refused: Mutex<Vec<Id>>,
}

impl FakeHost {
    /// Holders that run.
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.holders) - 1
    }

    /// Pods whose place was given back.
    pub fn released(&self) -> Vec<Id> {
        self.released.lock().unwrap().clone()
    }

    /// Pods for which there was no room beside others.
    pub fn refused(&self) -> Vec<Id> {
        self.refused.lock().unwrap().clone()
    }
}

impl Host for FakeHost {
    fn hold<'a>(&'a self, _: Option<&'a Path>) -> BoxFuture<'a, Result<Holder>> {
        Box::pin(async { Ok(Holder { pid: 4711, keep: Box::new(self.holders.clone()) }) })
    }

    fn release(self: Arc<Self>, pod: Id) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _registry = self.registry.lock().await;
            self.released.lock().unwrap().push(pod);
        })
    }

    fn limit_to_others(self: Arc<Self>, pod: Id) -> BoxFuture<'static, ()> {
        self.refused.lock().unwrap().push(pod);
        Box::pin(async {})
    }
}
