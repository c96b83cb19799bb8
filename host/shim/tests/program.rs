//! The program that containerd executes.

#[path = "../../../scripts/skip.rs"]
mod skip;

use containerd_shim_protos::{protobuf::Message, types::introspection::RuntimeInfo};
use skip::skip;
use squeezy_shim::holder;
use std::{
    fs::read_link,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_containerd-shim-squeezy-v2");

fn network_of(pid: u32) -> String {
    read_link(format!("/proc/{pid}/ns/net")).unwrap().display().to_string()
}

/// Waits until a process is no longer there, or only to be waited for.
fn until_ended(pid: u32) {
    let limit = Instant::now() + Duration::from_secs(30);
    while std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z "))
    {
        assert!(Instant::now() < limit, "process {pid} does not end");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn containerd_is_told_what_runtime_this_is() {
    let output = Command::new(PROGRAM).arg("-info").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success());
    let info = RuntimeInfo::parse_from_bytes(&output.stdout).unwrap();
    assert_eq!(info.name, "io.containerd.squeezy.v2");
    assert_eq!(info.version.version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn whoever_executes_it_by_hand_is_told_that_it_is_not_for_him() {
    let output = Command::new(PROGRAM).stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success());
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("containerd executes this program, nobody else")
    );
}

#[tokio::test]
async fn a_holder_is_in_the_network_namespace_of_its_pod_and_ends_when_it_is_dropped() {
    if !rustix::process::geteuid().is_root() {
        return skip("entering a network namespace needs root");
    }
    // It prints a line when it is in its namespace.
    let mut pod = Command::new("unshare")
        .args(["--net", "sh", "-c", "echo; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Read::read_exact(&mut pod.stdout.take().unwrap(), &mut [0]).unwrap();
    let network = format!("/proc/{}/ns/net", pod.id());
    let holder = holder::start(Path::new(PROGRAM), Some(Path::new(&network))).await.unwrap();
    let (of_holder, of_pod) = (network_of(holder.pid), network_of(pod.id()));
    pod.kill().unwrap();
    pod.wait().unwrap();
    assert_eq!(of_holder, of_pod);
    assert_ne!(of_holder, network_of(std::process::id()));
    let pid = holder.pid;
    drop(holder);
    until_ended(pid);
}

#[tokio::test]
async fn a_namespace_that_is_not_there_is_an_error_that_names_it() {
    let error =
        holder::start(Path::new(PROGRAM), Some(Path::new("/nowhere/net"))).await.err().unwrap();
    let says = ["cannot hold the pod's network namespace /nowhere/net", "No such file"];
    assert!(says.iter().all(|text| error.message.contains(text)), "{error}");
}

#[test]
fn a_holder_ends_with_its_server_however_that_ends() {
    let mut holder = Command::new(PROGRAM)
        .arg(holder::HOLD)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(holder.try_wait().unwrap().is_none());
    drop(holder.stdin.take());
    until_ended(holder.id());
    assert!(holder.wait().unwrap().success());
}
