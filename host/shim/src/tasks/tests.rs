mod added;
pub(crate) mod fake;
mod frozen;
mod life;
mod orders;
mod pause;
mod remove;
mod usage;

use super::*;
use crate::{
    spec::{Container, Pod, Process, Root},
    tasks::tests::fake::{FakeHost, FakeVm},
};
use containerd_shim_protos::{events::task::TaskExecAdded, protobuf::Message};
use std::time::Duration;
use tokio::time::timeout;

/// Tasks over fakes.
struct Bench {
    tasks: Arc<Tasks>,
    vm: Arc<FakeVm>,
    host: Arc<FakeHost>,
    events: Events,
}

impl Bench {
    fn new() -> Self {
        let (vm, host) = (FakeVm::new(), Arc::new(FakeHost::default()));
        let events = Events::new(id("k8s.io"));
        let tasks = Tasks::new(vm.clone(), host.clone(), events.clone());
        Self { tasks, vm, host, events }
    }

    /// What has happened, as `create a`, in order.
    fn seen(&self) -> Vec<String> {
        let told = |envelope: containerd_shim_protos::shim::event::Envelope| {
            let event = envelope.event.unwrap();
            let topic = envelope.topic.trim_start_matches("/tasks/");
            // The id of the container is the first field of each, that of an added process the second of these.
            let first = TaskExecAdded::parse_from_bytes(&event.value);
            let name = match first {
                Ok(TaskExecAdded { container_id, exec_id, .. })
                    if ["exec-added", "exec-started"].contains(&topic) =>
                {
                    format!("{container_id}/{exec_id}")
                }
                _ if topic == "exit" => {
                    let exit = TaskExit::parse_from_bytes(&event.value).unwrap();
                    let added = exit.id != exit.container_id;
                    if added { format!("{}/{}", exit.container_id, exit.id) } else { exit.id }
                }
                _ => TaskOOM::parse_from_bytes(&event.value).unwrap().container_id,
            };
            format!("{topic} {name}")
        };
        self.events.envelopes().into_iter().map(told).collect()
    }

    async fn create(&self, name: &str, what: What) -> Result<u32> {
        let create =
            Create { id: id(name), what, bundle: "/bundle".into(), streams: Streams::default() };
        self.tasks.create(create, Vec::new()).await
    }

    async fn add(&self, added: &str) -> Result<()> {
        self.tasks.add(&name(added), process(), Streams::default()).await
    }
}

fn id(text: &str) -> Id {
    text.parse().unwrap()
}

/// `task`, or `task/added`.
fn name(text: &str) -> Name {
    match text.split_once('/') {
        Some((task, added)) => Name { task: id(task), added: Some(id(added)) },
        None => id(text).into(),
    }
}

fn pod() -> Pod {
    Pod {
        memory_bytes: 1 << 28,
        cpu_shares: 0,
        cgroup_of_pods: None,
        kubernetes_namespace: String::new(),
        vm: "default".to_owned(),
        network: None,
        host_name: None,
        freeze: None,
    }
}

fn process() -> Process {
    Process {
        arguments: vec!["sh".to_owned()],
        environment: [].into(),
        user: Default::default(),
        working_directory: "/".to_owned(),
        terminal: None,
        privileges: Default::default(),
        resource_limits: Vec::new(),
        oom_score_adj: 0,
    }
}

fn parts() -> Parts {
    let spec = Container {
        process: process(),
        shares_processes: false,
        root: Root::default(),
        filters: Vec::new(),
        limits: Default::default(),
    };
    Parts { spec, layers: vec!["/layer".into()] }
}

/// A pod with a container that runs.
async fn running() -> Bench {
    let bench = Bench::new();
    bench.create("pod", What::Pod(pod())).await.unwrap();
    bench.tasks.start(&name("pod")).await.unwrap();
    bench.create("in", What::Container(id("pod"), parts())).await.unwrap();
    bench.tasks.start(&name("in")).await.unwrap();
    bench
}

/// Longer than anything that has an end may take.
async fn soon<T>(call: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(600), call).await.expect("it ends")
}
