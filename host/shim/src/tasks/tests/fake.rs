//! A VM and a host that keep count, and panic when the contract of [`Vm`] is broken.

use crate::{
    Id,
    error::{Error, Result},
    host::{Holder, Host},
    spec::Pod,
    vm::{Container, Ended, Limits, Output, Signal, Usage, Vm},
};
use futures_util::future::BoxFuture;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{sync::watch, time::sleep};

pub struct FakeVm {
    inside: Mutex<Inside>,
    why: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct Inside {
    pods: BTreeSet<Id>,
    containers: BTreeMap<Id, FakeContainer>,
    /// How long the next calls take, in milliseconds, and whether they fail; at once and not, at the end.
    script: Vec<(u64, bool)>,
}

struct FakeContainer {
    pod: Id,
    has_started: bool,
    ended: watch::Sender<Option<Ended>>,
}

impl FakeVm {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { inside: Mutex::default(), why: watch::channel(None).0 })
    }

    /// What the next calls do.
    pub fn follow(&self, script: Vec<(u64, bool)>) {
        self.inside().script = script;
    }

    /// The process of a container ends, if it runs.
    pub fn end_process(&self, id: &Id, ended: Ended) {
        if let Some(container) =
            self.inside().containers.get(id).filter(|container| container.has_started)
        {
            container.ended.send_if_modified(|has| has.replace(ended).is_none());
        }
    }

    /// The VM ends by itself.
    pub fn end(&self) {
        self.why.send_replace(Some("killed".to_owned()));
    }

    pub fn has_ended(&self) -> bool {
        self.why.borrow().is_some()
    }

    /// Pods and containers.
    pub fn left(&self) -> (usize, usize) {
        let inside = self.inside();
        (inside.pods.len(), inside.containers.len())
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
        self.call(true, move |inside| assert!(inside.pods.insert(id.clone()), "{id} is made twice"))
    }

    fn delete_pod<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        self.call(true, move |inside| {
            assert!(
                inside.containers.values().all(|container| container.pod != *id),
                "{id} has containers"
            );
            inside.pods.remove(id);
        })
    }

    fn create<'a>(&'a self, id: &'a Id, container: &'a Container) -> BoxFuture<'a, Result<()>> {
        self.call(true, move |inside| {
            assert!(inside.pods.contains(&container.pod), "{} is not there", container.pod);
            let made = FakeContainer {
                pod: container.pod.clone(),
                has_started: false,
                ended: watch::channel(None).0,
            };
            assert!(inside.containers.insert(id.clone(), made).is_none(), "{id} is made twice");
        })
    }

    fn start<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Output>> {
        self.call(true, move |inside| {
            let container = inside.containers.get_mut(id).expect("it is there");
            assert!(!std::mem::replace(&mut container.has_started, true), "{id} is started twice");
            Output { stdout: Box::new(tokio::io::empty()), stderr: Box::new(tokio::io::empty()) }
        })
    }

    fn wait<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Ended>> {
        let mut ended = self.inside().containers[id].ended.subscribe();
        Box::pin(async move {
            let ended = ended
                .wait_for(Option::is_some)
                .await
                .expect("it is not deleted before it ends")
                .unwrap();
            self.call(false, move |_| ended).await
        })
    }

    fn signal<'a>(&'a self, id: &'a Id, signal: Signal, _: bool) -> BoxFuture<'a, Result<()>> {
        let kills = signal == Signal::KILL;
        Box::pin(async move {
            self.call(!kills, move |_| ()).await?;
            if signal.ends_by_default() {
                self.end_process(id, Ended { status: signal.status(), out_of_memory: false });
            }
            Ok(())
        })
    }

    fn delete<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<()>> {
        self.call(true, move |inside| {
            if let Some(container) = inside.containers.remove(id) {
                assert!(!container.has_started || container.ended.borrow().is_some(), "{id} runs");
            }
        })
    }

    fn usage<'a>(&'a self, id: &'a Id) -> BoxFuture<'a, Result<Usage>> {
        self.call(true, move |inside| {
            assert!(inside.pods.contains(id) || inside.containers.contains_key(id));
            Usage { memory_bytes: 4096, ..Default::default() }
        })
    }

    fn update<'a>(&'a self, id: &'a Id, _: Limits) -> BoxFuture<'a, Result<()>> {
        self.call(true, move |inside| {
            assert!(inside.pods.contains(id) || inside.containers.contains_key(id))
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
    released: Mutex<Vec<Id>>,
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
}

impl Host for FakeHost {
    fn hold<'a>(&'a self, _: Option<&'a Path>) -> BoxFuture<'a, Result<Holder>> {
        Box::pin(async { Ok(Holder { pid: 4711, keep: Box::new(self.holders.clone()) }) })
    }

    fn release(&self, pod: &Id) {
        self.released.lock().unwrap().push(pod.clone());
    }
}
