pub(crate) mod fake;
mod life;
mod orders;

use super::*;
use crate::{
    spec::{Pod, Process},
    tasks::tests::fake::{FakeHost, FakeVm},
};
use containerd_shim_protos::protobuf::Message;
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
            // The id of the container is the first field of each.
            let id = TaskOOM::parse_from_bytes(&event.value).unwrap().container_id;
            format!("{} {id}", envelope.topic.trim_start_matches("/tasks/"))
        };
        self.events.envelopes().into_iter().map(told).collect()
    }

    async fn create(&self, name: &str, what: What) -> Result<u32> {
        let create =
            Create { id: id(name), what, bundle: "/bundle".into(), streams: Streams::default() };
        self.tasks.create(create, Vec::new()).await
    }
}

fn id(text: &str) -> Id {
    text.parse().unwrap()
}

fn pod() -> Pod {
    Pod {
        memory_bytes: 1 << 28,
        kubernetes_namespace: String::new(),
        vm: "default".to_owned(),
        network: None,
    }
}

fn root() -> Root {
    let process = Process {
        arguments: vec!["sh".to_owned()],
        environment: [].into(),
        user: Default::default(),
        read_only_root: false,
        working_directory: "/".to_owned(),
        memory_bytes: None,
    };
    Root { process, layers: vec!["/layer".into()] }
}

/// Longer than anything that has an end may take.
async fn soon<T>(call: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(600), call).await.expect("it ends")
}
