use super::*;
use crate::error::ErrorKind;
use proptest::prelude::*;
use serde_json::{Value, json};

/// What `ctr run --memory-limit` of containerd 1.6.20 writes, without the lists of masked paths and devices.
fn single() -> Value {
    json!({
        "ociVersion": "1.0.2-dev",
        "process": {
            "user": {"uid": 0, "gid": 0, "additionalGids": [0]},
            "args": ["sh", "-c", "echo hello"],
            "env": ["PATH=/usr/bin:/bin", "EMPTY="],
            "cwd": "/",
            "capabilities": {"bounding": ["CAP_CHOWN"]},
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
            "noNewPrivileges": true
        },
        "root": {"path": "rootfs"},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid"]},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts"},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm"},
            {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue"},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs"},
            {"destination": "/run", "type": "tmpfs", "source": "tmpfs"}
        ],
        "linux": {
            "resources": {"memory": {"limit": 268435456}, "devices": [{"allow": false, "access": "rwm"}]},
            "cgroupsPath": "/default/one",
            "namespaces": [{"type": "pid"}, {"type": "network"}, {"type": "mount"}]
        }
    })
}

fn pod() -> Value {
    json!({
        "process": {"user": {"uid": 65535, "gid": 65535}, "args": ["/pause"], "cwd": "/"},
        "annotations": {
            "io.kubernetes.cri.container-type": "sandbox",
            "io.kubernetes.cri.sandbox-id": "5f",
            "io.kubernetes.cri.sandbox-namespace": "shop",
            "io.kubernetes.cri.sandbox-memory": "134217728",
            "dev.squeezy/vm": "front"
        },
        "mounts": [{"destination": "/dev/shm", "type": "bind", "source": "/run/containerd/shm"}],
        "linux": {"namespaces": [{"type": "network", "path": "/var/run/netns/cni-1"}]}
    })
}

fn parse(document: &Value) -> Result<Spec> {
    Spec::parse(&serde_json::to_vec(document).unwrap())
}

/// The document with the value at a JSON pointer set.
fn with(mut document: Value, pointer: &str, value: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    document
        .pointer_mut(parent)
        .expect("a parent")
        .as_object_mut()
        .unwrap()
        .insert(name.to_owned(), value);
    document
}

#[test]
fn a_task_of_ctr_is_a_pod_and_its_container_in_one() {
    let spec = parse(&single()).unwrap();
    let pod = Pod {
        memory_bytes: 256 << 20,
        kubernetes_namespace: String::new(),
        vm: "default".to_owned(),
        network: None,
    };
    assert_eq!(spec.role, Role::Single(pod));
    let process = spec.process.unwrap();
    assert_eq!(process.arguments, ["sh", "-c", "echo hello"]);
    assert_eq!(process.environment["PATH"], "/usr/bin:/bin");
    assert_eq!(process.environment["EMPTY"], "");
    assert_eq!(process.working_directory, "/");
}

#[test]
fn a_pod_of_kubernetes_is_described_by_its_annotations() {
    let spec = parse(&pod()).unwrap();
    let expected = Pod {
        memory_bytes: 128 << 20,
        kubernetes_namespace: "shop".to_owned(),
        vm: "front".to_owned(),
        network: Some("/var/run/netns/cni-1".into()),
    };
    assert_eq!(spec, Spec { role: Role::Pod(expected), process: None });
}

#[test]
fn a_container_of_kubernetes_names_its_pod() {
    let annotations = json!({"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": "5f"});
    let spec = parse(&with(single(), "/annotations", annotations)).unwrap();
    assert_eq!(spec.role, Role::Container("5f".parse().unwrap()));
}

#[test]
fn a_container_is_who_it_says() {
    let user = json!({"uid": 1000, "gid": 50, "additionalGids": [7, 65535]});
    let spec = with(with(single(), "/process/user", user), "/root/readonly", json!(true));
    let process = parse(&spec).unwrap().process.unwrap();
    let expected = InstanceUser { user: 1000, group: 50, other_groups: vec![7, 65535] };
    assert_eq!((process.user, process.read_only_root), (expected, true));
}

#[test]
fn what_the_runtime_cannot_do_is_refused_by_name() {
    let volume = json!([{"destination": "/data", "type": "bind", "source": "/srv"}]);
    let scratch = json!([{"destination": "/cache", "type": "tmpfs"}]);
    for (pointer, value, says) in [
        ("/process/terminal", json!(true), "a terminal"),
        ("/process/user", json!({"uid": 65536, "gid": 50}), "above 65535, 65536,"),
        ("/process/user", json!({"uid": 1, "gid": 1, "additionalGids": [70000]}), "70000"),
        ("/process/user", json!({"additionalGids": vec![1; 65]}), "more than 64 additional groups"),
        ("/hooks", json!({"prestart": [{"path": "/hook"}]}), "a hook"),
        ("/linux/devices", json!([{"path": "/dev/fuse"}]), "/dev/fuse"),
        ("/mounts", volume, "bind mount at \"/data\""),
        ("/mounts", scratch, "tmpfs mount at \"/cache\""),
    ] {
        let error = parse(&with(single(), pointer, value)).expect_err(pointer);
        assert_eq!(error.kind, ErrorKind::Unimplemented, "{error}");
        assert!(error.message.contains(says), "{pointer}: {error}");
    }
}

#[test]
fn what_is_wrong_is_said_in_a_sentence() {
    let long = "x".repeat(MAX_STRING_BYTES);
    let much: Vec<String> =
        (0..20).map(|number| format!("V{number}={}", "x".repeat(100_000))).collect();
    for (document, says) in [
        (with(single(), "/linux/resources", json!({})), "no memory limit"),
        (with(single(), "/linux/resources/memory", json!({"limit": -1})), "no memory limit"),
        (with(single(), "/process/args", json!([])), "no command"),
        (with(single(), "/process/args", json!(["a\0b"])), "zero byte"),
        (with(single(), "/process/args", json!(["sh", long])), "128 KiB"),
        (with(single(), "/process/env", json!(much)), "1 MiB together"),
        (with(single(), "/process/env", json!(["NAME"])), "NAME=VALUE"),
        (with(single(), "/process/cwd", json!("work")), "working directory"),
        (with(single(), "/process", Value::Null), "no process"),
        (with(single(), "/process", json!("sh")), "no OCI runtime spec"),
        (with(pod(), "/annotations", json!({TYPE: "sandbox"})), "no memory limit"),
        (with(pod(), "/annotations", json!({TYPE: "container"})), "no annotation"),
        (with(pod(), "/annotations", json!({TYPE: "other"})), "neither sandbox nor container"),
        (
            with(pod(), "/linux/namespaces", json!([{"type": "network", "path": "../x"}])),
            "network namespace",
        ),
    ] {
        let error = parse(&document).expect_err(says);
        assert!(error.message.contains(says) && !error.message.contains('\n'), "{error}");
    }
}

#[test]
fn a_vm_is_named_like_everything_else() {
    let mut document = pod();
    document["annotations"]["dev.squeezy/vm"] = json!("../other");
    let error = parse(&document).unwrap_err();
    assert!(
        error.message.contains("annotation dev.squeezy/vm")
            && error.message.contains("no identifier"),
        "{error}"
    );
}

#[test]
fn a_spec_without_an_end_is_not_read_to_it() {
    let text = vec![b' '; MAX_DOCUMENT_BYTES as usize + 1];
    assert!(Spec::parse(&text).unwrap_err().message.contains("4 MiB"));
}

fn mount(kind: &str, source: &str, options: &[&str]) -> Mount {
    Mount {
        type_: kind.to_owned(),
        source: source.to_owned(),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
        ..Default::default()
    }
}

#[test]
fn layers_are_the_lower_directories_the_topmost_first() {
    let overlay = mount(
        "overlay",
        "overlay",
        &["index=off", "upperdir=/s/3/fs", "workdir=/s/3/w", "lowerdir=/s/2/fs:/s/1/fs"],
    );
    assert_eq!(layers(&[overlay]).unwrap(), [Path::new("/s/2/fs"), Path::new("/s/1/fs")]);
    assert_eq!(
        layers(&[mount("bind", "/s/1/fs", &["ro", "rbind"])]).unwrap(),
        [Path::new("/s/1/fs")]
    );
}

#[test]
fn a_root_of_which_no_layers_can_be_told_is_refused() {
    let many = format!("lowerdir={}", vec!["/l"; 129].join(":"));
    for (mounts, says) in [
        (vec![], "0 mounts"),
        (vec![mount("ext4", "/dev/sda", &[])], "type \"ext4\""),
        (vec![mount("overlay", "overlay", &[])], "no lowerdir"),
        (vec![mount("overlay", "overlay", &["lowerdir=/a:b"])], "absolute path"),
        (vec![mount("overlay", "overlay", &["lowerdir=/a/../b"])], "absolute path"),
        (vec![mount("overlay", "overlay", &[&many])], "more than 128 layers"),
    ] {
        assert!(layers(&mounts).unwrap_err().message.contains(says), "{says}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Spec::parse(&text);
    }
}
