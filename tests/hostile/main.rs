//! A hostile function beside a victim in one VM: whatever it does, no call of the victim is lost or
//! answered wrongly, the VM stays, and what the hostile one took is back when it has ended.
//!
//! The attacks are in C beside this file, each a few lines; [`SHORT`] says which of them `make test`
//! tries, or `SQUEEZY_HOSTILE_ATTACKS`, some names, in its place. `make stress` has all of them at once
//! for `SQUEEZY_HOSTILE_SECONDS`, an hour without it, and compares with a function that only spins.

#[path = "../../host/squeezy/tests/common/mod.rs"]
mod common;

use common::{Daemon, build, until, value};
use serde_json::json;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Seconds of each attack in the short form; most come to their end before.
const SHORT_SECONDS: u64 = 3;

/// Those that once brought down their neighbours, and one of each other kind.
const SHORT: [&str; 23] = [
    "shm_files",
    "tmp_inodes",
    "sparse_file",
    "private_memory",
    "page_tables",
    "fork_bomb",
    "arguments",
    "pipes",
    "netlink",
    "messages",
    "locks",
    "polls",
    "file_cache",
    "areas",
    "epoll_watches",
    "descriptors_in_flight",
    "tcp_buffers",
    "negative_dentries",
    "accept_queue",
    "spliced_zeros",
    "fragments",
    "error_queues",
    "directory_lists",
];

/// More than the shared partition holds.
const LARGE_FILE_BYTES: u64 = 96 << 20;

/// Bytes of base memory that may be in other use afterwards: caches, lists for each processor.
const SLACK_BYTES: u64 = 24 << 20;

/// How much longer than beside a function that only spins, on all the processors that it may have, the
/// victim's 99th percentile may be.
const P99_RATIO: f64 = 1.5;

/// How long a turn of one of the two is, and of how many one is the spinning function's.
const TURN: Duration = Duration::from_secs(20);
const TURNS: u64 = 5;

/// What is said of an attack that ended its own instance.
const RIGHT_ENDS: [&str; 3] =
    ["exceeded its memory", "was killed by signal", "has ended by itself"];

/// The hostile function's image.
fn image(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/hostile");
    let tree = directory.join("tree");
    for part in ["", "dev", "proc", "sys", "tmp"] {
        fs::create_dir_all(tree.join(part)).unwrap();
    }
    let files = fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().path());
    let run = |command: &mut Command| {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{command:?}: {errors}");
    };
    run(Command::new("musl-gcc")
        .args(["-std=gnu11", "-O2", "-static", "-Wall", "-Wextra", "-Werror"])
        // The kernel's own headers, which musl has not.
        .args(["-idirafter", "/usr/include", "-idirafter"])
        .arg(format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH))
        .arg("-o")
        .arg(tree.join("hostile"))
        .args(files.filter(|file| file.extension().is_some_and(|extension| extension == "c"))));
    File::create(tree.join("large")).unwrap().set_len(LARGE_FILE_BYTES).unwrap();
    let image = directory.join("hostile.erofs");
    run(Command::new("mkfs.erofs").arg(&image).arg(&tree));
    fs::copy(source.join("function.toml"), image.with_extension("toml")).unwrap();
    image
}

/// A daemon with one VM, in which an instance of each function is up.
struct Arena {
    daemon: Arc<Daemon>,
    vm: Vec<u32>,
    available_bytes: u64,
    _directory: TempDir,
}

impl Arena {
    fn start() -> Option<Self> {
        let build = build()?;
        let directory = tempfile::tempdir().unwrap();
        let (hostile, victim) = (image(directory.path()), build.join("images/html.erofs"));
        let configuration = format!(
            "memory = \"4G\"\nshared_memory = \"64M\"\n\
             [[functions]]\npath = {hostile:?}\nvm = \"both\"\n\
             [[functions]]\npath = {victim:?}\nvm = \"both\"\nmemory_limit = \"256M\"\n\
             concurrency = 2\nvcpus = 0.5\nkeep_alive_seconds = 600\n"
        );
        let daemon = Daemon::start_in(directory.path(), &build, &configuration, &[]);
        let daemon = Arc::new(daemon);
        call_victim(&daemon).unwrap();
        let vm = daemon.vm_processes();
        let mut arena = Self { daemon, vm, available_bytes: 0, _directory: directory };
        arena.available_bytes = arena.available_bytes();
        Some(arena)
    }

    /// Has the hostile function attack for so long; what came of it.
    fn attack(&self, name: &str, seconds: u64) -> String {
        let path = "/namespaces/_/actions/hostile?blocking=true&result=true";
        let body = json!({ "attack": name, "seconds": seconds });
        let (status, answer) = self.daemon.ask("POST", path, Some(body));
        let text = answer.to_string();
        let right = status == 200 || RIGHT_ENDS.iter().any(|end| text.contains(end));
        assert!(right, "{name}: {status} {text}");
        text
    }

    /// Memory outside of partitions that the guest has left, in bytes.
    fn available_bytes(&self) -> u64 {
        let path = "/namespaces/_/actions/hostile?blocking=true&result=true";
        let (status, answer) = self.daemon.ask("POST", path, Some(json!({ "attack": "none" })));
        assert_eq!(status, 200, "{answer}");
        answer["available_kib"].as_u64().unwrap() << 10
    }

    /// The VM is the one that it was, and all memory is back where it was.
    fn assert_as_before(&self) {
        assert_eq!(self.daemon.vm_processes(), self.vm, "the VM has ended");
        until("memory that is back", || {
            let available = self.available_bytes();
            (available + SLACK_BYTES > self.available_bytes).then_some(())
        });
        until("the hostile function's partitions", || {
            let metrics = self.daemon.metrics();
            let partitions = |state: &str| -> f64 {
                let part = format!("state=\"{state}\"}} ");
                let series = metrics.lines().filter(|line| line.starts_with("squeezy_partitions{"));
                series.filter_map(|line| value(line.split_once(&part)?.1, "")).sum()
            };
            let back = ["draining", "quarantined"].map(partitions) == [0.0; 2];
            (back && partitions("assigned") <= 2.0).then_some(())
        });
    }
}

/// A call of the victim; what is wrong with its answer, if anything is.
fn call_victim(daemon: &Daemon) -> Result<(), String> {
    let path = "/namespaces/_/actions/html?blocking=true&result=true";
    let body = json!({ "username": "victim", "items": 100 });
    let (status, answer) = daemon.ask("POST", path, Some(body));
    let page = answer["html"].as_str().unwrap_or_default();
    let rows = page.matches("<tr class=\"item\">").count();
    if status == 200 && rows == 100 && page.contains("<title>100 items for victim</title>") {
        return Ok(());
    }
    let text: String = answer.to_string().chars().take(300).collect();
    Err(format!("status {status}, {rows} rows: {text}"))
}

/// Calls the victim all the time.
struct Victim {
    stop: Arc<AtomicBool>,
    calls: Arc<Mutex<Vec<Duration>>>,
    caller: JoinHandle<Result<(), String>>,
}

impl Victim {
    fn start(arena: &Arena) -> Self {
        let (stop, calls) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (daemon, told, made) = (arena.daemon.clone(), stop.clone(), calls.clone());
        let caller = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                let begin = Instant::now();
                call_victim(&daemon)?;
                made.lock().unwrap().push(begin.elapsed());
            }
            Ok(())
        });
        Self { stop, calls, caller }
    }

    /// The calls since it was last asked.
    fn take(&self) -> Vec<Duration> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    /// Ends it, and fails if any of its calls went wrong.
    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.caller.join().unwrap().expect("every call of the victim is answered");
    }
}

/// The 99th percentile, and how many there are of them.
fn p99(mut calls: Vec<Duration>) -> (Duration, usize) {
    calls.sort_unstable();
    let index = (calls.len() * 99).div_ceil(100).saturating_sub(1);
    (*calls.get(index).expect("the victim was called"), calls.len())
}

#[test]
fn an_attack_hurts_nobody_else() {
    let Some(arena) = Arena::start() else { return };
    let victim = Victim::start(&arena);
    let chosen = std::env::var("SQUEEZY_HOSTILE_ATTACKS").unwrap_or_else(|_| SHORT.join(" "));
    let mut calls = Vec::new();
    for name in chosen.split_whitespace() {
        let begin = Instant::now();
        let came = arena.attack(name, SHORT_SECONDS);
        let made = victim.take();
        println!("{name}: {:.1?}, {} calls of the victim; {came}", begin.elapsed(), made.len());
        calls.extend(made);
    }
    victim.end();
    let (longest, count) = p99(calls);
    println!("{count} calls of the victim, the 99th percentile {longest:.1?}");
    arena.assert_as_before();
}

#[test]
#[ignore = "takes an hour: run by `make stress`"]
fn all_attacks_at_once_hurt_nobody_else() {
    let Some(arena) = Arena::start() else { return };
    let seconds = std::env::var("SQUEEZY_HOSTILE_SECONDS").map_or(3600, |text| {
        text.parse().unwrap_or_else(|_| panic!("SQUEEZY_HOSTILE_SECONDS={text:?} is no number"))
    });
    let victim = Victim::start(&arena);
    let mut calls = [("spin", Vec::new()), ("all", Vec::new())];
    let begin = Instant::now();
    let mut turn = 0;
    // In turns, one of each at least, so that both have the same share of what else runs on the machine.
    while turn < 2 || begin.elapsed() < Duration::from_secs(seconds) {
        let (name, made) = &mut calls[usize::from(turn % TURNS != 0)];
        turn += 1;
        victim.take();
        let since = Instant::now();
        while since.elapsed() < TURN {
            println!("{:.0?}: {}", begin.elapsed(), arena.attack(name, TURN.as_secs()));
            assert!(!victim.caller.is_finished(), "a call of the victim went wrong");
        }
        made.extend(victim.take());
    }
    victim.end();
    let [(beside_spin, spun), (beside_attacks, attacked)] = calls.map(|(_, made)| p99(made));
    let ratio = beside_attacks.as_secs_f64() / beside_spin.as_secs_f64();
    println!(
        "P99 {beside_attacks:.2?} of {attacked} calls beside all attacks, {beside_spin:.2?} of {spun} \
         beside a spin: {ratio:.2} times as long"
    );
    arena.assert_as_before();
    assert!(ratio <= P99_RATIO, "{ratio:.2} times as long");
}

/// What is tried in the short form is there under that name.
#[test]
fn attacks_have_their_names() {
    let directory = tempfile::tempdir().unwrap();
    image(directory.path());
    let list = Command::new(directory.path().join("tree/hostile")).arg("list").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    for name in SHORT {
        assert!(list.lines().any(|line| line == name), "{name} is none of {list}");
    }
}
