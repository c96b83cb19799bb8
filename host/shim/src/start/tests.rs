use super::*;
use crate::{error::ErrorKind, serve::tests::Running};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

struct Containerd {
    state: TempDir,
    bundle: TempDir,
}

impl Containerd {
    fn with(spec: &Value) -> Self {
        let (state, bundle) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        fs::write(bundle.path().join("config.json"), serde_json::to_vec(spec).unwrap()).unwrap();
        Self { state, bundle }
    }

    fn task(&self, id: &str) -> Task {
        Task {
            namespace: "k8s.io".parse().unwrap(),
            id: id.parse().unwrap(),
            address: "/run/containerd/containerd.sock".to_owned(),
            bundle: Some(self.bundle.path().to_owned()),
        }
    }

    fn start(&self, id: &str, program: &str) -> Result<Vec<u8>> {
        let settings = self.bundle.path().join("shim.toml");
        start(&self.task(id), &[][..], None, self.state.path(), Path::new(program), &settings)
    }

    fn registry(&self) -> Registry {
        let task = self.task("any");
        Registry::lock(self.state.path(), &task.address, &task.namespace).unwrap()
    }
}

fn pod() -> Value {
    json!({
        "annotations": {
            "io.kubernetes.cri.container-type": "sandbox",
            "io.kubernetes.cri.sandbox-namespace": "shop",
            "io.kubernetes.cri.sandbox-memory": "134217728"
        },
        "linux": {"namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "network"}]}
    })
}

fn container() -> Value {
    json!({
        "annotations": {"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": "pod"},
        "process": {"args": ["sh"]}
    })
}

#[test]
fn a_server_that_cannot_be_started_leaves_no_place_and_no_socket() {
    let containerd = Containerd::with(&pod());
    let error = containerd.start("pod", "/nowhere/at/all").unwrap_err();
    assert!(error.message.contains("cannot start /nowhere/at/all"), "{error}");
    let id = "pod".parse().unwrap();
    assert!(containerd.registry().server_of(&id).is_err());
    let directories =
        fs::read_dir(containerd.state.path()).unwrap().map(|entry| entry.unwrap().path());
    for directory in directories {
        assert_eq!(fs::read_dir(directory.join("pods")).unwrap().count(), 0);
        let servers = fs::read_dir(directory.join("servers")).unwrap();
        let names: Vec<_> =
            servers.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(names.iter().all(|name| name.ends_with(".log")), "{names:?}");
    }
}

#[test]
fn settings_are_for_a_new_vm_and_leave_others_alone() {
    let containerd = Containerd::with(&pod());
    fs::write(containerd.bundle.path().join("shim.toml"), "vcpus = 1\n").unwrap();
    let error = containerd.start("pod", "/bin/true").unwrap_err();
    assert!(error.message.contains("shim.toml: line 1: unknown field `vcpus`"), "{error}");
    let (pod, other) = ("pod".parse().unwrap(), "other".parse().unwrap());
    assert!(containerd.registry().server_of(&pod).is_err(), "it has no place");
    let group = Group::of_namespace("shop", 128 << 20);
    let place = containerd.registry().reserve(&other, &group, &[]).unwrap();
    assert!(matches!(place, Place::New(..)));
    containerd.start("pod", "/nowhere/at/all").unwrap();
}

#[test]
fn a_pod_is_sent_to_another_server_than_one_that_hangs() {
    let containerd = Containerd::with(&pod());
    let (first, next) = ("first".parse().unwrap(), "next".parse().unwrap());
    let group = Group::of_namespace("shop", 128 << 20);
    let place = containerd.registry().reserve(&first, &group, &[]).unwrap();
    let Place::New(hangs, _listening) = place else { panic!("there is none yet") };
    // Until it has begun it need not answer.
    containerd.start("soon", "/nowhere/at/all").unwrap();
    fs::write(containerd.registry().owner(&hangs), "").unwrap();
    let begin = Instant::now();
    containerd.start("next", "/nowhere/at/all").unwrap_err();
    assert!(begin.elapsed() >= PATIENCE.idle, "it has had no time to answer");
    assert!(containerd.registry().server_of(&next).is_err(), "it has a place");
    containerd.start("next", "/bin/true").unwrap();
    assert_ne!(containerd.registry().server_of(&next).unwrap(), hangs);
    assert_eq!(containerd.registry().server_of(&first).unwrap(), hangs);
}

#[tokio::test]
async fn a_pod_is_sent_to_a_server_that_answers() {
    let running = Running::new().await;
    let assignment = running.assignment.clone();
    let owned = {
        let registry =
            Registry::lock(&assignment.state, &assignment.containerd, &assignment.namespace);
        registry.unwrap().owner(&assignment.server)
    };
    fs::write(owned, "").unwrap();
    let state = assignment.state.clone();
    let task = Task {
        namespace: assignment.namespace.clone(),
        id: "next".parse().unwrap(),
        address: assignment.containerd.clone(),
        bundle: Some(running.directory.path().to_owned()),
    };
    let next = move || {
        let settings = state.join("shim.toml");
        start(&task, &[][..], None, &state, Path::new("/nowhere/at/all"), &settings)
    };
    let answer = String::from_utf8(spawn_blocking(next).await.unwrap().unwrap()).unwrap();
    assert!(answer.ends_with(&format!("{}.sock", assignment.server.as_str())), "{answer}");
}

#[test]
fn a_container_is_sent_to_the_server_of_its_pod() {
    let containerd = Containerd::with(&container());
    let (server, _listening) = {
        let registry = containerd.registry();
        let group = Group::of_namespace("shop", 128 << 20);
        match registry.reserve(&"pod".parse().unwrap(), &group, &[]).unwrap() {
            Place::New(server, listener) => (server, listener),
            Place::Running(_) => panic!("there is none yet"),
        }
    };
    let answer = containerd.start("container", "/nowhere/at/all").unwrap();
    let address = format!("unix://{}", containerd.registry().socket(&server).display());
    assert_eq!(answer, address.as_bytes());
    assert_eq!(fs::read_to_string(containerd.bundle.path().join("address")).unwrap(), address);
}

#[test]
fn a_container_without_a_pod_is_refused() {
    let error = Containerd::with(&container()).start("container", "/nowhere/at/all").unwrap_err();
    assert_eq!(error.kind, ErrorKind::State);
    assert!(error.message.contains("there is no pod pod"), "{error}");
}

#[test]
fn a_bundle_without_a_spec_is_refused() {
    let containerd = Containerd::with(&pod());
    fs::remove_file(containerd.bundle.path().join("config.json")).unwrap();
    let error = containerd.start("pod", "/nowhere/at/all").unwrap_err();
    assert!(error.message.contains("config.json"), "{error}");
}
