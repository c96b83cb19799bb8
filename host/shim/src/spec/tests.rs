use super::*;
use crate::error::ErrorKind;
use proptest::prelude::*;
use serde_json::{Value, json};
use squeezy_protocol::{
    Capability, InstanceUser, Privileges, Resource, ResourceLimit, TerminalSize,
};
use squeezy_requests::{ObjectName, PodName};
use std::time::Duration;

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
            "namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "network"}, {"type": "mount"}]
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
            "io.kubernetes.cri.sandbox-cpu-shares": "512",
            "dev.squeezy/vm": "front",
            "dev.squeezy/freeze-after": "30"
        },
        "mounts": [{"destination": "/dev/shm", "type": "bind", "source": "/run/containerd/shm"}],
        "hostname": "web",
        "linux": {
            "cgroupsPath": "/kubepods/burstable/pod1/5f",
            "namespaces": [
                {"type": "pid"}, {"type": "ipc"}, {"type": "network", "path": "/var/run/netns/cni-1"}
            ],
            "sysctl": {
                "net.ipv4.ip_unprivileged_port_start": "0",
                "net.ipv4.ping_group_range": "0 2147483647"
            }
        }
    })
}

fn parse(document: &Value) -> Result<Spec> {
    Spec::parse(&serde_json::to_vec(document).unwrap())
}

/// The container of a spec.
fn container(document: &Value) -> Container {
    match parse(document).unwrap() {
        Spec::Container(_, container) | Spec::Single(_, container) => container,
        pod @ Spec::Pod(_) => panic!("{pod:?}"),
    }
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
fn limits_of_a_container_are_its_own() {
    let limits = container(&single()).limits;
    assert_eq!(limits, Limits { memory_bytes: Some(256 << 20), ..Limits::default() });
    let cpu = json!({"shares": 2048, "quota": 150_000, "period": 100_000});
    let limits = container(&with(single(), "/linux/resources/cpu", cpu)).limits;
    assert_eq!((limits.cpu_share_millis, limits.cpu_limit_millis), (Some(2000), Some(1500)));
}

#[test]
fn what_the_vm_does_not_take_at_once_is_refused() {
    let paths = |count: usize| json!(vec![format!("/{}", "x".repeat(199)).repeat(5); count]);
    let arguments = json!(vec!["x".repeat(100_000); 8]);
    let document = |count| {
        let document = with(single(), "/process/args", arguments.clone());
        parse(&with(document, "/linux/maskedPaths", paths(count)))
    };
    document(100).unwrap();
    let error = document(250).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("may take 960 KiB together"), "{error}");
}

#[test]
fn a_task_of_ctr_is_a_pod_and_its_container_in_one() {
    let spec = parse(&single()).unwrap();
    let pod = Pod {
        memory_bytes: 256 << 20,
        cpu_shares: 0,
        cgroup_of_pods: None,
        kubernetes_namespace: String::new(),
        vm: "default".to_owned(),
        network: None,
        host_name: None,
        freeze: None,
    };
    let Spec::Single(found, Container { process, .. }) = spec else { panic!("{spec:?}") };
    assert_eq!(found, pod);
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
        cpu_shares: 512,
        cgroup_of_pods: Some("kubepods".into()),
        kubernetes_namespace: "shop".to_owned(),
        vm: "front".to_owned(),
        network: Some("/var/run/netns/cni-1".into()),
        host_name: Some("web".to_owned()),
        freeze: Some(Freeze { after: Duration::from_secs(30), requests_occupied: None }),
    };
    assert_eq!(spec, Spec::Pod(expected));
}

#[test]
fn a_pod_has_the_shares_of_its_sandbox() {
    let with = |text: &str| {
        let mut document = pod();
        document["annotations"]["io.kubernetes.cri.sandbox-cpu-shares"] = json!(text);
        parse(&document)
    };
    for (text, shares) in [("2", 2), ("0", 0), ("-1", 0), ("9223372036854775807", 1 << 18)] {
        let Ok(Spec::Pod(pod)) = with(text) else { panic!("{text} is refused") };
        assert_eq!(pod.cpu_shares, shares, "{text}");
    }
    for text in ["", "many", "1.5"] {
        assert!(with(text).unwrap_err().message.contains("sandbox-cpu-shares is no number"));
    }
}

#[test]
fn a_pod_is_frozen_after_seconds_only() {
    for text in ["0", "86401", "-1", "+5", "1.5", "30s", ""] {
        let mut document = pod();
        document["annotations"]["dev.squeezy/freeze-after"] = json!(text);
        let error = parse(&document).unwrap_err();
        assert!(error.message.contains("seconds from 1 to 86400"), "{text}: {error}");
    }
}

#[test]
fn a_frozen_pod_requests_what_it_occupies_if_it_says_so() {
    let mut document = pod();
    let said = |document: &Value| match parse(document) {
        Ok(Spec::Pod(pod)) => pod.freeze.and_then(|freeze| freeze.requests_occupied),
        other => panic!("{other:?}"),
    };
    let refusal = |document: &Value| parse(document).unwrap_err().message;
    document["annotations"]["dev.squeezy/frozen-request"] = json!("occupied");
    let missing = refusal(&document);
    assert!(missing.contains("sandbox-name") && missing.contains("missing"), "{missing}");
    document["annotations"]["io.kubernetes.cri.sandbox-name"] = json!("web-0");
    document["annotations"]["io.kubernetes.cri.sandbox-uid"] = json!("8f14e45f-ceea");
    let name = |text: &str| text.parse::<ObjectName>().unwrap();
    let expected =
        PodName { namespace: name("shop"), name: name("web-0"), uid: name("8f14e45f-ceea") };
    assert_eq!(said(&document), Some(expected));

    for (annotation, value, reason) in [
        ("io.kubernetes.cri.sandbox-name", "../web", "no name of Kubernetes"),
        ("dev.squeezy/frozen-request", "none", "it can be \"occupied\""),
        ("dev.squeezy/freeze-after", "9", "at least 10"),
    ] {
        let mut document = document.clone();
        document["annotations"][annotation] = json!(value);
        let refused = refusal(&document);
        assert!(refused.contains(annotation) && refused.contains(reason), "{refused}");
    }
    document["annotations"].as_object_mut().unwrap().remove("dev.squeezy/freeze-after");
    let refused = refusal(&document);
    assert!(refused.contains("add dev.squeezy/freeze-after"), "{refused}");
}

#[test]
fn a_container_of_kubernetes_names_its_pod() {
    let annotations = json!({"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": "5f"});
    let document = with(single(), "/annotations", annotations);
    let spec = parse(&document).unwrap();
    let Spec::Container(pod, Container { shares_processes, .. }) = spec else { panic!("{spec:?}") };
    assert_eq!((pod.as_str(), shares_processes), ("5f", false));
    let shared = json!([{"type": "pid", "path": "/proc/7/ns/pid"}]);
    assert!(container(&with(document, "/linux/namespaces", shared)).shares_processes);
}

#[test]
fn a_container_is_who_it_says() {
    let user = json!({"uid": 1000, "gid": 50, "additionalGids": [7, 65535]});
    let spec = with(with(single(), "/process/user", user), "/root/readonly", json!(true));
    let spec = container(&spec);
    let expected = InstanceUser { user: 1000, group: 50, other_groups: vec![7, 65535] };
    assert_eq!((spec.process.user, spec.root.is_read_only), (expected, true));
}

#[test]
fn a_container_may_do_what_it_asks_for_within_bounds() {
    let wanted = json!(["CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_NET_RAW", "CAP_ODD"]);
    let process = |pointer: &str, value: Value| container(&with(single(), pointer, value)).process;
    let found = process("/process/capabilities/bounding", wanted);
    let capabilities = vec![Capability::Chown, Capability::NetRaw];
    assert_eq!(found.privileges, Privileges { capabilities, gained: false });
    assert!(process("/process/noNewPrivileges", json!(false)).privileges.gained);
    let limit = ResourceLimit { resource: Resource::Nofile, soft: 1024, hard: 1024 };
    assert_eq!(found.resource_limits, [limit]);
    for (wanted, score) in [(-997, 0), (0, 0), (999, 999), (5000, 1000)] {
        let found = process("/process/oomScoreAdj", json!(wanted));
        assert_eq!(found.oom_score_adj, score, "{wanted}");
    }
}

#[test]
fn a_container_sees_and_changes_what_it_is_told() {
    let paths = with(single(), "/linux/maskedPaths", json!(["/proc/keys"]));
    let root = container(&with(paths, "/linux/readonlyPaths", json!(["/proc/sys"]))).root;
    assert_eq!(root.hidden_paths, ["/proc/keys"]);
    assert_eq!(root.read_only_paths, ["/proc/sys"]);
}

#[test]
fn limits_and_message_queues_are_in_a_root_that_asks_for_them() {
    let sees = |mounts: Value| {
        let root = container(&with(single(), "/mounts", mounts)).root;
        (root.sees_limits, root.sees_message_queues)
    };
    let queues = json!({"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue"});
    // As runtimes write it on hosts with control groups of version 1, and of version 2.
    for kind in ["cgroup", "cgroup2"] {
        let limits = json!({
            "destination": "/sys/fs/cgroup", "type": kind, "source": kind,
            "options": ["nosuid", "noexec", "nodev", "relatime", "ro"]
        });
        assert_eq!(sees(json!([limits])), (true, false));
        assert_eq!(sees(json!([limits, queues])), (true, true));
    }
    assert_eq!(sees(json!([])), (false, false));
}

#[test]
fn an_added_process_is_checked_as_the_first_is() {
    let document = |changed: Value| {
        let mut process = single()["process"].take();
        for (name, value) in changed.as_object().unwrap() {
            process[name] = value.clone();
        }
        added_process(&serde_json::to_vec(&process).unwrap())
    };
    let process = document(json!({"cwd": "/srv", "user": {"uid": 5, "gid": 6}})).unwrap();
    assert_eq!(process.arguments, ["sh", "-c", "echo hello"]);
    assert_eq!((process.working_directory.as_str(), process.user.user), ("/srv", 5));
    for (changed, says) in [
        (json!({"args": []}), "no command"),
        (json!({"env": ["=x"]}), "NAME=VALUE"),
        (json!({"cwd": "../x"}), "working directory"),
        (json!({"user": {"uid": 70000}}), "70000"),
        (json!({"args": "sh"}), "none of an OCI runtime spec"),
    ] {
        let error = document(changed).expect_err(says);
        assert!(error.message.contains(says) && !error.message.contains('\n'), "{error}");
    }
    assert_eq!(process.terminal, None);
    for (size, columns, rows) in [
        (json!(null), 0, 0),
        (json!({"width": 80, "height": 24}), 80, 24),
        (json!({"width": 70000}), 65535, 0),
    ] {
        let process = document(json!({"terminal": true, "consoleSize": size})).unwrap();
        assert_eq!(process.terminal, Some(TerminalSize { columns, rows }));
    }
    let long = vec![b' '; MAX_DOCUMENT_BYTES as usize + 1];
    assert!(added_process(&long).unwrap_err().message.contains("4 MiB"));
}

#[test]
fn what_the_runtime_cannot_do_is_refused_by_name() {
    let volume = json!([{"destination": "/data", "type": "bind", "source": "/srv"}]);
    let one = json!({"destination": "/d", "type": "bind", "source": "/srv", "options": ["ro"]});
    let shared = json!([{
        "destination": "/data", "type": "bind", "source": "/srv", "options": ["ro", "rshared"]
    }]);
    let follows = json!([{
        "destination": "/data", "type": "bind", "source": "/srv", "options": ["ro", "rslave"]
    }]);
    let others_processes = json!([
        {"type": "pid", "path": "/proc/7/ns/pid"}, {"type": "ipc"}, {"type": "network"}
    ]);
    let scratch = json!([{"destination": "/cache", "type": "tmpfs"}]);
    let of_kernel = |kind: &str, target: &str, access: &str| {
        let mount =
            json!({"destination": target, "type": kind, "source": kind, "options": [access]});
        json!([mount])
    };
    for (pointer, value, says) in [
        ("/process/user", json!({"uid": 65536, "gid": 50}), "above 65535, 65536,"),
        ("/process/user", json!({"uid": 1, "gid": 1, "additionalGids": [70000]}), "70000"),
        ("/process/user", json!({"additionalGids": vec![1; 65]}), "more than 64 additional groups"),
        ("/hooks", json!({"prestart": [{"path": "/hook"}]}), "a hook"),
        ("/linux/devices", json!([{"path": "/dev/fuse"}]), "/dev/fuse"),
        ("/mounts", volume, "can be written to (/srv at \"/data\")"),
        ("/mounts", shared, "whose mounts are shared (\"/data\")"),
        ("/mounts", follows, "the host's later mounts in it (\"/data\")"),
        ("/mounts", json!(vec![one; 65]), "more than 64 volumes"),
        ("/mounts", scratch, "tmpfs mount at \"/cache\""),
        (
            "/mounts",
            of_kernel("cgroup", "/sys/fs/cgroup", "rw"),
            "that can be written to (cgroup mount at \"/sys/fs/cgroup\")",
        ),
        ("/mounts", of_kernel("cgroup2", "/groups", "ro"), "cgroup2 mount at \"/groups\""),
        ("/mounts", of_kernel("mqueue", "/queues", "rw"), "mqueue mount at \"/queues\""),
        ("/process/capabilities", json!({"ambient": ["CAP_CHOWN"]}), "ambient"),
        ("/process/apparmorProfile", json!("mine"), "profile \"mine\""),
        ("/linux/namespaces", json!([{"type": "pid"}, {"type": "ipc"}]), "(hostNetwork)"),
        ("/linux/namespaces", json!([{"type": "pid"}, {"type": "network"}]), "(hostIPC)"),
        ("/linux/namespaces", json!([{"type": "ipc"}, {"type": "network"}]), "(hostPID)"),
        ("/linux/namespaces", others_processes, "sharing processes with other pods"),
        ("/linux/sysctl", json!({"kernel.shm_rmid_forced": "1"}), "sysctl"),
        ("/linux/sysctl", json!({"net.ipv4.ip_unprivileged_port_start": "80"}), "sysctl"),
    ] {
        let error = parse(&with(single(), pointer, value)).expect_err(pointer);
        assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
        assert!(error.message.contains(says), "{pointer}: {error}");
    }
}

#[test]
fn what_is_wrong_is_said_in_a_sentence() {
    let long = "x".repeat(process::MAX_STRING_BYTES);
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
        (with(pod(), "/linux/namespaces/2/path", json!("../x")), "network namespace"),
        (with(pod(), "/hostname", json!("x".repeat(65))), "more than 64 bytes"),
        (with(single(), "/linux/maskedPaths", json!(["proc"])), "not absolute"),
        (with(single(), "/linux/readonlyPaths", json!(vec!["/x"; 257])), "more than 256"),
        (
            with(single(), "/process/rlimits", json!([{"type": "RLIMIT_X", "soft": 1, "hard": 1}])),
            "RLIMIT_X",
        ),
        (with(single(), "/process/rlimits/0/soft", json!(1025)), "above the hard one"),
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
        let _ = added_process(&text);
    }
}
