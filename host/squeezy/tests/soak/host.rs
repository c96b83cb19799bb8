//! The daemon, its VM, and their use of the host.

use crate::{
    common::{Daemon, partitions, serve, until},
    disk::Disk,
    footprint::Footprint,
    world::World,
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, mpsc::channel},
};

/// Activations that are kept: few, so that large ones are dropped soon.
pub const ACTIVATIONS: u64 = 100;

pub struct Host {
    pub disk: Disk,
    world: Arc<World>,
    build: PathBuf,
    images: [PathBuf; 2],
    daemon: Option<Daemon>,
}

impl Host {
    /// Creates a directory for everything; the daemon is not started yet.
    pub fn new(build: &Path, world: Arc<World>) -> Self {
        let disk = Disk::new(256 << 10);
        let own = disk.path().join("build");
        fs::create_dir_all(own.join("images")).unwrap();
        for file in ["kernel", "initramfs.cpio"] {
            symlink(build.join(file), own.join(file)).unwrap();
        }
        let images =
            [(&world.function, 3), (&world.other_function, 1)].map(|(name, concurrency)| {
                let image = own.join(format!("images/{name}.erofs"));
                symlink(build.join("images/html.erofs"), &image).unwrap();
                let definition = include_str!("function.toml")
                    .replace("NAME", name)
                    .replace("CONCURRENCY", &concurrency.to_string());
                fs::write(image.with_extension("toml"), definition).unwrap();
                image
            });
        Self { disk, world, build: own, images, daemon: None }
    }

    /// Starts the daemon, and publishes its address.
    pub fn start(&mut self) {
        let position = self.log_length();
        let directory = self.disk.path();
        let log = File::options().create(true).append(true).open(self.log_file()).unwrap();
        let images = self.images.each_ref().map(PathBuf::as_path);
        let mut command = serve(directory, &self.build, &configuration(), &images);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        // The log is its only output.
        let (sender, lines) = channel();
        let log = self.log_file();
        std::thread::spawn(move || {
            let said = until("the daemon to serve", || {
                let log = text_from(&log, position);
                log.lines().find(|line| line.contains("serving on ")).map(str::to_owned)
            });
            sender.send(said)
        });
        let daemon = Daemon::attach(child, lines, directory);
        let address = daemon.url.trim_start_matches("http://");
        self.world.moved(address, &daemon.authorization);
        self.daemon = Some(daemon);
    }

    pub fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("it has been started")
    }

    /// Kills the daemon; its VM must end with it.
    pub fn kill(&mut self) {
        let mut daemon = self.daemon.take().expect("it has been started");
        daemon.signal("KILL");
        daemon.child.wait().unwrap();
        until("the end of its VMs", || {
            (self.vms().is_empty() && !self.has_contender()).then_some(())
        });
    }

    /// Tells the daemon to shut down, which must end everything it has started.
    pub fn stop(&mut self) {
        self.daemon.take().expect("it has been started").stop();
        assert_eq!(self.vms(), [0; 0], "VMs that the daemon has left");
        assert!(!self.has_contender(), "a VM that the daemon has left");
    }

    /// All VMs of the function, whether or not the daemon knows of them.
    pub fn vms(&self) -> Vec<u32> {
        vms_of(&self.world.function)
    }

    /// Whether the other function has a VM.
    pub fn has_contender(&self) -> bool {
        !vms_of(&self.world.other_function).is_empty()
    }

    /// The function's only VM.
    pub fn vm(&self) -> u32 {
        until("one VM", || match self.vms()[..] {
            [vm] => Some(vm),
            _ => None,
        })
    }

    /// The vCPU threads of its VM.
    pub fn processors(&self, vm: u32) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{vm}/task")).unwrap().flatten();
        let is_processor = |task: &fs::DirEntry| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("CPU "))
        };
        let processors = tasks.filter(is_processor);
        processors.map(|task| task.file_name().into_string().unwrap()).collect()
    }

    /// Waits until every instance has ended and its memory is back; returns the footprint then.
    pub fn quiet(&self) -> Footprint {
        let metrics = until("the end of all instances", || {
            let metrics = self.metrics();
            let busy = ["instances{", "calls_waiting{", "vms{state=\"booting", "vms_silent "];
            let is_quiet = busy.iter().map(|series| sum(&metrics, series)).sum::<u64>() == 0;
            (is_quiet && !partitions(&metrics).is_empty()).then_some(metrics)
        });
        // The partitions' states according to the guest's kernel, in addition to what the device
        // has plugged.
        let mut partitions = partitions(&metrics);
        partitions.retain(|state, count| !["absent", "unplugged"].contains(state) && *count > 0);
        assert!(partitions.is_empty(), "unused, but not back: {partitions:?}");
        self.footprint()
    }

    /// Waits until the idle VM has ended.
    pub fn empty(&self) -> Footprint {
        until("the end of the VM", || {
            (sum(&self.metrics(), "vms{") == 0 && self.vms().is_empty()).then_some(())
        });
        self.footprint()
    }

    pub fn footprint(&self) -> Footprint {
        let metrics = self.metrics();
        let process = format!("/proc/{}", self.daemon().child.id());
        let entries = |of| fs::read_dir(format!("{process}/{of}")).unwrap().flatten();
        let mut descriptors = BTreeMap::new();
        for link in entries("fd").filter_map(|entry| fs::read_link(entry.path()).ok()) {
            // The links of sockets and pipes also contain a number that is different every time.
            let name = link.to_string_lossy().split(":[").next().unwrap_or_default().to_owned();
            *descriptors.entry(name).or_default() += 1;
        }
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|line| line.split_whitespace().next()?.parse().ok());
        Footprint {
            descriptors,
            threads: entries("task").count(),
            resident_kib: resident.expect("a process has memory"),
            asked_bytes: sum(&metrics, "asked_bytes{"),
            plugged_bytes: sum(&metrics, "plugged_bytes{"),
            committed_bytes: sum(&metrics, "memory_committed_bytes "),
        }
    }

    /// Instances that are processing a call.
    pub fn busy(&self) -> u64 {
        let function = &self.world.function;
        sum(&self.metrics(), &format!("instances{{function=\"{function}\",state=\"busy\""))
    }

    /// The daemon's child processes.
    pub fn children(&self) -> Vec<u32> {
        let id = self.daemon().child.id().to_string();
        let list = Command::new("pgrep").args(["-P", &id]).output().unwrap();
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        list.split_whitespace().map(|id| id.parse().unwrap()).collect()
    }

    fn metrics(&self) -> String {
        let answer = self.world.endpoint().exchange("GET", "/metrics", None);
        match answer.expect("the daemon answers") {
            (200, serde_json::Value::String(text)) => text,
            other => panic!("no metrics: {other:?}"),
        }
    }

    /// Length of the log, in bytes.
    pub fn log_length(&self) -> usize {
        fs::metadata(self.log_file()).map_or(0, |file| file.len() as usize)
    }

    /// The log from this byte on.
    pub fn log_from(&self, position: usize) -> String {
        text_from(&self.log_file(), position)
    }

    fn log_file(&self) -> PathBuf {
        self.disk.path().join("log")
    }

    /// Files besides those that the soak has created.
    pub fn files(&self) -> Vec<String> {
        let list = |directory: &Path| {
            let entries = fs::read_dir(directory).unwrap().flatten();
            entries.map(|e| e.file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        let mut files = list(self.disk.path());
        files.retain(|name| !["build", "log", "squeezy.toml", "state"].contains(&name.as_str()));
        files.extend(list(&self.disk.path().join("state")));
        files.sort();
        files
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What clients see while the daemon ends is not recorded.
            self.world.end();
            let log = self.log_from(0);
            let lines: Vec<_> = log.lines().collect();
            println!("the end of the daemon's log:");
            lines
                .iter()
                .skip(lines.len().saturating_sub(80))
                .for_each(|line| println!("    {line}"));
        }
    }
}

/// A short queue, so that calls are refused. The memory suffices for one VM with all its instances,
/// but hardly for a second one.
fn configuration() -> String {
    let chosen = |name: &str, usual: &str| std::env::var(name).unwrap_or_else(|_| usual.to_owned());
    let policy = chosen("SQUEEZY_SOAK_POLICY", "overcommit");
    let memory_backend = chosen("SQUEEZY_SOAK_MEMORY_BACKEND", "auto");
    format!(
        "policy = \"{policy}\"\nmemory_backend = \"{memory_backend}\"\nmemory = \"800M\"\nqueue = 16\n\
         activations = {ACTIVATIONS}\nfreeze_after_seconds = 1.0\nvm_idle_seconds = 12.0\n"
    )
}

/// Processes that are VMs of a function.
fn vms_of(function: &str) -> Vec<u32> {
    let name = format!("squeezy-{function}");
    let is_vm = |id: &u32| {
        let read = |file| fs::read_to_string(format!("/proc/{id}/{file}")).unwrap_or_default();
        read("comm").starts_with("qemu") && read("cmdline").contains(&name)
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(is_vm).collect()
}

fn text_from(file: &Path, position: usize) -> String {
    let text = fs::read(file).unwrap_or_default();
    String::from_utf8_lossy(text.get(position..).unwrap_or_default()).into_owned()
}

/// The sum of the series with this prefix.
fn sum(metrics: &str, series: &str) -> u64 {
    let series = format!("squeezy_{series}");
    let lines = metrics.lines().filter(|line| line.starts_with(&series));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}
