//! How namespaces share the processors, with VMs that keep them busy.

mod common;

use common::{Daemon, build, skip, until, value};
use serde_json::{Value, json};
use std::fs;

/// Spins for as long as it is told.
const SPIN: &str = "import time\ndef main(a):\n    end = time.time() + a['s']\n    while time.time() < end: pass\n    return {}\n";

/// How nice a process is.
fn niceness(process: u32) -> i64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, after_name) = stat.rsplit_once(") ").unwrap();
    after_name.split(' ').nth(16).unwrap().parse().unwrap()
}

fn done((status, answer): (u16, Value)) -> Value {
    assert!((200..300).contains(&status), "{status} {answer}");
    answer
}

/// Makes an action that spins, and calls it once; returns its path, and the process of the VM that was booted for it.
fn spinner(daemon: &Daemon, namespace: &str, name: &str) -> (String, u32) {
    let before = daemon.vm_processes();
    let path = format!("/namespaces/{namespace}/actions/{name}");
    let exec = json!({ "kind": "python:3", "code": SPIN });
    done(daemon.ask("PUT", &path, Some(json!({ "exec": exec }))));
    let path = format!("{path}?blocking=true");
    done(daemon.ask("POST", &path, Some(json!({ "s": 0 }))));
    let new: Vec<u32> =
        daemon.vm_processes().into_iter().filter(|vm| !before.contains(vm)).collect();
    let [vm] = new[..] else { panic!("{new:?}") };
    (path, vm)
}

#[test]
fn the_vms_of_a_namespace_beyond_its_share_are_nicer_until_there_is_enough_for_all() {
    let Some(build) = build() else { return };
    if !build.join("images/runtime-python.erofs").exists() {
        return skip("runtime-python has not been built: make runtimes");
    }
    let daemon = Daemon::start(&build, "memory = \"8G\"\n");
    done(daemon.ask("PUT", "/namespaces/acme", Some(json!({}))));
    let guest = spinner(&daemon, "guest", "one");
    let own = niceness(guest.1);
    let processors = std::thread::available_parallelism().unwrap().get();
    let flood: Vec<_> =
        (0..processors + 1).map(|n| spinner(&daemon, "acme", &format!("f{n}"))).collect();
    let nicer = |vm: u32| niceness(vm) - own;
    std::thread::scope(|scope| {
        for (path, _) in flood.iter().chain([&guest]) {
            let daemon = &daemon;
            scope.spawn(move || done(daemon.ask("POST", path, Some(json!({ "s": 30 })))));
        }
        until("the flood is nicer", || {
            (flood.iter().all(|(_, vm)| nicer(*vm) > 2) && nicer(guest.1) == 0).then_some(())
        });
        until("the metrics say so", || {
            let of = |name| {
                value(
                    &daemon.metrics(),
                    &format!("squeezy_namespace_niceness{{namespace=\"{name}\"}}"),
                )
            };
            (of("acme") > Some(2.0) && of("guest") == Some(0.0)).then_some(())
        });
    });
    until("nobody is nicer", || {
        flood.iter().chain([&guest]).all(|(_, vm)| nicer(*vm) == 0).then_some(())
    });
}
