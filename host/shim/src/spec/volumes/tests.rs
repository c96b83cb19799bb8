use super::*;
use crate::error::ErrorKind;
use serde_json::{Value, json};

const KUBELET: &str = "/var/lib/kubelet/pods/7d0c3b4e-2f61-4c3e-8f0e-6f3f9d3c1a11";
const CONTAINERD: &str = "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/5f";

fn bind(target: &str, source: &str, access: &str) -> Value {
    json!({
        "destination": target, "type": "bind", "source": source,
        "options": ["rbind", "rprivate", access]
    })
}

/// The volumes of a container with these annotations.
fn with(annotations: &Value, mounts: &[Value]) -> Result<Vec<Volume>> {
    let document = json!({"annotations": annotations, "mounts": mounts});
    volumes(&serde_json::from_value(document).unwrap())
}

/// Those of a container of the pod that is called so in the paths above.
fn of_pod(mounts: &[Value]) -> Result<Vec<Volume>> {
    with(&json!({POD: "5f", UID: "7d0c3b4e-2f61-4c3e-8f0e-6f3f9d3c1a11"}), mounts)
}

fn assert_is_the_hosts(found: Result<Vec<Volume>>, source: &str) {
    let error = found.expect_err(source);
    assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
    assert!(error.message.contains(&format!("can be written to ({source} at \"/x\")")), "{error}");
}

/// As kubelet 1.33 and containerd 1.6.20 write them.
#[test]
fn the_volumes_of_a_pod_of_kubernetes_are_told_apart() {
    let kubelets = |path: &str| format!("{KUBELET}/{path}");
    let mounts = [
        json!({"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid"]}),
        json!({
            "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["ro"]
        }),
        bind("/cache", &kubelets("volumes/kubernetes.io~empty-dir/cache"), "rw"),
        bind("/cache/logs", &kubelets("volume-subpaths/cache/main/1"), "rw"),
        bind("/config", &kubelets("volumes/kubernetes.io~configmap/config"), "ro"),
        bind("/etc/app.conf", &kubelets("volume-subpaths/config/main/3"), "ro"),
        bind("/etc/hosts", &kubelets("etc-hosts"), "rw"),
        bind("/dev/termination-log", &kubelets("containers/main/0a1b2c3d"), "rw"),
        bind("/etc/hostname", &format!("{CONTAINERD}/hostname"), "rw"),
        bind("/etc/resolv.conf", &format!("{CONTAINERD}/resolv.conf"), "rw"),
        bind("/dev/shm", "/run/containerd/io.containerd.grpc.v1.cri/sandboxes/5f/shm", "rw"),
        bind(
            "/var/run/secrets/kubernetes.io/serviceaccount",
            &kubelets("volumes/kubernetes.io~projected/kube-api-access-x"),
            "ro",
        ),
    ];
    let volumes = of_pod(&mounts).unwrap();
    let found: Vec<_> = volumes
        .iter()
        .map(|volume| (volume.target.as_str(), volume.kind, volume.is_read_only))
        .collect();
    let expected = [
        ("/cache", VolumeKind::Shared, false),
        ("/cache/logs", VolumeKind::Part, false),
        ("/config", VolumeKind::Copy, true),
        ("/etc/app.conf", VolumeKind::Part, true),
        ("/etc/hosts", VolumeKind::Copy, false),
        ("/dev/termination-log", VolumeKind::Report, false),
        ("/etc/hostname", VolumeKind::Copy, false),
        ("/etc/resolv.conf", VolumeKind::Copy, false),
        ("/dev/shm", VolumeKind::Shared, false),
        ("/var/run/secrets/kubernetes.io/serviceaccount", VolumeKind::Copy, true),
    ];
    assert_eq!(found, expected);
    // What looks like them, and is something else.
    for source in [
        kubelets("volumes/kubernetes.io~csi/pvc/mount"),
        kubelets("volumes/kubernetes.io~empty-dir/cache/below"),
        kubelets("volume-subpaths/cache/main"),
        kubelets("containers/main"),
        "/kubernetes.io~empty-dir".to_owned(),
        "/srv/shm".to_owned(),
        "/etc/hosts".to_owned(),
    ] {
        assert_is_the_hosts(of_pod(&[bind("/x", &source, "rw")]), &source);
    }
    for (target, source) in
        [("x", "/a"), ("/x/../y", "/a"), ("/", "/a"), ("/x", "../a"), ("/x", "")]
    {
        let error = of_pod(&[bind(target, source, "ro")]).expect_err(target);
        assert_eq!(error.kind, ErrorKind::Invalid);
    }
}

#[test]
fn what_is_called_as_another_pods_is_the_hosts() {
    for source in [
        "/srv/pods/other/volumes/kubernetes.io~empty-dir/cache",
        "/srv/pods/other/volume-subpaths/cache/main/1",
        "/srv/pods/other/etc-hosts",
        "/srv/pods/other/containers/main/0a1b2c3d",
        "/srv/pods/5f/etc-hosts",
        "/srv/sandboxes/other/shm",
        "/srv/sandboxes/other/hosts",
    ] {
        assert_is_the_hosts(of_pod(&[bind("/x", source, "rw")]), source);
        // Not an empty directory in its place.
        let found = of_pod(&[bind("/x", source, "ro")]).unwrap();
        assert_eq!((found.len(), found[0].kind), (1, VolumeKind::Copy), "{source}");
    }
}

#[test]
fn a_pod_without_a_name_has_nothing_that_is_called_so() {
    let [hosts, shm] = [format!("{KUBELET}/etc-hosts"), format!("{CONTAINERD}/shm")];
    for annotations in [json!({}), json!({POD: "5f"}), json!({POD: "5f", UID: ""})] {
        assert_is_the_hosts(with(&annotations, &[bind("/x", &hosts, "rw")]), &hosts);
    }
    assert_is_the_hosts(with(&json!({}), &[bind("/x", &shm, "rw")]), &shm);
    assert_eq!(with(&json!({POD: "5f"}), &[bind("/x", &shm, "rw")]).unwrap().len(), 1);
}
