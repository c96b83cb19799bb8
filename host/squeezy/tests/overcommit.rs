//! Frozen instances leave memory that they do not occupy to others.

mod common;

use common::{Daemon, build, copy_of_html, until, value};
use rustix::fs::{FallocateFlags, fallocate};
use serde_json::json;
use std::{
    fs,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};
use tempfile::TempDir;

/// A server that answers each call with the return value of the function `answer` of a Python
/// program.
fn server(answer: &str) -> String {
    format!(
        r#"
import http.server, json, time

{answer}

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps(answer()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.HTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
"#
    )
}

/// Uses much memory in each call, and has released it when it answers.
const WASTEFUL: &str = r#"
def answer():
    wasted = b"x" * (600 << 20)
    return {"wasted": len(wasted)}
"#;

/// Returns the current time.
const CLOCK: &str = r#"
def answer():
    return {"unix_ms": int(time.time() * 1000)}
"#;

/// The functions of [`start`].
const NAMES: [&str; 2] = ["one", "other"];

/// Starts a daemon with this in its configuration, too, and with two functions in one VM: copies of html, or of what
/// answers like this, see [`server`]. It has to end before its directories are removed.
fn start(build: &Path, configuration: &str, answer: Option<&str>) -> ([TempDir; 2], Daemon) {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [images, directory] = &directories;
    let mut configuration =
        format!("policy = \"overcommit\"\nfreeze_after_seconds = 0.2\n{configuration}\n");
    let program = answer.map(server);
    for name in NAMES {
        configuration += &copy_of_html(build, images.path(), name, program.as_deref());
    }
    let daemon = Daemon::start_in(directory.path(), build, &configuration, &[]);
    (directories, daemon)
}

/// Two instances of 768 MiB in one VM, with less memory than they could use together.
const MEMORY_BYTES: f64 = 1200.0 * 1048576.0;

#[test]
fn instances_that_take_turns_all_live_on() {
    let Some(build) = build() else { return };
    let (_directories, daemon) = start(&build, "memory = \"1200M\"", None);
    let metric = |series: &str| value(&daemon.metrics(), series);
    let call = |name: &str| {
        let path = format!("/namespaces/_/actions/{name}?blocking=true&result=true");
        let (status, result) =
            daemon.ask("POST", &path, Some(json!({ "username": "test", "items": 10 })));
        assert_eq!((status, &result["items"]), (200, &json!(10)), "{result}");
    };

    for _ in 0..3 {
        for name in NAMES {
            call(name);
            let committed = metric("squeezy_memory_committed_bytes").unwrap();
            assert!(committed <= MEMORY_BYTES, "{committed}");
            until("its memory to be left to others", || {
                let committed = metric("squeezy_memory_committed_bytes").unwrap();
                (MEMORY_BYTES - committed > 800.0 * 1048576.0).then_some(())
            });
        }
    }
    // Concurrently: the second one waits until the first can be frozen.
    for name in NAMES {
        let path = format!("/namespaces/_/actions/{name}");
        let (status, accepted) = daemon.ask("POST", &path, Some(json!({ "items": 10 })));
        assert_eq!(status, 202, "{accepted}");
    }
    for name in NAMES {
        let starts = |kind| format!("squeezy_starts_total{{function=\"{name}\",start=\"{kind}\"}}");
        until("both to be answered", || (metric(&starts("warm")) == Some(3.0)).then_some(()));
        assert_eq!(metric(&starts("cold")), Some(1.0));
    }
}

/// Calls both functions, which are [`WASTEFUL`].
fn waste(daemon: &Daemon) {
    for name in NAMES {
        let path = format!("/namespaces/_/actions/{name}?blocking=true&result=true");
        let (status, result) = daemon.ask("POST", &path, Some(json!({})));
        assert_eq!((status, &result["wasted"]), (200, &json!(600 << 20)), "{result}");
    }
}

#[test]
fn frozen_instances_give_back_what_they_do_not_use() {
    let Some(build) = build() else { return };
    let configuration = "memory = \"1800M\"\nmemory_backend = \"ram\"";
    let (_directories, daemon) = start(&build, configuration, Some(WASTEFUL));
    waste(&daemon);
    // Together they occupy more than three eighths of 1,800 MiB.
    let given_back = || {
        let metrics = daemon.metrics();
        let of =
            |name| value(&metrics, &format!("squeezy_squeezed_bytes_total{{function=\"{name}\"}}"));
        NAMES.into_iter().filter_map(of).sum::<f64>()
    };
    until("one of them to be squeezed", || (given_back() > 550.0 * 1048576.0).then_some(()));
    // The memory that was given back can be used again.
    waste(&daemon);
}

#[test]
fn free_memory_of_frozen_instances_is_taken_without_asking_them() {
    let Some(build) = build() else { return };
    let configuration = "memory = \"1800M\"\nmemory_backend = \"memfd\"";
    let (_directories, daemon) = start(&build, configuration, Some(WASTEFUL));
    let of = |metric: &str, name: &str| {
        value(&daemon.metrics(), &format!("squeezy_{metric}{{function=\"{name}\"}}")).unwrap_or(0.0)
    };
    for round in 1..=2 {
        waste(&daemon);
        until("what they have freed to be taken", || {
            // Some of it may be taken before the instance is frozen, and is then nobody's.
            let all = NAMES.into_iter().chain(["one+other"]);
            let taken: f64 = all.map(|name| of("taken_bytes_total", name)).sum();
            (taken > f64::from(round) * 2.0 * 550.0 * 1048576.0).then_some(())
        });
    }
    let squeezed: f64 = NAMES.into_iter().map(|name| of("squeezed_bytes_total", name)).sum();
    assert_eq!(squeezed, 0.0, "no instance had to do anything for it");
}

/// Longer than a guest may be unresponsive.
const PAUSE: Duration = Duration::from_secs(25);

#[test]
fn a_vm_in_which_nothing_runs_is_paused_and_costs_what_it_holds() {
    let Some(build) = build() else { return };
    let (_directories, daemon) = start(&build, "memory = \"2G\"", Some(CLOCK));
    let metric = |series: &str| value(&daemon.metrics(), series);
    let paused = || {
        until("the VM to be paused", || {
            (metric("squeezy_vms{state=\"paused\"}") == Some(1.0)).then_some(())
        });
    };
    let unix_ms = || UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let call = |name: &str| {
        let before = unix_ms();
        let path = format!("/namespaces/_/actions/{name}?blocking=true&result=true");
        let (status, result) = daemon.ask("POST", &path, Some(json!({})));
        assert_eq!(status, 200, "{result}");
        let guest = result["unix_ms"].as_u64().unwrap();
        assert!((before.saturating_sub(500)..unix_ms() + 500).contains(&guest), "a clock is late");
    };
    call("one");
    paused();
    let committed = metric("squeezy_memory_committed_bytes").unwrap();
    assert!(committed < 256.0 * 1048576.0, "{committed}");
    std::thread::sleep(PAUSE);
    assert_eq!(metric("squeezy_vms_silent"), Some(0.0));
    let assigned = "squeezy_partitions{function=\"one+other\",state=\"assigned\"}";
    assert_eq!(metric(assigned), Some(1.0));
    call("one");
    paused();
    // A second instance in the VM, which can only be started by waking it.
    call("other");
    paused();
    assert_eq!(metric("squeezy_vms{state=\"booting\"}"), Some(0.0));
    for name in NAMES {
        assert_eq!(
            metric(&format!("squeezy_starts_total{{function=\"{name}\",start=\"cold\"}}")),
            Some(1.0)
        );
    }
    // A paused VM ends immediately at shutdown.
    drop(daemon);
}

#[test]
fn a_paused_vm_keeps_nothing_that_is_free_where_the_host_can_take_it() {
    let Some(build) = build() else { return };
    let occupied = |backend: &str| {
        let configuration = format!(
            "memory = \"2G\"\npolicy = \"overcommit\"\nmemory_backend = \"{backend}\"\n\
             freeze_after_seconds = 0.2\n"
        );
        let daemon = Daemon::start(&build, &configuration);
        let call = "/namespaces/_/actions/html?blocking=true&result=true";
        let ask = || {
            let (status, result) = daemon.ask("POST", call, Some(json!({"items": 1})));
            assert_eq!(status, 200, "{result}");
            until("the VM to be paused", || {
                let paused = value(&daemon.metrics(), "squeezy_vms{state=\"paused\"}");
                (paused == Some(1.0)).then_some(())
            });
            value(&daemon.metrics(), "squeezy_memory_committed_bytes").unwrap()
        };
        // The second time, what has gone has been used again.
        (ask(), ask())
    };
    let (kept, taken) = (occupied("ram"), occupied("memfd"));
    println!("{kept:?} where it cannot, {taken:?} where it can");
    assert!(taken.0 < kept.0 * 0.9 && taken.1 < kept.1 * 0.9, "{taken:?}, {kept:?}");
}

/// Reads all files of its image when it starts, and keeps 400 MiB.
const READING: &str = r#"
import os
kept = os.urandom(1 << 20) * 400
for directory, _, files in os.walk("/usr"):
    for file in files:
        path = os.path.join(directory, file)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                while file.read(1 << 20):
                    pass

def answer():
    return {}
"#;

/// What a start leaves there makes the next one faster, so it stays until the instance is squeezed.
#[test]
fn a_paused_vm_keeps_its_page_cache_until_its_instances_have_been_squeezed() {
    let Some(build) = build() else { return };
    let images = tempfile::tempdir().unwrap();
    let function = copy_of_html(&build, images.path(), "reads", Some(&server(READING)));
    let start = |memory: &str| {
        let configuration = format!(
            "memory = \"{memory}\"\npolicy = \"overcommit\"\nmemory_backend = \"memfd\"\n\
             freeze_after_seconds = 0.2\n{function}memory_limit = \"512M\"\n"
        );
        let directory = tempfile::tempdir().unwrap();
        let daemon = Daemon::start_in(directory.path(), &build, &configuration, &[]);
        let call = "/namespaces/_/actions/reads?blocking=true&result=true";
        let (status, result) = daemon.ask("POST", call, Some(json!({})));
        assert_eq!(status, 200, "{result}");
        (daemon, directory)
    };
    // What it costs in MiB, once it is paused and its instance was squeezed so many times.
    let paused_mib = |daemon: &Daemon, squeezes: f64| {
        let metrics = daemon.metrics();
        let of = |series: &str| value(&metrics, series).unwrap_or(0.0);
        let is_it = of("squeezy_vms{state=\"paused\"}") == 1.0
            && of("squeezy_squeeze_seconds_count{function=\"reads\"}") == squeezes;
        is_it.then(|| of("squeezy_memory_committed_bytes") / 1048576.0)
    };
    // A quarter and a half of 2 GiB is more than the instance holds, and of 1 GiB less.
    let (daemon, _directory) = start("2G");
    let kept_mib = until("the VM to be paused", || paused_mib(&daemon, 0.0));
    drop(daemon);
    let (daemon, _directory) = start("1G");
    let dropped_mib = until("the page cache to go", || {
        paused_mib(&daemon, 1.0).filter(|&mib| mib < kept_mib - 40.0)
    });
    println!("{kept_mib} MiB with its page cache, {dropped_mib} without");
}

/// Keeps 200 MiB that are unlike each other, and says whether they are as they were.
const KEEPING: &str = r#"
import os
kept = os.urandom(1 << 20) * 200
seen = kept[::4096]
# Without the request that starts it.
calls = -1

def answer():
    global calls
    calls += 1
    return {"whole": kept[::4096] == seen, "calls": calls}
"#;

#[test]
fn a_paused_vm_loses_the_instance_that_was_used_least_recently_and_no_other() {
    let Some(build) = build() else { return };
    let images = tempfile::tempdir().unwrap();
    let mut configuration = "memory = \"1060M\"\npolicy = \"overcommit\"\n\
                             memory_backend = \"memfd\"\nfreeze_after_seconds = 0.2\n"
        .to_owned();
    for name in ["one", "other", "third"] {
        let function = copy_of_html(&build, images.path(), name, Some(&server(KEEPING)));
        let function = match name {
            "third" => function.replace("vm = \"both\"\n", ""),
            _ => function,
        };
        configuration += &format!("{function}memory_limit = \"384M\"\n");
    }
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::start_in(directory.path(), &build, &configuration, &[]);
    let metric = |series: &str| value(&daemon.metrics(), series);
    let call = |name: &str, calls: u32| {
        let path = format!("/namespaces/_/actions/{name}?blocking=true&result=true");
        let (status, result) = daemon.ask("POST", &path, Some(json!({})));
        assert_eq!((status, &result), (200, &json!({ "whole": true, "calls": calls })));
    };
    let paused = || {
        until("the VM to be paused", || {
            (metric("squeezy_vms{state=\"paused\"}") == Some(1.0)).then_some(())
        });
    };
    call("one", 1);
    paused();
    call("other", 1);
    paused();
    // There is room for this one if one instance goes.
    let (status, accepted) = daemon.ask("POST", "/namespaces/_/actions/third", Some(json!({})));
    assert_eq!(status, 202, "{accepted}");
    let condemned = |name: &str| {
        let series = format!("squeezy_instances{{function=\"{name}\",state=\"condemned\"}}");
        metric(&series).unwrap_or(0.0)
    };
    until("an instance to be condemned", || (condemned("one") == 1.0).then_some(()));
    assert_eq!((condemned("other"), metric("squeezy_vms{state=\"paused\"}")), (0.0, Some(1.0)));
    call("third", 2);
    for (name, condemned) in [("one", 1.0), ("other", 0.0)] {
        let of =
            |series: &str| metric(&format!("squeezy_{series}{{function=\"{name}\"}}")).unwrap();
        assert_eq!(of("condemn_seconds_count"), condemned, "{name}");
        assert_eq!(of("condemned_bytes_total") > 20.0 * 1048576.0, condemned > 0.0, "{name}");
        assert!(of("taking_seconds_total") >= of("condemn_seconds_sum"), "{name}");
    }
    call("other", 2);
    // Its VM runs again, so the guest can kill it; nobody's answer waits for that.
    until("the condemned instance to end", || (condemned("one") == 0.0).then_some(()));
    // This one is started anew, in the same VM.
    call("one", 1);
    call("other", 3);
    let labels = |name, label| format!("{{function=\"{name}\",{label}}}");
    for (name, recreated, evicted) in [("one", 1.0, 1.0), ("other", 0.0, 0.0)] {
        let starts = |how| {
            let labels = labels(name, format!("start=\"{how}\""));
            metric(&format!("squeezy_starts_total{labels}")).unwrap_or(0.0)
        };
        assert_eq!((starts("cold"), starts("recreated")), (1.0, recreated), "{name}");
        let labels = labels(name, "reason=\"evicted\"".to_owned());
        let ended = metric(&format!("squeezy_instances_ended_total{labels}"));
        assert_eq!(ended.unwrap_or(0.0), evicted, "{name}");
    }
}

/// Answers at once when it is started, and keeps every call waiting.
const SLOW: &str = r#"
calls = 0

def answer():
    global calls
    calls += 1
    if calls > 1:
        time.sleep(50)
    return {}
"#;

/// Has the host put memory behind all that a VM has and could have, partitions of frozen instances included. No function
/// can, but a guest whose kernel has been taken over.
fn touch_everything(daemon: &Daemon) {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", daemon.child.id())).unwrap();
    let paths = descriptors.map(|entry| entry.unwrap().path());
    let is_memory = |path: &std::path::PathBuf| {
        let file = fs::read_link(path);
        file.is_ok_and(|file| file.to_string_lossy().starts_with("/memfd:squeezy-"))
    };
    let mut count = 0;
    for path in paths.filter(is_memory) {
        let file = fs::File::options().write(true).open(&path).unwrap();
        let bytes = file.metadata().unwrap().len();
        // Only after the second time are they data to a kernel that has no `cachestat`.
        for _ in 0..2 {
            fallocate(&file, FallocateFlags::empty(), 0, bytes).unwrap();
        }
        count += 1;
    }
    assert!(count >= 2, "it has {count} files with memory");
}

#[test]
fn a_vm_in_which_a_frozen_instance_grows_is_ended_and_booted_again() {
    let Some(build) = build() else { return };
    let images = tempfile::tempdir().unwrap();
    let mut configuration = "memory = \"2G\"\npolicy = \"overcommit\"\n\
                             memory_backend = \"memfd\"\nfreeze_after_seconds = 0.2\n"
        .to_owned();
    for (name, program) in [("slow", SLOW), ("frozen", CLOCK)] {
        let function = copy_of_html(&build, images.path(), name, Some(&server(program)));
        configuration += &format!("{function}memory_limit = \"256M\"\n");
    }
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::start_in(directory.path(), &build, &configuration, &[]);
    let metric = |series: &str| value(&daemon.metrics(), series).unwrap_or(0.0);
    let call = || {
        let path = "/namespaces/_/actions/frozen?blocking=true&result=true";
        let (status, result) = daemon.ask("POST", path, Some(json!({})));
        assert_eq!(status, 200, "{result}");
    };
    call();
    // So that the VM goes on.
    let (status, accepted) = daemon.ask("POST", "/namespaces/_/actions/slow", Some(json!({})));
    assert_eq!(status, 202, "{accepted}");
    until("one to work beside a frozen one", || {
        let of = |name, state| {
            metric(&format!("squeezy_instances{{function=\"{name}\",state=\"{state}\"}}"))
        };
        (of("slow", "busy") == 1.0 && of("frozen", "frozen") == 1.0).then_some(())
    });
    touch_everything(&daemon);
    let ended = daemon.says("is frozen and has taken");
    assert!(ended.contains("ended: instance") && ended.contains("MiB"), "{ended}");
    until("the call to fail", || {
        (metric("squeezy_calls_failed_total{function=\"slow\"}") == 1.0).then_some(())
    });
    // Calls fail before the instances are counted.
    for name in ["slow", "frozen"] {
        let labels = format!("{{function=\"{name}\",reason=\"vm_ended\"}}");
        let ended = || metric(&format!("squeezy_instances_ended_total{labels}"));
        until("its instance to be counted", || (ended() > 0.0).then_some(()));
        assert_eq!(ended(), 1.0, "{name}");
    }
    call();
}
