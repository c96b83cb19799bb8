//! `squeezy run` with a real VM: what it reports, and what it leaves behind in any case.
//!
//! Needs the kernel, the initramfs and the image built by `make kernel image`; without them the
//! tests are skipped.

#[path = "../../../scripts/skip.rs"]
mod skip;

use serde_json::Value;
use skip::skip;
use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// With emulation on a busy machine, a run of a few seconds takes minutes.
const LIMIT: Duration = Duration::from_secs(480);

/// How long the program may take to exit once its VM is gone or it was told to.
const END_LIMIT: Duration = Duration::from_secs(45);

/// The build directory, unless something in it is missing.
fn build() -> Option<PathBuf> {
    let given = std::env::var_os("SQUEEZY_BUILD").map(PathBuf::from);
    let build = given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build"));
    for file in ["kernel/release/bzImage", "initramfs.cpio", "images/html.erofs"] {
        if !build.join(file).exists() {
            let path = build.join(file);
            skip(format_args!("{} is not there; `make kernel image` builds it", path.display()));
            return None;
        }
    }
    Some(build)
}

/// A running `squeezy run`, killed on drop.
struct Run {
    child: Option<Child>,
    directory: TempDir,
}

impl Run {
    fn start(build: &Path, more: &[&str]) -> Self {
        let function = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions/html");
        Self::start_function(build, &function, &[&["--keep-alive", "1"], more].concat())
    }

    fn start_function(build: &Path, function: &Path, more: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_squeezy"))
            .arg("run")
            .arg(function)
            .arg("--build")
            .arg(build)
            .arg("--json")
            .arg(directory.path().join("run.json"))
            .arg("--plot")
            .arg(directory.path().join("run.svg"))
            .args(["--plain", "--concurrency", "2", "--burst", "2"])
            .args(more)
            .stdout(File::create(directory.path().join("stdout")).unwrap())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be run");
        Self { child: Some(child), directory }
    }

    /// The VM's process id, once it is running.
    fn vm(&self) -> u32 {
        let parent = self.child.as_ref().unwrap().id();
        until(Duration::from_secs(60), "the VM's process", || {
            let children =
                std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
            // Any of the program's threads may have started it.
            let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).ok()?;
            let all = tasks
                .flatten()
                .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
            let all: String = all.chain([children]).collect::<Vec<_>>().join(" ");
            all.split_whitespace().filter_map(|pid| pid.parse().ok()).find(|&pid| is_vm(pid))
        })
    }

    /// What it has printed so far.
    fn printed(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("stdout")).unwrap()
    }

    /// Waits until the load has begun and instances start.
    fn loaded(&self) {
        until(LIMIT, "the load", || self.printed().contains("load for").then_some(()));
        std::thread::sleep(Duration::from_secs(3));
    }

    fn signal(&self, name: &str) {
        kill(self.child.as_ref().unwrap().id(), name);
    }

    fn end(&mut self, limit: Duration) -> Output {
        let child = self.child.as_mut().unwrap();
        until(limit, "the program's end", || child.try_wait().unwrap());
        self.child.take().unwrap().wait_with_output().unwrap()
    }

    fn report(&self) -> Value {
        let text = std::fs::read_to_string(self.directory.path().join("run.json")).unwrap();
        serde_json::from_str(&text).expect("the report is JSON")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn is_vm(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.contains("squeezy-html"))
}

fn kill(pid: u32, signal: &str) {
    let status = Command::new("kill").args(["-s", signal, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

fn until<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < limit, "timed out waiting for {what} after {limit:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_request_is_answered_and_all_memory_comes_back() {
    let Some(build) = build() else { return };
    let mut run = Run::start(&build, &["--policy", "squeezy", "--duration", "4"]);
    let vm = run.vm();
    let output = run.end(LIMIT);
    assert!(output.status.success(), "{}{}", run.printed(), text(&output.stderr));
    assert!(!is_vm(vm), "the VM is left");

    let report = run.report();
    assert_eq!(report["kind"], "squeezy_run");
    let summary = &report["summaries"][0];
    assert_eq!(summary["policy"], "squeezy");
    assert!(summary["requests"].as_u64().unwrap() >= 5, "{summary}");
    assert_eq!(summary["right"], summary["requests"], "{summary}");
    assert!(summary["reclaims"].as_u64().unwrap() >= 1, "{summary}");
    assert_eq!(summary["failed_reclaims"], 0, "{summary}");
    let samples = report["policies"][0]["samples"].as_array().unwrap();
    let plugged = |sample: &Value| sample["plugged_bytes"].as_u64().unwrap();
    let (first, last) = (samples.first().unwrap(), samples.last().unwrap());
    assert_eq!(plugged(first), plugged(last), "something is left plugged");
    assert!(samples.iter().map(plugged).max().unwrap() > plugged(first), "nothing was plugged");
    let plot = std::fs::read_to_string(run.directory.path().join("run.svg")).unwrap();
    assert!(plot.contains("squeezy") && plot.contains("synthetic (no real trace)"));
}

#[test]
fn ctrl_c_ends_it_with_a_summary_and_without_a_vm() {
    let Some(build) = build() else { return };
    let mut run = Run::start(&build, &["--policy", "static", "--duration", "300"]);
    let vm = run.vm();
    std::thread::sleep(Duration::from_secs(1));
    run.signal("INT");
    let output = run.end(END_LIMIT);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(run.printed().contains("static ended early: interrupted"), "{}", run.printed());
    assert!(!is_vm(vm), "the VM is left");
    assert_eq!(run.report()["policies"][0]["ended_early"], "interrupted");
}

#[test]
fn a_run_that_nobody_reads_ends_without_a_word_and_without_a_vm() {
    let Some(build) = build() else { return };
    let function = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions/html");
    let mut child = Command::new(env!("CARGO_BIN_EXE_squeezy"))
        .args(["run", "--plain", "--policy", "static", "--concurrency", "2"])
        .args(["--burst", "2", "--duration", "300", "--build"])
        .arg(build)
        .arg(function)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut run = Run { child: Some(child), directory: TempDir::new().unwrap() };
    let vm = run.vm();
    assert!(lines.any(|line| line.unwrap().contains("load for")), "the load never began");
    // As `head` does when it has enough lines.
    drop(lines);
    let output = run.end(LIMIT);
    assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(141), ""));
    assert!(!is_vm(vm), "the VM is left");
}

#[test]
fn a_vm_that_is_killed_ends_the_run_with_the_reason() {
    let Some(build) = build() else { return };
    let mut run = Run::start(&build, &["--policy", "static", "--duration", "300"]);
    let vm = run.vm();
    std::thread::sleep(Duration::from_secs(1));
    kill(vm, "KILL");
    let output = run.end(END_LIMIT);
    assert_eq!(output.status.code(), Some(1));
    let said = run.printed() + &text(&output.stderr);
    assert!(said.contains("killed by signal 9"), "{said}");
}

#[test]
fn the_death_of_the_program_is_the_death_of_its_vm() {
    let Some(build) = build() else { return };
    let mut run = Run::start(&build, &["--policy", "static", "--duration", "300"]);
    let vm = run.vm();
    run.signal("KILL");
    run.end(END_LIMIT);
    until(Duration::from_secs(10), "the VM's end", || (!is_vm(vm)).then_some(()));
}

#[test]
fn ctrl_c_under_load_stops_the_instances_and_takes_their_memory_back() {
    let Some(build) = build() else { return };
    let mut run = Run::start(&build, &["--policy", "squeezy", "--duration", "300"]);
    let vm = run.vm();
    run.loaded();
    run.signal("INT");
    let output = run.end(LIMIT);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(!is_vm(vm), "the VM is left");
    let report = run.report();
    let policy = &report["policies"][0];
    assert_eq!(policy["ended_early"], "interrupted");
    for request in policy["requests"].as_array().unwrap() {
        assert_ne!(request["outcome"]["kind"], "wrong", "{request}");
    }
    // Memory is sampled until the last of them has ended.
    let last = &policy["samples"].as_array().unwrap().last().unwrap()["at_seconds"];
    let unseen = policy["length_seconds"].as_f64().unwrap() - last.as_f64().unwrap();
    assert!(unseen < 2.5, "nothing was seen of the last {unseen} s");
}

#[test]
fn a_vm_that_is_killed_under_load_accounts_for_every_request() {
    let Some(build) = build() else { return };
    // Its requests end only at their limit of a minute, so one is certainly in progress when the VM
    // dies: a line shows the state every few seconds.
    let function = fragile_function("__import__('time').sleep(3600)");
    let arguments = ["--policy", "squeezy", "--duration", "300", "--keep-alive", "300"];
    let mut run = Run::start_function(&build, function.path(), &arguments);
    let vm = run.vm();
    until(LIMIT, "a busy instance", || run.printed().contains(" 1 busy)").then_some(()));
    kill(vm, "KILL");
    let output = run.end(END_LIMIT);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report = run.report();
    let policy = &report["policies"][0];
    assert!(policy["ended_early"].as_str().unwrap().contains("killed by signal 9"), "{policy}");
    let requests = policy["requests"].as_array().unwrap();
    let failed = requests.iter().filter(|request| request["outcome"]["kind"] == "failed");
    assert!(failed.count() >= 1, "{policy}");
}

/// A function whose instances answer one request each and end in the next, by executing this Python
/// statement.
fn fragile_function(end_by: &str) -> TempDir {
    let function = TempDir::new().unwrap();
    let definition = include_str!("fragile/function.toml").replace("END_BY", end_by);
    std::fs::write(function.path().join("function.toml"), definition).unwrap();
    function
}

/// Runs a fragile function; checks that only the requests that its instances end in fail.
fn instances_that_die_in_a_request(end_by: &str, reason: &str) {
    let Some(build) = build() else { return };
    let function = fragile_function(end_by);
    // The bursts are at 0.8, 7.2, 9.6, 12 and 17.6 s.
    let arguments = ["--policy", "squeezy", "--duration", "20", "--keep-alive", "300"];
    let mut run = Run::start_function(&build, function.path(), &arguments);
    let output = run.end(LIMIT);
    assert_eq!(output.status.code(), Some(1), "{}{}", run.printed(), text(&output.stderr));

    let report = run.report();
    let policy = &report["policies"][0];
    assert_eq!(policy["ended_early"], Value::Null, "{policy}");
    let requests = policy["requests"].as_array().unwrap();
    let (right, others): (Vec<_>, Vec<_>) =
        requests.iter().partition(|request| request["outcome"]["kind"] == "right");
    assert!(right.len() >= 3 && others.len() >= 2, "{requests:?}");
    for request in others {
        let said = request["outcome"]["reason"].as_str().unwrap();
        assert_eq!(request["outcome"]["kind"], "failed", "{request}");
        assert!(said.contains(reason), "{said}");
    }
    let samples = policy["samples"].as_array().unwrap();
    let plugged = |sample: &Value| sample["plugged_bytes"].as_u64().unwrap();
    let (first, last) = (samples.first().unwrap(), samples.last().unwrap());
    assert_eq!(plugged(first), plugged(last), "something is left plugged");
}

#[test]
fn an_instance_that_exits_in_a_request_fails_that_request_only() {
    instances_that_die_in_a_request("os._exit(3)", "has ended by itself with status 3");
}

#[test]
fn an_instance_that_exceeds_its_memory_fails_that_request_only() {
    // In steps, because Linux immediately refuses an allocation larger than all memory.
    let hoard = "hoard = [b'x' * (size + (1 << 20)) for size in range(1000)]";
    instances_that_die_in_a_request(hoard, "exceeded its memory");
}
