//! A daemon whose clock jumps while it runs, as it does when a machine that woke up, or was restored, gets the right
//! time: nothing is lost, nothing is there twice, and nobody waits for the time that has passed already to come again.

use crate::common::{Daemon, NO_VM, own_empty_build, prometheus_reads, serve, skip};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, path::Path};

/// Has a program take the time from a file; of the Debian package `faketime`.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// A daemon in a world whose clock is as far from ours as the file `clock` says, `+3600` seconds, at any moment.
fn daemon(directory: &Path) -> Daemon {
    let function = directory.join("images/f.erofs");
    let mut command = serve(directory, directory, NO_VM, &[&function]);
    command.env("LD_PRELOAD", LIBRARY).env("FAKETIME_TIMESTAMP_FILE", directory.join("clock"));
    // It is read each time. What counts elapsed time, and files have theirs, is another clock.
    command.env("FAKETIME_NO_CACHE", "1").env("NO_FAKE_STAT", "1");
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    Daemon::spawn(command, directory)
}

fn jump(directory: &Path, seconds: i64) {
    // A reader never finds half of it.
    let new = directory.join("clock.new");
    fs::write(&new, format!("{seconds:+}\n")).unwrap();
    fs::rename(new, directory.join("clock")).unwrap();
}

/// A call's activation. It fails, for no VM can be booted.
fn call(daemon: &Daemon) -> Value {
    let (status, activation) =
        daemon.ask("POST", "/namespaces/_/actions/f?blocking=true", Some(json!({})));
    assert_eq!(status, 500, "{activation}");
    activation
}

/// That all of these are found, and listed once.
fn check(daemon: &Daemon, called: &[Value]) {
    for activation in called {
        let id = activation["activationId"].as_str().unwrap();
        let (status, found) = daemon.ask("GET", &format!("/namespaces/_/activations/{id}"), None);
        assert_eq!((status, &found), (200, activation));
    }
    let (_, list) = daemon.ask("GET", "/namespaces/_/activations?limit=200", None);
    let list = list.as_array().unwrap();
    let ids: BTreeSet<_> = list.iter().map(|found| found["activationId"].to_string()).collect();
    assert_eq!((ids.len(), list.len()), (called.len(), called.len()), "{list:?}");
}

#[test]
fn a_clock_that_jumps_loses_nothing_and_holds_nobody_up() {
    const DAY: i64 = 24 * 3600;
    if !Path::new(LIBRARY).exists() {
        skip(format_args!("{LIBRARY} is missing: apt-get install faketime"));
        return;
    }
    let directory = own_empty_build();
    let directory = directory.path();
    jump(directory, 0);
    let mut world = daemon(directory);
    let own_ms = |activation: &Value| activation["start"].as_i64().unwrap();
    let mut called = vec![call(&world)];

    // Further back than where it began, too; within the week for which activations are kept.
    for days in [3, -3, 0, -2, 2] {
        let before = called[0].clone();
        jump(directory, days * DAY);
        let activation = call(&world);
        // It is another clock that the daemon goes by.
        let passed = own_ms(&activation) - own_ms(&before) - days * DAY * 1000;
        assert!((-60_000..3_600_000).contains(&passed), "{passed} ms");
        called.push(activation);
        check(&world, &called);
        // More calls within what would be one minute than a minute may have are none of these minutes' before.
        called.extend((0..3).map(|_| call(&world)));
    }
    prometheus_reads(&world);
    assert_eq!(world.ask("PUT", "/namespaces/_/packages/p", Some(json!({}))).0, 200);
    world.stop();

    // The state is from the future now.
    jump(directory, -3 * DAY);
    let world = daemon(directory);
    check(&world, &called);
    called.push(call(&world));
    check(&world, &called);
    assert_eq!(world.ask("GET", "/namespaces/_/packages/p", None).0, 200);
}
