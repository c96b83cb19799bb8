//! What a VM may need of the host's memory, for the bound on it.
//!
//! More than any VM takes that works: the bound is for one that takes without end, and must not end another one. All of
//! it is charged to the control group that QEMU and the server are in: the guest's memory is QEMU's own or in files of the
//! server's, and charged to whoever touches it first, which is one of the two.

use crate::layers::MAKING_BYTES;

/// QEMU but for what follows, the server and the processes that stand for pods, in bytes.
const PROGRAMS_BYTES: u64 = 1 << 30;
/// Page tables of so much memory, as a divisor: a 512th for those of QEMU, a 455th for the index of a file in pages of 4 KiB,
/// and a 50th for the processors'. That is what KVM has at most where it has to write them itself; with EPT or NPT it is a
/// 512th.
const TABLES_PART: u64 = 40;
/// What QEMU has of translated code where it emulates processors, in bytes: 1 GiB at most, and an index of that.
const TRANSLATIONS_BYTES: u64 = 3 << 29;
/// What it has of translated addresses for each of them, in bytes: 2^22 of 64 bytes, of the kernel and of programs.
const ADDRESSES_BYTES: u64 = 512 << 20;
/// How often there is space for layers: for all images, the two that are being made, and those in the VM's pool.
const SPACES_FOR_LAYERS: u64 = 4;

/// What a VM is like whose needs are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    /// The guest's memory when it boots, in bytes.
    pub boot_bytes: u64,
    /// What it has addresses for besides, in bytes. Page tables stay when memory goes.
    pub region_bytes: u64,
    /// How many of its processors are emulated.
    pub emulated_processors: u32,
    /// The space for layers, in bytes, and what there may be of them in the host's memory instead of on a disk.
    pub layers_bytes: u64,
    pub in_memory_bytes: u64,
}

impl Needs {
    /// What it may need besides its pods' partitions, in bytes.
    pub(super) fn besides_partitions_bytes(self) -> u64 {
        let tables_bytes = (self.boot_bytes / TABLES_PART)
            .saturating_add(self.region_bytes / TABLES_PART)
            .saturating_add(MAKING_BYTES / TABLES_PART);
        let emulation_bytes = match self.emulated_processors {
            0 => 0,
            count => TRANSLATIONS_BYTES + u64::from(count) * ADDRESSES_BYTES,
        };
        let layers_bytes =
            self.layers_bytes.saturating_mul(SPACES_FOR_LAYERS).min(self.in_memory_bytes);
        self.boot_bytes
            .saturating_add(tables_bytes)
            .saturating_add(PROGRAMS_BYTES + MAKING_BYTES + emulation_bytes)
            .saturating_add(layers_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn whatever_may_be_in_memory_is_counted() {
        let with_kvm = Needs { boot_bytes: 40 * GIB, region_bytes: 80 * GIB, ..Needs::default() };
        let (tables, making) = (3 * GIB, 2 * GIB + 2 * GIB / 40);
        let bytes = with_kvm.besides_partitions_bytes();
        assert_eq!(bytes, 40 * GIB + tables + making + GIB);
        let more = |needs: Needs| needs.besides_partitions_bytes() - bytes;
        let emulated = |emulated_processors| more(Needs { emulated_processors, ..with_kvm });
        // An eighth of the host's memory, up to 1 GiB, is what QEMU takes for translated code by itself.
        assert!(emulated(1) > GIB);
        assert_eq!(emulated(3) - emulated(2), 2 * (64 << 22));
    }

    #[test]
    fn layers_take_what_their_space_or_the_file_system_has() {
        let more = |in_memory_bytes| {
            let needs = Needs { layers_bytes: 16 * GIB, in_memory_bytes, ..Needs::default() };
            needs.besides_partitions_bytes() - Needs::default().besides_partitions_bytes()
        };
        assert_eq!(more(0), 0);
        assert_eq!(more(8 * GIB), 8 * GIB);
        assert_eq!(more(u64::MAX), 64 * GIB);
    }

    #[test]
    fn what_is_beyond_all_numbers_is_the_largest_of_them() {
        let needs = Needs {
            boot_bytes: u64::MAX,
            region_bytes: u64::MAX,
            emulated_processors: u32::MAX,
            layers_bytes: u64::MAX,
            in_memory_bytes: u64::MAX,
        };
        assert_eq!(needs.besides_partitions_bytes(), u64::MAX);
    }
}
