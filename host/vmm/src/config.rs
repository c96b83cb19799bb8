//! What a VM is made of.

use crate::{Result, VmError};
use bytesize::ByteSize;
use squeezy_protocol::{ImageNumber, PartitionNumber};
use std::{
    ffi::OsString,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

/// Memory blocks of Linux on x86-64, in bytes: where a partition's slot starts.
pub const MEMORY_BLOCK_BYTES: u64 = 128 << 20;

/// What partitions and plugged sizes are rounded up to, in bytes: the largest piece of Linux's
/// page allocator, and a multiple of virtio-mem's block size.
pub const GRANULE_BYTES: u64 = 4 << 20;

/// Most partitions or nodes of a VM.
pub const MAX_INSTANCES: u16 = 255;

/// Most processors of a guest (`CONFIG_NR_CPUS`).
const MAX_PROCESSORS: u32 = 64;

/// Least base memory in bytes that kernel, initramfs and agent start in.
const MIN_BASE_BYTES: u64 = 96 << 20;

/// Everything needed to start a VM. [`VmConfig::new`] gives the defaults; change what you need.
#[derive(Clone, Debug)]
pub struct VmConfig {
    /// Its name, for people and for the process list: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The VMM program, `qemu-system-x86_64` unless told otherwise.
    pub program: PathBuf,
    /// The guest's kernel (`bzImage`).
    pub kernel: PathBuf,
    /// The guest's initramfs, with the agent as `/init`.
    pub initramfs: PathBuf,
    /// The functions' images, by their [`ImageNumber`]: read-only drives.
    pub images: Vec<PathBuf>,
    /// Arguments added to the kernel's command line; what the memory layout needs is added by itself.
    pub command_line: Vec<String>,
    /// Virtual processors.
    pub vcpus: u32,
    /// Memory that the VM always has, in bytes.
    pub base_bytes: u64,
    /// The memory that comes and goes.
    pub memory: GuestMemory,
    /// What runs the guest's code.
    pub accelerator: AcceleratorChoice,
    /// What backs the guest's memory on the host.
    pub memory_backend: MemoryBackend,
    /// Whether the guest has a device to report free pages with, which the host discards. A guest
    /// with partitions then does so on request (`docs/abi.md`), any other by and by.
    /// Off unless asked for: it would blur what a resize gives back.
    pub free_page_reporting: bool,
    /// Whether the VMM logs each request of a virtio-mem device, for [`Resize::device`](crate::Resize).
    pub count_device_requests: bool,
    /// Whether, without KVM, the guest's clock counts its instructions, one a nanosecond, and its
    /// processors take turns: what the guest measures then does not depend on how busy the host is.
    pub count_instructions: bool,
    /// Where a copy of the guest's console goes, at most 16 MiB of it.
    pub console_log: Option<PathBuf>,
    /// Arguments added to the VMM's own, for what a test or an experiment needs beside: a device,
    /// a second monitor. They are not checked.
    pub arguments: Vec<OsString>,
    /// Whether the guest runs the agent. Without it [`Vm::start`](crate::Vm::start) returns as
    /// soon as the VMM runs, and the guest may power off by itself (tests of the kernel do).
    pub agent: bool,
    /// How long each step may take.
    pub timeouts: Timeouts,
}

/// How long each step may take before it is an error.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the start of the VMM until it takes commands.
    pub start: Duration,
    /// From the start of the VMM until the agent answers.
    pub boot: Duration,
    /// For one call of the agent, unless the call itself says otherwise.
    pub call: Duration,
    /// For a resize.
    pub resize: Duration,
    /// For the VMM to answer while the VM runs.
    pub hang: Duration,
    /// For the guest to power off when the VM is stopped, before it is killed.
    pub stop: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(30),
            // A loaded machine without KVM takes 10 s and more for what takes 1 s otherwise.
            boot: Duration::from_secs(90),
            call: Duration::from_secs(30),
            resize: Duration::from_secs(60),
            hang: Duration::from_secs(10),
            stop: Duration::from_secs(3),
        }
    }
}

/// The guest memory that comes and goes, beside [`VmConfig::base_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestMemory {
    /// Nothing does: the VM has this much more from its start on, in bytes, for ever.
    Fixed {
        /// Bytes beside the base.
        extra_bytes: u64,
    },
    /// One virtio-mem device, divided into partitions by the guest's kernel.
    Partitions(PartitionLayout),
    /// One virtio-mem device that the guest uses as it likes.
    VirtioMem {
        /// Bytes that can be plugged at most.
        region_bytes: u64,
        /// Bytes plugged at start.
        initial_bytes: u64,
    },
    /// One virtio-mem device and one NUMA node for each instance (node 0 is the base).
    Nodes {
        /// Bytes of each.
        node_bytes: u64,
        /// How many.
        nodes: u16,
    },
    /// Ordinary memory, of which a balloon takes this much at start and lets go what is plugged.
    Balloon {
        /// Bytes beside the base.
        extra_bytes: u64,
    },
}

/// How a virtio-mem region is divided (`docs/abi.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionLayout {
    /// Bytes of one partition.
    pub partition_bytes: u64,
    /// How many, 1 to 255.
    pub partitions: u16,
    /// Bytes of the shared partition, plugged at start.
    pub shared_bytes: u64,
}

impl PartitionLayout {
    /// The layout with its sizes rounded up to what can be plugged.
    pub fn new(partition_bytes: u64, partitions: u16, shared_bytes: u64) -> Self {
        Self {
            partition_bytes: round_up(partition_bytes, GRANULE_BYTES),
            partitions,
            shared_bytes: round_up(shared_bytes, GRANULE_BYTES),
        }
    }

    /// Bytes of address space that the region needs: each slot spans whole memory blocks.
    pub fn region_bytes(&self) -> u64 {
        let slot = round_up(self.partition_bytes, MEMORY_BLOCK_BYTES);
        slot.saturating_mul(self.partitions.into())
            .saturating_add(round_up(self.shared_bytes, MEMORY_BLOCK_BYTES))
    }

    /// Where a partition lies in the region, in bytes; nothing for one that there is not.
    pub fn range(&self, partition: PartitionNumber) -> Option<Range<u64>> {
        let slot = round_up(self.partition_bytes, MEMORY_BLOCK_BYTES);
        let first = round_up(self.shared_bytes, MEMORY_BLOCK_BYTES);
        let start = first + slot * u64::from(partition.0);
        (partition.0 < self.partitions).then(|| start..start + self.partition_bytes)
    }

    /// Bytes to ask for to have `populated` partitions plugged.
    pub fn requested_bytes(&self, populated: u16) -> u64 {
        self.shared_bytes + u64::from(populated) * self.partition_bytes
    }
}

/// A choice of what runs the guest's code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcceleratorChoice {
    /// KVM where a probe shows that it works, else TCG.
    #[default]
    Auto,
    /// KVM, or an error when the probe fails.
    Kvm,
    /// QEMU's own translator.
    Tcg,
}

/// What backs the guest's memory on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryBackend {
    /// Private anonymous memory, with huge pages advised: the fastest to give back.
    #[default]
    Ram,
    /// A memfd, which other processes can map; giving it back takes the host many times longer.
    Memfd,
}

macro_rules! names {
    ($type:ty { $($variant:path = $name:literal),+ $(,)? }) => {
        impl FromStr for $type {
            type Err = VmError;

            fn from_str(text: &str) -> Result<Self> {
                match text {
                    $($name => Ok($variant),)+
                    _ => Err(VmError::Config(format!(
                        "`{text}` is none of {}", [$($name),+].join(", ")
                    ))),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $($variant => $name),+ })
            }
        }
    };
}
pub(crate) use names;

names!(AcceleratorChoice {
    AcceleratorChoice::Auto = "auto",
    AcceleratorChoice::Kvm = "kvm",
    AcceleratorChoice::Tcg = "tcg",
});

names!(MemoryBackend { MemoryBackend::Ram = "ram", MemoryBackend::Memfd = "memfd" });

impl VmConfig {
    /// A VM with one processor and 256 MiB that do not change.
    pub fn new(
        name: impl Into<String>,
        kernel: impl Into<PathBuf>,
        initramfs: impl Into<PathBuf>,
    ) -> Self {
        Self {
            name: name.into(),
            program: "qemu-system-x86_64".into(),
            kernel: kernel.into(),
            initramfs: initramfs.into(),
            images: Vec::new(),
            command_line: Vec::new(),
            vcpus: 1,
            base_bytes: 256 << 20,
            memory: GuestMemory::Fixed { extra_bytes: 0 },
            accelerator: AcceleratorChoice::default(),
            memory_backend: MemoryBackend::default(),
            free_page_reporting: false,
            count_device_requests: false,
            count_instructions: false,
            console_log: None,
            arguments: Vec::new(),
            agent: true,
            timeouts: Timeouts::default(),
        }
    }

    /// Bytes of memory that the guest sees as ordinary RAM at boot.
    pub fn boot_bytes(&self) -> u64 {
        self.base_bytes.saturating_add(match self.memory {
            GuestMemory::Fixed { extra_bytes } | GuestMemory::Balloon { extra_bytes } => {
                extra_bytes
            }
            _ => 0,
        })
    }

    /// The virtio-mem devices: bytes of the region and bytes plugged at start of each.
    pub fn devices(&self) -> Vec<DeviceSize> {
        match self.memory {
            GuestMemory::Fixed { .. } | GuestMemory::Balloon { .. } => Vec::new(),
            GuestMemory::Partitions(layout) => {
                vec![DeviceSize {
                    region_bytes: layout.region_bytes(),
                    initial_bytes: layout.shared_bytes,
                }]
            }
            GuestMemory::VirtioMem { region_bytes, initial_bytes } => vec![DeviceSize {
                region_bytes: round_up(region_bytes, MEMORY_BLOCK_BYTES),
                initial_bytes: round_up(initial_bytes, GRANULE_BYTES),
            }],
            GuestMemory::Nodes { node_bytes, nodes } => {
                let region_bytes = round_up(node_bytes, MEMORY_BLOCK_BYTES);
                vec![DeviceSize { region_bytes, initial_bytes: 0 }; nodes.into()]
            }
        }
    }

    /// The kernel's whole command line.
    pub fn kernel_command_line(&self) -> String {
        // panic=-1 restarts at once and the VMM turns that into its end, so a panic is never a hang.
        // no_timer_check, as Linux does by itself under KVM: without KVM and on a busy host the timer
        // interrupts that the check waits for come too late, and the guest panics.
        let mut words = vec![
            "console=ttyS0 panic=-1 no_timer_check memhp_default_state=online_movable".to_owned(),
        ];
        if let GuestMemory::Partitions(layout) = self.memory {
            words.push(format!(
                "squeezy.partition_size={}K squeezy.partitions={} squeezy.shared_size={}K",
                layout.partition_bytes >> 10,
                layout.partitions,
                layout.shared_bytes >> 10,
            ));
        }
        words.extend(self.command_line.iter().cloned());
        words.join(" ")
    }

    /// Checks what can be checked before anything is started.
    pub fn check(&self) -> Result<()> {
        let fail = |message: String| Err(VmError::Config(message));
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if self.name.is_empty() || self.name.len() > 63 || !self.name.bytes().all(plain) {
            return fail(format!(
                "the name `{}` is not 1 to 63 letters, digits, `-`, `_` and `.`",
                self.name
            ));
        }
        if !(1..=MAX_PROCESSORS).contains(&self.vcpus) {
            return fail(format!(
                "{} processors were asked for; 1 to {MAX_PROCESSORS} are possible",
                self.vcpus
            ));
        }
        match self.memory {
            GuestMemory::Partitions(PartitionLayout { partition_bytes, partitions, .. }) => {
                check_instances(partition_bytes, partitions)?;
            }
            GuestMemory::Nodes { node_bytes, nodes } => {
                check_instances(node_bytes, nodes)?;
                // Each node has a processor that never comes, see the backend.
                if self.vcpus + u32::from(nodes) > MAX_PROCESSORS {
                    return fail(format!(
                        "{nodes} nodes beside {} processors were asked for; both together are {MAX_PROCESSORS} at most",
                        self.vcpus
                    ));
                }
            }
            GuestMemory::VirtioMem { region_bytes, initial_bytes } => {
                if initial_bytes > region_bytes {
                    return Err(VmError::RegionTooSmall {
                        asked: initial_bytes,
                        region: region_bytes,
                    });
                }
            }
            GuestMemory::Fixed { .. } | GuestMemory::Balloon { .. } => {}
        }
        let region = self.devices().iter().fold(0u64, |sum, d| sum.saturating_add(d.region_bytes));
        if region.saturating_add(self.boot_bytes()) > 1 << 46 {
            return fail("more than 64 TiB of memory were asked for".to_owned());
        }
        // The memory map of what is plugged, 64 bytes a page, comes out of the base.
        let least = MIN_BASE_BYTES + region / 64;
        if self.boot_bytes() < least {
            return fail(format!(
                "{} of base memory are too few: the kernel and the memory map of {} that can be plugged \
                 need {}",
                ByteSize(self.boot_bytes()),
                ByteSize(region),
                ByteSize(least)
            ));
        }
        if !self.boot_bytes().is_multiple_of(2 << 20) {
            return fail(format!(
                "{} bytes of base memory are no multiple of 2 MiB",
                self.boot_bytes()
            ));
        }
        if self.kernel_command_line().len() > 2047 {
            return fail("the kernel's command line is longer than 2047 characters".to_owned());
        }
        file(
            &self.kernel,
            "the guest's kernel",
            "build it with `make kernel`, or name the directory it is in",
        )?;
        file(
            &self.initramfs,
            "the guest's initramfs",
            "build it with `make image`, or name the directory it is in",
        )?;
        if self.images.len() > ImageNumber::MAX_COUNT {
            return fail(format!(
                "{} images, and a VM takes {} at most: give some of the functions another VM",
                self.images.len(),
                ImageNumber::MAX_COUNT
            ));
        }
        for image in &self.images {
            file(
                image,
                "the function's image",
                "build it with `guest/image/build.sh` and the function's directory, or name the file",
            )?;
        }
        Ok(())
    }
}

/// The size of one virtio-mem device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSize {
    /// Bytes that can be plugged at most.
    pub region_bytes: u64,
    /// Bytes plugged at start.
    pub initial_bytes: u64,
}

fn check_instances(bytes: u64, count: u16) -> Result<()> {
    if bytes == 0 || bytes > 1 << 40 {
        return Err(VmError::Config(format!("an instance of {} is not possible", ByteSize(bytes))));
    }
    if !(1..=MAX_INSTANCES).contains(&count) {
        return Err(VmError::Config(format!(
            "{count} instances were asked for; 1 to {MAX_INSTANCES} are possible"
        )));
    }
    Ok(())
}

fn file(path: &Path, what: &'static str, remedy: &'static str) -> Result<()> {
    if path.is_file() {
        Ok(())
    } else {
        Err(VmError::Missing { what, path: path.to_owned(), remedy })
    }
}

/// `bytes` rounded up to a multiple of `unit`.
pub fn round_up(bytes: u64, unit: u64) -> u64 {
    bytes.div_ceil(unit).saturating_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_rounded_and_placed_as_the_kernel_does() {
        let layout = PartitionLayout::new((300 << 20) + 1, 3, 1);
        assert_eq!(layout.partition_bytes, 304 << 20);
        assert_eq!(layout.shared_bytes, 4 << 20);
        assert_eq!(layout.region_bytes(), (128 << 20) + 3 * (384 << 20));
        assert_eq!(layout.requested_bytes(2), (4 << 20) + 2 * (304 << 20));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_one_line() {
        let good = VmConfig::new("a", "/dev/null", "/dev/null");
        type Change = fn(&mut VmConfig);
        let cases: [(&str, Change); 7] = [
            ("name", |c| c.name = "a,b".into()),
            ("processors", |c| c.vcpus = 0),
            ("64 TiB", |c| {
                c.memory = GuestMemory::VirtioMem { region_bytes: u64::MAX, initial_bytes: 0 }
            }),
            ("region holds", |c| {
                c.memory = GuestMemory::VirtioMem { region_bytes: 0, initial_bytes: 1 }
            }),
            ("0 instances", |c| {
                c.memory = GuestMemory::Partitions(PartitionLayout::new(1 << 30, 0, 0))
            }),
            ("too few", |c| {
                c.memory = GuestMemory::Partitions(PartitionLayout::new(1 << 30, 255, 0))
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
        // Of any function, not of the one that `make image` builds.
        assert!(refusal(|c| c.images.push("/no".into())).contains("guest/image/build.sh"));
    }

    #[test]
    fn names_read_back_as_they_are_written() {
        for choice in [AcceleratorChoice::Auto, AcceleratorChoice::Kvm, AcceleratorChoice::Tcg] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert!(
            "xen".parse::<AcceleratorChoice>().unwrap_err().to_string().contains("auto, kvm, tcg")
        );
        assert_eq!("memfd".parse(), Ok(MemoryBackend::Memfd));
    }
}
