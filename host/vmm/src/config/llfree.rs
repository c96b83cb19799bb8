//! How free memory goes back to the host while it is the guest's, and what cannot be combined with a host that works on the
//! guest's page allocator.

use super::{GuestClock, Llfree, MemoryBackend, VmConfig, Vmm};
use std::{iter, time::Duration};

/// How often the host takes free memory out of running VMs, if it can: as HyperAlloc's soft reclaim does.
const TAKE_FREE_EVERY: Duration = Duration::from_secs(5);

/// Words in QEMU's arguments, as [`spelled`], that rule out work on the guest's allocator.
const NOT_WITH_LLFREE: [(&[&str], &str); 7] = [
    (
        &["vfio", "vhost", "iommufd", "pvrdma"],
        "a device that accesses the guest's memory by itself would keep pages that the host has given back",
    ),
    (
        // Not a file that is on such a disk.
        &[
            "nvme://",
            "driver=nvme",
            r#""driver":"nvme"#,
            "driver=io_uring",
            r#""driver":"io_uring"#,
        ],
        "QEMU pins the guest's memory for this driver, and the disk would keep pages that the host has given back",
    ),
    (
        &["sev-guest", "sev-snp-guest", "tdx-guest"],
        "the guest's memory is encrypted, its state too",
    ),
    (
        &["icount", "thread=single"],
        "QEMU then executes the guest's atomic instructions in several steps",
    ),
    (
        &["-incoming", "-loadvm"],
        "the host would work on a guest that began somewhere else, with memory that it has taken from nobody",
    ),
    (
        &["-readconfig", "-smp"],
        "it could say anything of what must not be, or that there is one processor",
    ),
    (
        &["reboot=reset"],
        "when the guest starts anew, the host would go on changing what is no allocator's state any more",
    ),
];

impl VmConfig {
    /// Has its free memory go back to the host while it is in use; for when its memory and the memory backend are as they
    /// will be. Of a VM with partitions and `memfd` the host takes it by itself, of what `llfree` says, and so it does where
    /// the memory has brought its own. With partitions and `ram` it has to ask the guest
    /// ([`AgentClient::squeeze`](crate::AgentClient::squeeze)), which needs a device for the answer: only a VM that
    /// `is_squeezed` has one.
    pub fn give_back_free(&mut self, llfree: Llfree, is_squeezed: bool) {
        if self.memory.partitions().is_some() {
            match self.memory_backend {
                MemoryBackend::Memfd => self.llfree = llfree,
                MemoryBackend::Ram => self.free_page_reporting = is_squeezed,
            }
        }
        if self.llfree != Llfree::Off {
            self.take_free_every = Some(TAKE_FREE_EVERY);
        }
    }

    /// Why such a VM would not work, if it would not.
    pub(super) fn llfree_problem(&self) -> Option<String> {
        let Self { llfree, .. } = self;
        if *llfree == Llfree::Off {
            return None;
        }
        if self.memory_backend != MemoryBackend::Memfd {
            return Some(format!(
                "llfree={llfree} needs the memory backend `{}`: the host cannot give back parts of another \
                 program's private memory",
                MemoryBackend::Memfd
            ));
        }
        if self.clock == GuestClock::Instructions {
            return Some(format!(
                "llfree={llfree} does not work with a clock that counts instructions: QEMU then executes the \
                 guest's atomic instructions in several steps"
            ));
        }
        if *llfree == Llfree::Partitions && self.memory.partitions().is_none() {
            return Some(format!("llfree={llfree}, but this kind of memory has no partitions"));
        }
        let Vmm::Qemu(options) = &self.vmm;
        let arguments: Vec<_> =
            options.arguments.iter().map(|argument| argument.to_string_lossy()).collect();
        let before = iter::once("").chain(arguments.iter().map(|argument| &**argument));
        before.zip(&arguments).find_map(|(option, text)| {
            let plain = spelled(option, text);
            let (_, why) = NOT_WITH_LLFREE
                .iter()
                .find(|(names, _)| names.iter().any(|name| plain.contains(name)))?;
            Some(format!("llfree={llfree} does not work with `{text}`: {why}"))
        })
    }
}

/// What follows an option of QEMU's, in the one of its spellings that is looked for.
fn spelled(option: &str, text: &str) -> String {
    let text: String = text.split_whitespace().collect();
    match option.trim_start_matches('-') {
        // Its first word may be the driver's name alone.
        "blockdev" => format!("driver={text}"),
        // The controller that QEMU emulates has the name of the driver for a real one.
        "device" => text.replace("driver=", "").replace(r#""driver":"#, ""),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        QemuOptions,
        memory::{Fixed, PartitionLayout},
    };
    use std::sync::Arc;

    #[test]
    fn free_memory_of_partitions_goes_back_as_their_memory_backend_allows() {
        let mut config = VmConfig::new("a", "/dev/null", "/dev/null");
        config.memory_backend = MemoryBackend::Memfd;
        config.give_back_free(Llfree::Partitions, true);
        assert_eq!((config.llfree, config.take_free_every), (Llfree::Off, None), "it has none");
        let mut of_itself = VmConfig { llfree: Llfree::All, ..config.clone() };
        of_itself.give_back_free(Llfree::Partitions, true);
        assert_eq!((of_itself.llfree, of_itself.take_free_every.is_some()), (Llfree::All, true));
        config.memory = Arc::new(PartitionLayout::new(256 << 20, 2, 0));
        for (memory_backend, is_squeezed, expected) in [
            (MemoryBackend::Ram, true, (Llfree::Off, false, true)),
            (MemoryBackend::Ram, false, (Llfree::Off, false, false)),
            (MemoryBackend::Memfd, true, (Llfree::Partitions, true, false)),
        ] {
            let mut config = VmConfig { memory_backend, ..config.clone() };
            config.give_back_free(Llfree::Partitions, is_squeezed);
            let is_swept = config.take_free_every.is_some();
            let found = (config.llfree, is_swept, config.free_page_reporting);
            assert_eq!(found, expected, "{memory_backend}");
            assert_eq!(config.llfree_problem(), None);
        }
    }

    #[test]
    fn what_the_host_cannot_take_memory_out_of_is_refused_by_name() {
        let mut good = VmConfig::new("a", "/dev/null", "/dev/null");
        good.memory = Arc::new(PartitionLayout::new(256 << 20, 2, 0));
        good.memory_backend = MemoryBackend::Memfd;
        good.llfree = Llfree::Partitions;
        assert_eq!(good.llfree_problem(), None);
        assert!(good.kernel_command_line().ends_with(" llfree=partitions"));
        type Change = fn(&mut VmConfig);
        let cases: [(&str, Change); 3] = [
            ("private memory", |c| c.memory_backend = MemoryBackend::Ram),
            ("counts instructions", |c| c.clock = GuestClock::Instructions),
            ("no partitions", |c| c.memory = Arc::new(Fixed::default())),
        ];
        for (expected, change) in cases {
            let mut config = good.clone();
            change(&mut config);
            let problem = config.llfree_problem().unwrap();
            assert!(problem.contains(expected), "{problem}");
        }
        let with = |arguments: [&str; 2]| {
            let arguments = arguments.map(Into::into).into();
            let vmm = Vmm::Qemu(QemuOptions { arguments, ..QemuOptions::default() });
            VmConfig { vmm, ..good.clone() }.llfree_problem()
        };
        for fine in [
            ["-device", "virtio-net-pci"],
            ["-device", "virtio-blk-pci,drive=/dev/nvme0n1"],
            ["-device", "nvme,drive=data"],
            ["-device", "driver=nvme,drive=data"],
            ["-device", r#"{"driver": "nvme", "drive": "data", "serial": "1"}"#],
            ["-blockdev", "file,filename=/dev/nvme0n1,aio=io_uring,node-name=nvme"],
        ] {
            assert_eq!(with(fine), None);
        }
        for (arguments, expected) in [
            (["-device", "vfio-pci,host=1:0"], "`vfio-pci,host=1:0`: a device that"),
            (["-device", "vhost-vsock-pci"], "`vhost-vsock-pci`: a device that"),
            (["-device", "pvrdma,netdev=n"], "`pvrdma,netdev=n`: a device that"),
            (["-drive", "file=nvme://0000:01:00.0/1"], "QEMU pins"),
            (["-blockdev", "driver=nvme,device=0000:01:00.0"], "QEMU pins"),
            (["-blockdev", "nvme,device=0000:01:00.0"], "QEMU pins"),
            (["--blockdev", "io_uring,filename=/dev/sda"], "QEMU pins"),
            (["-blockdev", r#"{"driver": "io_uring", "filename": "/dev/sda"}"#], "QEMU pins"),
            (["-blockdev", r#"{"driver": "nvme-io_uring", "path": "/dev/ng0n1"}"#], "QEMU pins"),
            (["-drive", "file.driver=io_uring,file.filename=/dev/sda"], "QEMU pins"),
            (["-object", "sev-snp-guest,id=sev0"], "encrypted"),
            (["-icount", "shift=0"], "`-icount`: QEMU then"),
            (["-accel", "tcg,thread=single"], "in several steps"),
            (["-action", "reboot=reset"], "starts anew"),
            (["-incoming", "defer"], "`-incoming`: the host would"),
            (["-loadvm", "before"], "began somewhere else"),
            (["-readconfig", "more.cfg"], "could say anything"),
            (["-smp", "1"], "one processor"),
        ] {
            let problem = with(arguments).unwrap();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
