//! The test's environment: a VM with instances of the hostile function and of its victim, and
//! measurements of it from outside.

use crate::{
    common::{Daemon, build, partitions},
    image::{self, CONFINED, SPIN, UNCONFINED},
    victim,
};
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Bytes of base memory that may be in other use after an attack: caches, per-CPU lists.
const SLACK_BYTES: u64 = 24 << 20;

/// Open files that may exist besides: those of an instance that starts or ends, and what each
/// processor has not yet added to the sum, of which /proc shows an estimate.
const SLACK_FILES: u64 = 256;

/// How long resources may take to come back, on a machine whose processors everybody wants.
const LIMIT: Duration = Duration::from_secs(180);

/// States of a partition whose instance has ended, and of a free one.
const GOING: [&str; 2] = ["draining", "quarantined"];
const IDLE: [&str; 3] = ["absent", "free", "unplugged"];

/// Errors of attacks that ended their own instance.
const RIGHT_ENDS: [&str; 3] =
    ["exceeded its memory", "was killed by signal", "has ended by itself"];

/// Outcomes of attacks that do not reach a limit of the instance, but are refused or stopped
/// earlier.
const REFUSALS: [(&str, &str, &str); 3] = [
    (CONFINED, "flow_labels", "Function not implemented"),
    (UNCONFINED, "flow_labels", "No buffer space available"),
    (CONFINED, "locks_of_all", "Out of memory"),
];

/// The outcome of an attack that could have gone on.
const TIME_OVER: &str = "\"came\":\"\"";

/// Resources of the whole guest.
struct Guest {
    /// Available memory outside partitions.
    available_bytes: u64,
    open_files: u64,
}

/// A daemon with one VM. An instance of the victim is running; those of the hostile functions start
/// as they are called.
pub struct Arena {
    pub daemon: Arc<Daemon>,
    /// The names of all attacks.
    pub attacks: Vec<String>,
    vm: Vec<u32>,
    before: Guest,
    _directory: TempDir,
}

impl Arena {
    pub fn start() -> Option<Self> {
        let build = build()?;
        let directory = tempfile::tempdir().unwrap();
        let mut attacks = image::make(directory.path());
        attacks.retain(|name| name != SPIN);
        // Whatever the machine is like, so that the host takes free memory beside the attacks.
        let mut configuration =
            "memory = \"4G\"\nshared_memory = \"64M\"\nmemory_backend = \"memfd\"\n".to_owned();
        for function in [CONFINED, UNCONFINED] {
            let image = directory.path().join(function).with_extension("erofs");
            configuration += &format!("[[functions]]\npath = {image:?}\nvm = \"both\"\n");
        }
        let victim = build.join("images/html.erofs");
        configuration += &format!(
            "[[functions]]\npath = {victim:?}\nvm = \"both\"\nmemory_limit = \"256M\"\n\
             concurrency = 2\nvcpus = 0.5\nkeep_alive_seconds = 600\n"
        );
        let daemon = Daemon::start_in(directory.path(), &build, &configuration, &[]);
        victim::call(&daemon).unwrap();
        let (vm, before) = (daemon.vm_processes(), guest(&daemon));
        Some(Self { daemon: Arc::new(daemon), attacks, vm, before, _directory: directory })
    }

    /// Has a hostile function try these attacks at once for `seconds`; returns the outcome.
    pub fn attack(&self, function: &str, attacks: &[String], seconds: u64) -> String {
        let (status, answer) = ask(&self.daemon, function, &attacks.join(" "), seconds);
        let text = answer.to_string();
        let right = status == 200 || RIGHT_ENDS.iter().any(|end| text.contains(end));
        assert!(right, "{function}: {attacks:?}: {status} {text}");
        for (whose, attack, refusal) in REFUSALS {
            if whose == function && attacks == [attack] {
                let right = [refusal, TIME_OVER].iter().any(|end| text.contains(end));
                assert!(right, "{function}: {attack}: {text}");
            }
        }
        text
    }

    /// Waits until the guest has back what an attack took, whether or not the instance still
    /// exists.
    pub fn settle(&self) {
        wait_for(|| match self.partitions(|state| GOING.contains(&state)) {
            0 => self.guest_is_as_before(),
            going => Err(format!("{going} partitions have not come back")),
        });
    }

    /// Waits until everything is as before the first attack, without an instance of a hostile
    /// function.
    pub fn settle_without_instances(&self) {
        wait_for(|| match self.partitions(|state| !IDLE.contains(&state)) {
            1 => Ok(()),
            taken => Err(format!("{taken} partitions are taken, of which one is the victim's")),
        });
        wait_for(|| self.guest_is_as_before());
    }

    fn guest_is_as_before(&self) -> Result<(), String> {
        assert_eq!(self.daemon.vm_processes(), self.vm, "the VM has ended");
        let (before, now) = (&self.before, guest(&self.daemon));
        let mib = |bytes| bytes >> 20;
        if now.available_bytes + SLACK_BYTES < before.available_bytes {
            let [was, is] = [before, &now].map(|guest| mib(guest.available_bytes));
            return Err(format!("{is} MiB of memory are available, down from {was}"));
        }
        if now.open_files > before.open_files + SLACK_FILES {
            return Err(format!(
                "{} files are open, up from {}",
                now.open_files, before.open_files
            ));
        }
        Ok(())
    }

    /// The number of partitions in the selected states.
    fn partitions(&self, which: impl Fn(&str) -> bool) -> u64 {
        let metrics = self.daemon.metrics();
        let counted = partitions(&metrics).into_iter().filter(|(state, _)| which(state));
        counted.map(|(_, count)| count).sum()
    }
}

/// Calls a hostile function; returns status and response.
fn ask(daemon: &Daemon, function: &str, attack: &str, seconds: u64) -> (u16, Value) {
    let path = format!("/namespaces/_/actions/{function}?blocking=true&result=true");
    daemon.ask("POST", &path, Some(json!({ "attack": attack, "seconds": seconds })))
}

fn guest(daemon: &Daemon) -> Guest {
    let (status, answer) = ask(daemon, CONFINED, "", 0);
    assert_eq!(status, 200, "{answer}");
    let number = |name: &str| answer[name].as_u64().expect(name);
    Guest { available_bytes: number("available_kib") << 10, open_files: number("open_files") }
}

/// Waits for a condition; fails with the last error.
fn wait_for(come: impl Fn() -> Result<(), String>) {
    let begin = Instant::now();
    while let Err(what) = come() {
        assert!(begin.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
