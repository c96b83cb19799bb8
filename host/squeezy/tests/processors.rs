//! The control groups by which namespaces share the processors, with VMs in them.

mod common;

use common::{Daemon, build, skip, until};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where controllers of processors are mounted, in either version.
const MOUNTS: [&str; 4] = [
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/unified",
    "/sys/fs/cgroup/cpu",
    "/sys/fs/cgroup/cpu,cpuacct",
];

/// The control group that the daemon has put a process into.
fn group(process: u32) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    let path = groups.lines().find(|line| line.contains("/squeezy-"))?.splitn(3, ':').nth(2)?;
    let places = MOUNTS.iter().map(|mount| Path::new(mount).join(path.trim_start_matches('/')));
    Some(places.into_iter().find(|place| place.is_dir()).expect("it is mounted"))
}

/// Its weight, in units of a group of weight 1.
fn weight(group: &Path) -> f64 {
    let read = |name: &str, unit: f64| {
        let text = fs::read_to_string(group.join(name)).ok()?;
        Some(text.trim().parse::<f64>().unwrap() / unit)
    };
    read("cpu.weight", 10.0).or_else(|| read("cpu.shares", 1024.0)).expect("it has a weight")
}

/// Calls the page in a namespace; returns the process of the VM that was booted for it.
fn boot(daemon: &Daemon, namespace: &str, action: &str) -> u32 {
    let before = daemon.vm_processes();
    let path = format!("/namespaces/{namespace}/actions/{action}?blocking=true");
    let page = json!({ "username": "squeezy", "items": 1 });
    let (status, activation) = daemon.ask("POST", &path, Some(page));
    assert_eq!(status, 200, "{activation}");
    let new: Vec<u32> =
        daemon.vm_processes().into_iter().filter(|vm| !before.contains(vm)).collect();
    let [vm] = new[..] else { panic!("{new:?}") };
    vm
}

fn done((status, answer): (u16, Value)) {
    assert!((200..300).contains(&status), "{status} {answer}");
}

#[test]
fn each_namespace_has_a_group_of_its_weight_while_it_has_vms() {
    let Some(build) = build() else { return };
    let daemon = Daemon::start(&build, "memory = \"4G\"\n");
    let acme = "/namespaces/acme";
    done(daemon.ask("PUT", acme, Some(json!({ "quotas": { "weight": 3 } }))));
    let image = json!({ "exec": { "kind": "blackbox", "image": "html" } });
    for action in ["one", "two"] {
        done(daemon.ask("PUT", &format!("{acme}/actions/{action}"), Some(image.clone())));
    }
    let guest = boot(&daemon, "guest", "html");
    let Some(guest) = group(guest) else {
        return skip("the daemon cannot make control groups: it has no controller of processors");
    };
    let [one, two] = ["one", "two"].map(|action| group(boot(&daemon, "acme", action)).unwrap());
    assert!(guest != one && one == two, "{guest:?} {one:?} {two:?}");
    assert_eq!((weight(&guest), weight(&one)), (1.0, 3.0));
    done(daemon.ask(
        "PUT",
        &format!("{acme}?overwrite=true"),
        Some(json!({ "quotas": { "weight": 5 } })),
    ));
    assert_eq!((weight(&guest), weight(&one)), (1.0, 5.0));
    done(daemon.ask("DELETE", &format!("{acme}?force=true"), None));
    until("the end of its group", || (!one.exists()).then_some(()));
    assert!(guest.exists());
}
