use super::*;
use std::{collections::BTreeSet, thread};
use tempfile::TempDir;

const CONTAINERD: &str = "/run/containerd/containerd.sock";

fn id(text: &str) -> Id {
    text.parse().unwrap()
}

fn group(kubernetes_namespace: &str, vm: &str, memory_mib: u64) -> Group {
    Group {
        key: format!("{kubernetes_namespace}/{vm}/{memory_mib}"),
        namespace: kubernetes_namespace.to_owned(),
        partition_bytes: memory_mib << 20,
    }
}

fn lock(state: &TempDir) -> Registry {
    Registry::lock(state.path(), CONTAINERD, &id("k8s.io")).unwrap()
}

fn started(place: Place) -> (ServerName, UnixListener) {
    match place {
        Place::New(server, listener) => (server, listener),
        Place::Running(server) => panic!("{server:?} runs already"),
    }
}

fn joined(place: Place) -> ServerName {
    match place {
        Place::Running(server) => server,
        Place::New(server, _) => panic!("{server:?} is new"),
    }
}

#[test]
fn the_first_pod_starts_a_server_and_further_ones_join_it_until_it_is_full() {
    let state = TempDir::new().unwrap();
    let registry = lock(&state);
    let group = group("shop", "default", 256);
    let (first, _listening) = started(registry.reserve(&id("pod-0"), &group, &[]).unwrap());
    for number in 1..pods_per_vm(group.partition_bytes) {
        assert_eq!(
            joined(registry.reserve(&id(&format!("pod-{number}")), &group, &[]).unwrap()),
            first
        );
    }
    let (second, _listening_too) = started(registry.reserve(&id("one-more"), &group, &[]).unwrap());
    assert_ne!(first, second);
    registry.release(&id("pod-7")).unwrap();
    assert_eq!(joined(registry.reserve(&id("another"), &group, &[]).unwrap()), first);
    assert_eq!(registry.server_of(&id("another")).unwrap(), first);
}

#[test]
fn a_server_has_the_room_that_its_vm_was_made_with() {
    let state = TempDir::new().unwrap();
    let registry = lock(&state);
    let group = group("shop", "default", 256);
    let (first, _listening) = started(registry.reserve(&id("a"), &group, &[]).unwrap());
    registry.admit(&first, &group, 2, 9).unwrap();
    assert_eq!(joined(registry.reserve(&id("b"), &group, &[]).unwrap()), first);
    let (second, listening) = started(registry.reserve(&id("c"), &group, &[]).unwrap());
    registry.admit(&second, &group, 1, 9).unwrap();
    // What it was is nothing to the next of its name.
    drop(listening);
    assert_eq!(started(registry.reserve(&id("d"), &group, &[]).unwrap()).0, second);
    assert_eq!(registry.room(&second), None);
}

#[test]
fn a_server_without_room_for_a_pod_gets_none_before_another_one_has_left() {
    let state = TempDir::new().unwrap();
    let registry = lock(&state);
    let group = group("shop", "default", 256);
    let (first, _listening) = started(registry.reserve(&id("a"), &group, &[]).unwrap());
    registry.admit(&first, &group, 32, 9).unwrap();
    for pod in ["b", "c"] {
        assert_eq!(joined(registry.reserve(&id(pod), &group, &[]).unwrap()), first);
    }
    registry.limit_to_others(&first, &id("c")).unwrap();
    assert_eq!(registry.vms_of("shop").unwrap(), 1, "it is still the namespace's");
    registry.release(&id("c")).unwrap();
    let (second, _listening_too) = started(registry.reserve(&id("c"), &group, &[]).unwrap());
    registry.release(&id("b")).unwrap();
    assert_eq!(joined(registry.reserve(&id("d"), &group, &[]).unwrap()), first);
    assert_eq!(joined(registry.reserve(&id("e"), &group, &[]).unwrap()), second);
    // It never has room for more than before.
    registry.limit_to_others(&first, &id("nobody")).unwrap();
    registry.limit_to_others(&first, &id("a")).unwrap();
    registry.limit_to_others(&first, &id("nobody")).unwrap();
    assert_eq!(registry.room(&first), Some(Room { pods: 1, namespace: "shop".to_owned() }));
}

#[test]
fn groups_have_servers_of_their_own() {
    let state = TempDir::new().unwrap();
    let registry = lock(&state);
    let (front, _one) =
        started(registry.reserve(&id("a"), &group("shop", "front", 256), &[]).unwrap());
    let (back, _two) =
        started(registry.reserve(&id("b"), &group("shop", "back", 256), &[]).unwrap());
    assert_ne!(front, back);
}

#[test]
fn a_namespace_has_no_more_vms_than_it_may_have_and_others_have_theirs() {
    let state = TempDir::new().unwrap();
    let registry = lock(&state);
    let new = |pod: &str, group: &Group| {
        let (server, listener) = started(registry.reserve(&id(pod), group, &[]).unwrap());
        let admitted = registry.admit(&server, group, 32, 2);
        if admitted.is_err() {
            registry.forget(&server).unwrap();
        }
        admitted.map(|()| listener)
    };
    let of = |vm| group("shop", vm, 256);
    let _one = new("a", &of("front")).unwrap();
    let two = new("b", &of("back")).unwrap();
    let error = new("c", &of("third")).unwrap_err();
    assert!(error.message.contains("namespace \"shop\" has 2 VMs"), "{error}");
    assert!(registry.server_of(&id("c")).is_err(), "it has left no place");
    joined(registry.reserve(&id("d"), &of("front"), &[]).unwrap());
    let _other = new("e", &group("bank", "front", 256)).unwrap();
    drop(two);
    new("f", &of("third")).unwrap();
}

#[test]
fn a_name_is_of_a_hash_that_nobody_finds_another_text_for() {
    let name = ServerName::new(&group("shop", "front", 256), 63);
    assert_eq!(name.as_str().len(), 2 * GROUP_HASH_BYTES + "-63".len());
    assert_eq!(ServerName::parse(name.as_str()), Some(name));
}

#[test]
fn the_places_in_a_server_that_was_killed_are_free_again() {
    let state = TempDir::new().unwrap();
    let registry = lock(&state);
    let group = group("shop", "default", 256);
    let (killed, listener) = started(registry.reserve(&id("old"), &group, &[]).unwrap());
    drop(listener);
    let (new, _listening) = started(registry.reserve(&id("new"), &group, &[]).unwrap());
    assert_eq!(killed, new, "its name is used again");
    assert!(registry.server_of(&id("old")).is_err());
    // A pod whose server is gone may come again.
    assert_eq!(joined(registry.reserve(&id("old"), &group, &[]).unwrap()), new);
}

#[test]
fn a_pod_has_one_place() {
    let state = TempDir::new().unwrap();
    let registry = lock(&state);
    let group = group("shop", "default", 256);
    let _first = started(registry.reserve(&id("twice"), &group, &[]).unwrap());
    assert_eq!(registry.reserve(&id("twice"), &group, &[]).unwrap_err().kind, ErrorKind::Exists);
}

#[test]
fn a_server_that_ends_takes_everything_along() {
    let state = TempDir::new().unwrap();
    let registry = lock(&state);
    let (server, _listening) =
        started(registry.reserve(&id("a"), &group("shop", "default", 256), &[]).unwrap());
    assert!(!registry.is_empty(&server).unwrap());
    registry.forget(&server).unwrap();
    assert!(registry.is_empty(&server).unwrap());
    assert!(!registry.socket(&server).exists());
    // Twice is no error: a server that was killed in between is forgotten by the next one.
    registry.forget(&server).unwrap();
}

#[test]
fn the_last_logs_of_servers_that_have_ended_are_kept_and_those_of_others() {
    let state = TempDir::new().unwrap();
    let registry = lock(&state);
    let log = |path: &Path, second: u64| {
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        File::create(path).unwrap().set_modified(written).unwrap();
        path.to_owned()
    };
    let new = |name: &str| {
        let group = group("shop", name, 256);
        started(registry.reserve(&id(name), &group, &[]).unwrap())
    };
    let (running, _listening) = new("running");
    let running = log(&registry.log(&running), 0);
    let mut ended = Vec::new();
    for number in 1..=OLD_LOGS as u64 {
        let (server, listening) = new(&format!("job-{number}"));
        ended.push(log(&registry.log(&server).with_extension("log.1"), 2 * number));
        ended.push(log(&registry.log(&server), 2 * number + 1));
        drop(listening);
        registry.forget(&server).unwrap();
    }
    let (old, last) = ended.split_at(ended.len() - OLD_LOGS);
    assert!(running.exists() && last.iter().all(|path| path.exists()));
    assert!(!old.iter().any(|path| path.exists()));
}

#[test]
fn a_file_that_names_no_server_is_no_place() {
    let state = TempDir::new().unwrap();
    let registry = lock(&state);
    for text in ["", "../../etc", &"a".repeat(100)] {
        fs::write(registry.pod_file(&id("odd")), text).unwrap();
        assert_eq!(registry.server_of(&id("odd")).unwrap_err().kind, ErrorKind::State, "{text}");
    }
}

#[test]
fn containerds_and_their_namespaces_do_not_meet() {
    let state = TempDir::new().unwrap();
    let directories: BTreeSet<PathBuf> =
        [("/a.sock", "k8s.io"), ("/b.sock", "k8s.io"), ("/a.sock", "default")]
            .map(|(containerd, namespace)| {
                Registry::lock(state.path(), containerd, &id(namespace)).unwrap().directory
            })
            .into();
    assert_eq!(directories.len(), 3);
}

#[test]
fn pods_that_come_at_once_get_one_server() {
    let state = TempDir::new().unwrap();
    let group = group("shop", "default", 256);
    let places: Vec<Place> = thread::scope(|scope| {
        let starts: Vec<_> = (0..8)
            .map(|number| {
                let (state, group) = (&state, &group);
                scope.spawn(move || {
                    lock(state).reserve(&id(&format!("pod-{number}")), group, &[]).unwrap()
                })
            })
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    let new = places.iter().filter(|place| matches!(place, Place::New(..))).count();
    assert_eq!(new, 1, "{places:?}");
}

#[test]
fn a_server_that_is_silent_gets_no_pod_until_it_has_ended() {
    let state = TempDir::new().unwrap();
    let registry = lock(&state);
    let group = group("shop", "default", 256);
    let (silent, listening) = started(registry.reserve(&id("a"), &group, &[]).unwrap());
    let silent = [silent];
    let (other, _listening) = started(registry.reserve(&id("b"), &group, &silent).unwrap());
    assert_ne!(other, silent[0]);
    assert_eq!(joined(registry.reserve(&id("c"), &group, &silent).unwrap()), other);
    assert_eq!(registry.server_of(&id("a")), Ok(silent[0].clone()));
    // Its name is the next one's then.
    drop(listening);
    registry.forget(&other).unwrap();
    assert_eq!(started(registry.reserve(&id("d"), &group, &silent).unwrap()).0, silent[0]);
}

#[test]
fn a_server_that_does_not_accept_is_not_waited_for() {
    let state = TempDir::new().unwrap();
    let registry = lock(&state);
    let group = group("shop", "default", 256);
    let (server, listener) = started(registry.reserve(&id("a"), &group, &[]).unwrap());
    rustix::net::listen(&listener, 0).unwrap();
    let waiting: Vec<_> = (0..3).map(|_| registry.is_running(&server)).collect();
    assert_eq!(waiting, [true; 3]);
    assert_eq!(joined(registry.reserve(&id("b"), &group, &[]).unwrap()), server);
}
