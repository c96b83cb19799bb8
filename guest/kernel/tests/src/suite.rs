//! One boot of a VM that runs selftests.

use crate::{
    MIB, Monitor, Outcome, Verdict, complaints,
    host::{Host, Taken},
    tap::Tap,
};
use squeezy_vmm::{
    AcceleratorChoice, Artifacts, Kernel, Llfree, MemoryBackend, PartitionLayout, QemuOptions, Vm,
    VmConfig, Vmm, memory::GuestMemory,
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::Mutex,
    time::timeout,
};

/// Two processors run one VM at a time well, and two badly.
static ONE_VM: Mutex<()> = Mutex::const_new(());

/// How long a guest may be silent: as long as tests may take that say nothing meanwhile, and then some.
const SILENCE: Duration = Duration::from_secs(320);

/// Leaves every partition plugged, which most programs expect.
pub const PLUGS: &str = "resize:grows_and_shrinks_to_every_size";

/// What tests say that no VM of these suites can run.
const NOWHERE: [&str; 3] = [
    "no move_pages: CONFIG_NUMA",
    "this kernel has partitions; it is for a boot without them",
    "this kernel copies what is spliced into a unix socket",
];

/// What a host that takes free memory has at least taken by the end.
const LEAST_TAKEN_BYTES: u64 = 64 * MIB;

/// Bytes of the file that selftests read.
const DATA_BYTES: usize = 24 << 20;

/// A boot, and the programs to run in it.
pub struct Suite {
    name: String,
    kernel: Kernel,
    memory: Arc<dyn GuestMemory>,
    base_bytes: u64,
    processors: u32,
    files: Vec<(&'static str, Content)>,
    parameters: Vec<String>,
    arguments: Vec<String>,
    tolerated: Option<&'static str>,
    skips: Vec<&'static str>,
    reporting: bool,
    llfree: Llfree,
    host_takes: bool,
    programs: Vec<String>,
}

/// What is in a file that the guest gets.
enum Content {
    /// [`DATA_BYTES`] of [`noise`].
    Noise,
    /// What is in a file of the host.
    Copy(PathBuf),
}

/// What came of a [`Suite`].
pub struct Report {
    /// Its tests, in the order in which they ran.
    pub outcomes: Vec<Outcome>,
    /// The guest's console.
    pub console: Vec<String>,
    /// Why the guest did not get to the end of its programs, if it did not.
    pub cut_short: Option<String>,
    /// What the host has taken, if it should have taken more.
    too_little_taken: Option<u64>,
    /// Why the host took nothing any more.
    taking_failed: Option<String>,
    tolerated: Option<&'static str>,
    skips: Vec<&'static str>,
    name: String,
}

impl Suite {
    /// Programs (`NAME` or `NAME:TEST`) on a kernel with this memory. `$SELFTESTS` replaces them:
    /// `SELFTESTS='oom race:bursts' cargo test -p squeezy-kernel-tests --test selftests full_partitions_on_the_debug`.
    pub fn new(
        name: &str,
        kernel: Kernel,
        memory: impl GuestMemory + 'static,
        programs: &[&str],
    ) -> Self {
        Self {
            name: name.to_owned(),
            kernel,
            base_bytes: base_bytes(&memory),
            memory: Arc::new(memory),
            processors: 2,
            files: Vec::new(),
            parameters: Vec::new(),
            arguments: Vec::new(),
            tolerated: None,
            skips: NOWHERE.to_vec(),
            reporting: false,
            llfree: Llfree::Off,
            host_takes: false,
            programs: match std::env::var("SELFTESTS") {
                Ok(programs) => programs.split_whitespace().map(str::to_owned).collect(),
                Err(_) => programs.iter().map(ToString::to_string).collect(),
            },
        }
    }

    /// Adds boot parameters.
    pub fn parameters(mut self, parameters: &[&str]) -> Self {
        self.parameters.extend(parameters.iter().map(ToString::to_string));
        self
    }

    /// Adds arguments of QEMU.
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self
    }

    /// Runs this program after the others.
    pub fn then(mut self, program: &str) -> Self {
        self.programs.push(program.to_owned());
        self
    }

    /// Takes a warning of the kernel with these words in it for granted.
    pub fn tolerate(mut self, words: &'static str) -> Self {
        self.tolerated = Some(words);
        self
    }

    /// Lets a test say that it cannot run here, with these words. Any other one that cannot has failed.
    pub fn may_skip(mut self, words: &'static str) -> Self {
        self.skips.push(words);
        self
    }

    /// Gives the guest a balloon with free page reporting.
    pub fn reporting(mut self) -> Self {
        self.reporting = true;
        self
    }

    /// Has LLFree keep these pages where a host can work on them.
    pub fn host_may_take(mut self, llfree: Llfree) -> Self {
        self.llfree = llfree;
        self
    }

    /// The same, and the host takes what is free of them every 20 ms while the programs run.
    pub fn host_takes(mut self, llfree: Llfree) -> Self {
        self.host_takes = true;
        self.programs.insert(0, "host_takes:begins".to_owned());
        self.host_may_take(llfree)
    }

    /// Gives the guest so much base memory instead of the usual, in bytes.
    pub fn base(mut self, bytes: u64) -> Self {
        self.base_bytes = bytes;
        self
    }

    /// Gives the guest so many processors instead of two.
    pub fn processors(mut self, processors: u32) -> Self {
        self.processors = processors;
        self
    }

    /// Gives the guest a drive with a large file `data` to read.
    pub fn data(mut self) -> Self {
        self.files.push(("data", Content::Noise));
        self
    }

    /// Gives the guest a drive with its own kernel and initramfs on it, to start them again.
    pub fn kernel_inside(mut self) -> Self {
        let files = Artifacts::find(None).expect("the kernel has been built");
        self.files.extend([
            ("bzImage", Content::Copy(files.kernel(self.kernel))),
            ("initramfs.cpio", Content::Copy(files.path().join("selftests.cpio"))),
        ]);
        self
    }

    /// Boots, runs the programs, and panics with all that went wrong, if anything did.
    pub fn check(self) {
        let report = self.run();
        report.assert_passed();
    }

    /// Checks what `suite` makes of a name with LLFree, without a host, and with one that takes what is free of these
    /// pages.
    pub fn check_with_llfree(suite: impl Fn(&str) -> Self, name: &str, host_takes: Llfree) {
        suite(&format!("{name}-llfree")).parameters(&["llfree=partitions"]).check();
        suite(&format!("{name}-taken")).host_takes(host_takes).check();
    }

    /// Boots and runs the programs.
    pub fn run(self) -> Report {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let _one = ONE_VM.lock().await;
            let name = self.name.clone();
            self.boot().await.unwrap_or_else(|error| panic!("{name}: {error}"))
        })
    }

    /// How many times slower than the release kernel its kernel is.
    fn slowness(&self) -> u32 {
        if self.kernel == Kernel::Debug { 6 } else { 2 }
    }

    fn config(&self, directory: &Path) -> io::Result<VmConfig> {
        let files = Artifacts::find(None).map_err(io::Error::other)?;
        let mut config = VmConfig::new(
            &self.name,
            files.kernel(self.kernel),
            files.path().join("selftests.cpio"),
        );
        config.memory = self.memory.clone();
        config.base_bytes = self.base_bytes;
        config.vcpus = self.processors;
        config.agent = false;
        config.free_page_reporting = self.reporting;
        if self.llfree != Llfree::Off {
            config.memory_backend = MemoryBackend::Memfd;
            config.llfree = self.llfree;
        }
        config.accelerator = AcceleratorChoice::Auto;
        config.console_log = Some(directory.join("console"));
        if !self.files.is_empty() {
            config.images = vec![self.make_image(directory)?];
        }
        config.command_line = vec![
            "rdinit=/selftests/run".to_owned(),
            // A busy host keeps a virtual processor waiting for longer than the usual 20 s. One that
            // hangs in the kernel does so for longer than this.
            "watchdog_thresh=60".to_owned(),
            "rcupdate.rcu_cpu_stall_timeout=60".to_owned(),
            format!("panic_on_warn={}", u8::from(self.tolerated.is_none())),
            format!("SELFTEST_SLOWNESS={}", self.slowness()),
        ];
        config.command_line.extend(self.parameters.iter().cloned());
        config.command_line.push("--".to_owned());
        config.command_line.extend(self.programs.iter().cloned());
        if self.host_takes {
            config.command_line.push("host_takes:has_taken".to_owned());
        }
        let mut qemu = QemuOptions::default();
        let mut add = |words: [&str; 2]| qemu.arguments.extend(words.map(Into::into));
        let socket =
            |name: &str| format!("socket,id=test-{name},path={}", directory.join(name).display());
        add(["-device", "virtio-serial-pci,id=tests"]);
        for name in ["tap", "test"] {
            add(["-chardev", &socket(name)]);
            add([
                "-device",
                &format!("virtserialport,bus=tests.0,chardev=test-{name},name=org.squeezy.{name}"),
            ]);
        }
        add(["-chardev", &socket("monitor")]);
        add(["-mon", "chardev=test-monitor,mode=control"]);
        qemu.arguments.extend(self.arguments.iter().map(Into::into));
        config.vmm = Vmm::Qemu(qemu);
        Ok(config)
    }

    /// A read-only file system with what the guest is to read.
    fn make_image(&self, directory: &Path) -> io::Result<PathBuf> {
        let content = directory.join("content");
        fs::create_dir(&content)?;
        for (name, from) in &self.files {
            let to = content.join(name);
            match from {
                Content::Noise => fs::write(to, noise())?,
                Content::Copy(from) => drop(fs::copy(from, to)?),
            }
        }
        let image = directory.join("image.erofs");
        let mut program = Command::new("mkfs.erofs");
        let made = program.arg(&image).arg(&content).output().map_err(|error| {
            io::Error::other(format!("mkfs.erofs cannot be run ({error}): apt install erofs-utils"))
        })?;
        if !made.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned()));
        }
        Ok(image)
    }

    async fn boot(self) -> io::Result<Report> {
        let directory = tempfile::Builder::new().prefix("squeezy-test-").tempdir()?;
        let at = |name: &str| UnixListener::bind(directory.path().join(name));
        let (tap, port, monitor, sink) = (at("tap")?, at("test")?, at("monitor")?, at("sink")?);
        let vm = Vm::start(self.config(directory.path())?).await.map_err(io::Error::other)?;
        let vm = Arc::new(vm);
        // The VMM connects before it starts, so that these are there already.
        let (tap, port, monitor) =
            (accept(&tap).await?, accept(&port).await?, accept(&monitor).await?);
        let taken = Arc::new(Taken::default());
        let host = Host {
            vm: vm.clone(),
            monitor: Monitor::open(monitor).await?,
            sink,
            sink_path: directory.path().join("sink"),
            boots: 0,
            taking: None,
            taken: taken.clone(),
            rest: None,
            dead: None,
            relieving: None,
        };
        let serving = tokio::spawn(host.serve(port));
        let mut lines = Tap::default();
        let read = read_tap(tap, &mut lines, &self.name, SILENCE * self.slowness()).await;
        serving.abort();
        let _ = serving.await;
        let cut_short = match read {
            _ if lines.ended => None,
            Err(error) => Some(error.to_string()),
            // The port is closed by the end of the VM, which knows why.
            Ok(()) => Some(match timeout(Duration::from_secs(60), vm.wait()).await {
                Ok(end) => end.to_string(),
                Err(_) => "the guest has closed its port".to_owned(),
            }),
        };
        if let Some(vm) = Arc::into_inner(vm) {
            let _ = vm.stop().await;
        }
        let console = fs::read(directory.path().join("console"))?;
        let console = String::from_utf8_lossy(&console).lines().map(str::to_owned).collect();
        Ok(Report {
            outcomes: lines.outcomes,
            too_little_taken: self
                .host_takes
                .then(|| taken.bytes.load(Relaxed))
                .filter(|&bytes| bytes < LEAST_TAKEN_BYTES),
            taking_failed: taken.failure.get().cloned(),
            console,
            cut_short,
            tolerated: self.tolerated,
            skips: self.skips,
            name: self.name,
        })
    }
}

impl Report {
    /// What is wrong, one problem an entry.
    pub fn problems(&self) -> Vec<String> {
        let failed = self.outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Failed);
        let mut problems: Vec<String> = failed.map(ToString::to_string).collect();
        if self.outcomes.iter().all(|outcome| outcome.verdict == Verdict::Skipped) {
            problems.push("no test could run".to_owned());
        }
        let is_expected = |outcome: &&Outcome| {
            let mut words = self.skips.iter();
            words.any(|words| outcome.notes.iter().any(|note| note.contains(words)))
        };
        let skipped = self.outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Skipped);
        problems.extend(skipped.filter(|outcome| !is_expected(outcome)).map(ToString::to_string));
        problems
            .extend(self.cut_short.iter().map(|why| format!("the guest did not finish: {why}")));
        let too_little = self.too_little_taken.iter();
        problems.extend(too_little.map(|bytes| format!("the host has taken {bytes} bytes only")));
        let failed = self.taking_failed.iter();
        problems.extend(failed.map(|why| format!("the host has stopped taking: {why}")));
        let complaints = complaints(self.console.iter().map(String::as_str));
        let complaints = complaints
            .iter()
            .filter(|line| self.tolerated.is_none_or(|words| !line.contains(words)));
        problems.extend(complaints.map(|line| format!("the kernel says: {line}")));
        problems
    }

    /// Panics with all problems, if there are any, and leaves the console for a look.
    pub fn assert_passed(&self) {
        let problems = self.problems();
        if problems.is_empty() {
            return;
        }
        let log = std::env::temp_dir().join(format!("squeezy-{}-console.log", self.name));
        let kept = fs::write(&log, self.console.join("\n")).map(|()| log.display().to_string());
        panic!(
            "{}: {} problems\n{}\nthe guest's console: {}",
            self.name,
            problems.len(),
            problems.join("\n"),
            kept.unwrap_or_else(|error| format!("not kept: {error}"))
        );
    }
}

async fn accept(listener: &UnixListener) -> io::Result<UnixStream> {
    Ok(timeout(Duration::from_secs(60), listener.accept()).await??.0)
}

/// Reads until the runner has ended or the port is closed, and prints each outcome.
async fn read_tap(
    port: UnixStream,
    tap: &mut Tap,
    name: &str,
    silence: Duration,
) -> io::Result<()> {
    let mut port = BufReader::new(port);
    let mut line = Vec::new();
    while !tap.ended {
        let read = timeout(silence, port.read_until(b'\n', &mut line)).await.map_err(|_| {
            io::Error::other(format!("the guest has said nothing for {} s", silence.as_secs()))
        })?;
        match read {
            Ok(0) => break,
            Ok(_) => {
                let known = tap.outcomes.len();
                tap.line(String::from_utf8_lossy(&line).trim_end());
                // At once: a run that somebody has to end shows how far it came.
                tap.outcomes.iter().skip(known).for_each(|outcome| println!("{name}: {outcome}"));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error),
        }
        line.clear();
    }
    Ok(())
}

/// Base memory for a guest of this kind, in bytes: what the tests need, and the memory map.
pub fn base_bytes(memory: &dyn GuestMemory) -> u64 {
    squeezy_vmm::round_up(512 * MIB + memory.layout(0).region_bytes() / 64, 2 * MIB)
}

/// Partitions of so many MiB.
pub fn partitions(partition_mib: u64, partitions: u16, shared_mib: u64) -> PartitionLayout {
    PartitionLayout::new(partition_mib * MIB, partitions, shared_mib * MIB)
}

/// `xorshift64`: bytes that do not compress, and the same each time.
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = Vec::with_capacity(DATA_BYTES);
    while noise.len() < DATA_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend_from_slice(&state.to_le_bytes());
    }
    noise
}
