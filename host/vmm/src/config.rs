//! The configuration of a VM.

mod llfree;

use crate::{
    CpuShare, Kernel, MemoryBackend, Result, VmError,
    accelerator::AcceleratorChoice,
    backend::qemu::options::QemuOptions,
    memory::{Fixed, GuestMemory, Layout},
    names::names,
    network::{self, NetworkCounters, Openable, Uplink},
};
use bytesize::ByteSize;
use squeezy_protocol::{ImageNumber, Layer, network::Network};
use std::{
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The least base memory in which the kernel, the initramfs and the agent start.
const MIN_BASE_BYTES: u64 = 96 << 20;

/// Everything needed to start a VM. [`VmConfig::new`] gives the defaults; change what you need.
#[derive(Clone, Debug)]
pub struct VmConfig {
    /// Its name, for log lines and the process list: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The VMM that runs it, with options specific to that VMM.
    pub vmm: Vmm,
    /// The guest's kernel (`bzImage`).
    pub kernel: PathBuf,
    /// The guest's initramfs, with the agent as `/init`.
    pub initramfs: PathBuf,
    /// The functions' images, as read-only drives in the order of their [`ImageNumber`].
    pub images: Vec<PathBuf>,
    /// The drive for layers ([`squeezy_protocol::Layer`]), if there is one. The guest can read all of it and change
    /// nothing; the host may write to ranges that the guest does not know of yet. It needs no name.
    pub pool: Option<Arc<File>>,
    /// Arguments added to the kernel's command line. Those for the memory layout are added
    /// automatically.
    pub command_line: Vec<String>,
    /// Virtual processors.
    pub vcpus: u32,
    /// Whose share of the host's processors it uses; it competes by itself if absent.
    pub cpu_share: Option<Arc<CpuShare>>,
    /// Memory that the VM always has, in bytes.
    pub base_bytes: u64,
    /// The memory besides the base, and how it grows and shrinks.
    pub memory: Arc<dyn GuestMemory>,
    /// Which accelerator runs the guest's code.
    pub accelerator: AcceleratorChoice,
    /// What backs the guest's memory on the host.
    pub memory_backend: MemoryBackend,
    /// Which of the guest's pages LLFree keeps, so that the host can take free ones out by itself
    /// ([`Vm::reclaim_free`](crate::Vm::take_free)).
    pub llfree: Llfree,
    /// How often the host takes free memory out of the guest by itself while it runs: areas of 2 MiB that are
    /// entirely free. Not at all by default, because it would distort what a resize gives back.
    pub take_free_every: Option<Duration>,
    /// Whether the guest has a device to report free pages with, which the host then discards. A
    /// guest with partitions reports on request (`docs/abi.md`), any other continuously. Off by
    /// default, because it would distort what a resize gives back.
    pub free_page_reporting: bool,
    /// What the guest's network device leads to; `None` if it has none.
    pub network: Option<Uplink>,
    /// Tap devices, at most [`MAX_COUNT`](squeezy_protocol::network::Network::MAX_COUNT), each behind a network
    /// device of the guest that it can make a [`Network`] of the same number with.
    pub taps: Vec<Arc<OwnedFd>>,
    /// What the owner of what runs in it may open of what is private.
    pub openable: Arc<Openable>,
    /// What counts how often it tries to reach somebody, for all VMs that this configuration is for.
    pub network_counters: Arc<NetworkCounters>,
    /// Whether the VMM logs each request to a virtio-mem device, for
    /// [`Resize::device`](crate::Resize).
    pub count_device_requests: bool,
    /// What the guest's clock counts.
    pub clock: GuestClock,
    /// Where a copy of the guest's console goes, at most 16 MiB of it.
    pub console_log: Option<PathBuf>,
    /// Whether the guest runs the agent. Without it [`Vm::start`](crate::Vm::start) returns as soon
    /// as the VMM runs, and the guest may power off on its own (kernel tests do).
    pub agent: bool,
    /// How long each step may take.
    pub timeouts: Timeouts,
}

/// How long each step may take before it fails.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the start of the VMM until it takes commands.
    pub start: Duration,
    /// From the start of the VMM until the agent answers.
    pub boot: Duration,
    /// For a call to the agent that has no limit of its own, and for a look at what the host has behind a partition.
    pub call: Duration,
    /// For a resize.
    pub resize: Duration,
    /// For the VMM to answer while the VM is running.
    pub hang: Duration,
    /// For the guest to power off when the VM is stopped, before it is killed.
    pub stop: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(30),
            // A loaded machine without KVM takes 10 s or more for what otherwise takes 1 s.
            boot: Duration::from_secs(90),
            call: Duration::from_secs(30),
            resize: Duration::from_secs(60),
            hang: Duration::from_secs(10),
            stop: Duration::from_secs(3),
        }
    }
}

/// The program that runs a VM. A second one would be a variant here and a folder next to
/// `backend/qemu/`; `docs/vmm.md` says what it has to provide.
#[derive(Clone, Debug)]
pub enum Vmm {
    /// Stock QEMU.
    Qemu(QemuOptions),
}

impl Default for Vmm {
    fn default() -> Self {
        Self::Qemu(QemuOptions::default())
    }
}

/// What the guest's clock counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuestClock {
    /// Time.
    #[default]
    Time,
    /// Under emulation, executed instructions, at one per nanosecond, with processors taking turns:
    /// the guest's measurements then do not depend on the load of the host. Under KVM, time.
    Instructions,
}

/// Which of the guest's pages the allocator LLFree keeps, whose state the host can work on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Llfree {
    /// None.
    #[default]
    Off,
    /// Those of the partitions.
    Partitions,
    /// Those, that of the shared partition, and the memory that the guest boots with.
    All,
}

names!(Llfree {
    Llfree::Off = "off",
    Llfree::Partitions = "partitions",
    Llfree::All = "all",
});

impl VmConfig {
    /// A VM with one processor and 256 MiB of fixed memory.
    pub fn new(
        name: impl Into<String>,
        kernel: impl Into<PathBuf>,
        initramfs: impl Into<PathBuf>,
    ) -> Self {
        Self {
            name: name.into(),
            vmm: Vmm::default(),
            kernel: kernel.into(),
            initramfs: initramfs.into(),
            images: Vec::new(),
            pool: None,
            command_line: Vec::new(),
            vcpus: 1,
            cpu_share: None,
            base_bytes: 256 << 20,
            memory: Arc::new(Fixed::default()),
            accelerator: AcceleratorChoice::default(),
            memory_backend: MemoryBackend::default(),
            llfree: Llfree::default(),
            take_free_every: None,
            free_page_reporting: false,
            network: None,
            taps: Vec::new(),
            openable: Arc::default(),
            network_counters: Arc::default(),
            count_device_requests: false,
            clock: GuestClock::default(),
            console_log: None,
            agent: true,
            timeouts: Timeouts::default(),
        }
    }

    /// What the VMM has to provide for its memory.
    pub fn layout(&self) -> Layout {
        self.memory.layout(self.base_bytes)
    }

    /// The kernel's complete command line.
    pub fn kernel_command_line(&self) -> String {
        // panic=-1 restarts at once, which makes the VMM exit, so a panic is never a hang.
        // no_timer_check is what Linux does on its own under KVM: without KVM on a busy host, the
        // timer interrupts that the check waits for arrive too late, and the guest panics.
        let mut words = vec![
            "console=ttyS0 panic=-1 no_timer_check memhp_default_state=online_movable".to_owned(),
        ];
        words.extend(self.memory.kernel_parameters());
        if self.llfree != Llfree::Off {
            words.push(format!("llfree={}", self.llfree));
        }
        words.extend(self.command_line.iter().cloned());
        words.join(" ")
    }

    /// Checks what can be checked before anything starts.
    pub fn check(&self) -> Result<()> {
        let fail = |message: String| Err(VmError::Config(message));
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if self.name.is_empty() || self.name.len() > 63 || !self.name.bytes().all(plain) {
            return fail(format!(
                "the name `{}` is not 1 to 63 letters, digits, `-`, `_` and `.`",
                self.name
            ));
        }
        if !(1..=Kernel::MAX_PROCESSORS).contains(&self.vcpus) {
            return fail(format!(
                "{} processors were requested; 1 to {} are possible",
                self.vcpus,
                Kernel::MAX_PROCESSORS
            ));
        }
        self.memory.check(self.vcpus)?;
        let layout = self.layout();
        let region = layout.region_bytes();
        if region.saturating_add(layout.boot_bytes) > 1 << 46 {
            return fail("more than 64 TiB of memory were requested".to_owned());
        }
        // The memory map of everything that can be plugged, 64 bytes per page, is in base memory.
        let least = MIN_BASE_BYTES + region / 64;
        if layout.boot_bytes < least {
            return fail(format!(
                "{} of base memory is too little: the kernel and the memory map of {} that can be plugged \
                 need {}",
                ByteSize(layout.boot_bytes),
                ByteSize(region),
                ByteSize(least)
            ));
        }
        if !layout.boot_bytes.is_multiple_of(2 << 20) {
            return fail(format!(
                "{} bytes of base memory are not a multiple of 2 MiB",
                layout.boot_bytes
            ));
        }
        if let Some(problem) = self.llfree_problem() {
            return fail(problem);
        }
        if let Some(Uplink::Judged(_)) = self.network
            && let Some(problem) = network::problem()
        {
            return fail(problem);
        }
        if self.kernel_command_line().len() > 2047 {
            return fail("the kernel's command line is longer than 2047 characters".to_owned());
        }
        if let Some(pool) = &self.pool {
            let bytes = pool
                .metadata()
                .map_err(|error| VmError::system("the drive for layers cannot be used", error))?
                .len();
            if bytes == 0 || !bytes.is_multiple_of(Layer::GRANULE_BYTES) {
                return fail(format!(
                    "the drive for layers has {bytes} bytes, and not a multiple of {}",
                    ByteSize(Layer::GRANULE_BYTES)
                ));
            }
        }
        if self.taps.len() > usize::from(Network::MAX_COUNT) {
            return fail(format!(
                "{} tap devices, but a VM takes at most {}",
                self.taps.len(),
                Network::MAX_COUNT
            ));
        }
        file(
            &self.kernel,
            "the guest's kernel",
            "build it with `make kernel`, or give the directory it is in",
        )?;
        file(
            &self.initramfs,
            "the guest's initramfs",
            "build it with `make image`, or give the directory it is in",
        )?;
        if self.images.len() > ImageNumber::MAX_COUNT {
            return fail(format!(
                "{} images, but a VM takes at most {}: move some functions to another VM",
                self.images.len(),
                ImageNumber::MAX_COUNT
            ));
        }
        for image in &self.images {
            file(
                image,
                "the function's image",
                "build it with `guest/image/build.sh` and the function's directory, or give the file",
            )?;
        }
        Ok(())
    }
}

fn file(path: &Path, what: &'static str, remedy: &'static str) -> Result<()> {
    if path.is_file() {
        Ok(())
    } else {
        Err(VmError::Missing { what, path: path.to_owned(), remedy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{PartitionLayout, VirtioMem};

    #[test]
    fn what_makes_no_sense_is_refused_in_one_line() {
        let good = VmConfig::new("a", "/dev/null", "/dev/null");
        type Change = fn(&mut VmConfig);
        let cases: [(&str, Change); 9] = [
            ("name", |c| c.name = "a,b".into()),
            ("processors", |c| c.vcpus = 0),
            ("64 TiB", |c| {
                c.memory = Arc::new(VirtioMem { region_bytes: u64::MAX, initial_bytes: 0 })
            }),
            ("region holds", |c| {
                c.memory = Arc::new(VirtioMem { region_bytes: 0, initial_bytes: 1 })
            }),
            ("0 instances", |c| c.memory = Arc::new(PartitionLayout::new(1 << 30, 0, 0))),
            ("too little", |c| c.memory = Arc::new(PartitionLayout::new(1 << 30, 255, 0))),
            ("layers has 0 bytes", |c| c.pool = Some(Arc::new(File::open("/dev/null").unwrap()))),
            ("33 tap devices", |c| {
                let null = Arc::new(File::open("/dev/null").unwrap().into());
                c.taps = vec![null; 33];
            }),
            ("kernel is not at", |c| c.kernel = "/nowhere".into()),
        ];
        for (expected, change) in cases {
            let mut config = good.clone();
            change(&mut config);
            let message = config.check().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            assert_eq!(message.lines().count(), 1);
        }
    }

    #[test]
    fn what_has_not_been_built_is_named_with_how_to() {
        let there = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let good = VmConfig::new("a", there, there);
        let refusal = |change: fn(&mut VmConfig)| {
            let mut config = good.clone();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(refusal(|c| c.kernel = "/no".into()).contains("make kernel"));
        assert!(refusal(|c| c.initramfs = "/no".into()).contains("make image"));
        // For any function, not only the one that `make image` builds.
        assert!(refusal(|c| c.images.push("/no".into())).contains("guest/image/build.sh"));
    }
}
