//! What a VM may need of the host's memory, for the bound on it.
//!
//! More than any VM takes that works: the bound is for one that takes without end, and must not end another one. All of
//! it is charged to the control group that QEMU and the server are in: the guest's memory is QEMU's own, which touches
//! it.

/// QEMU but for what follows, the server and the processes that stand for pods, and what makes images of layers, which
/// has something in memory for each of their files, in bytes.
const PROGRAMS_BYTES: u64 = 1 << 30;
/// Page tables of the guest's memory, as a divisor: twice a 512th for those of QEMU and a 512th for the processors'.
const TABLES_PART: u64 = 128;
/// What QEMU has of translated code where it emulates processors, in bytes: 1 GiB at most, and an index of that.
const TRANSLATIONS_BYTES: u64 = 3 << 29;
/// What it has of translated addresses for each of them, in bytes: 2^22 of 64 bytes, of the kernel and of programs.
const ADDRESSES_BYTES: u64 = 512 << 20;
/// How often there is space for layers: for all images, the two that are being made, and those in the VM's pool.
const SPACES_FOR_LAYERS: u64 = 4;

/// What there may be on the host for so much memory of the guest, in bytes.
pub(super) fn with_tables(guest_bytes: u64) -> u64 {
    guest_bytes.saturating_add(guest_bytes / TABLES_PART)
}

/// What a VM may need besides its pods' partitions, in bytes, if it boots with so much, has so many processors that are
/// emulated, and space for so much of layers that is not on a disk.
pub(super) fn besides_partitions(
    boot_bytes: u64,
    emulated_processors: u32,
    layers_bytes: u64,
) -> u64 {
    let emulation_bytes = match emulated_processors {
        0 => 0,
        count => TRANSLATIONS_BYTES + u64::from(count) * ADDRESSES_BYTES,
    };
    with_tables(boot_bytes)
        .saturating_add(PROGRAMS_BYTES + emulation_bytes)
        .saturating_add(layers_bytes.saturating_mul(SPACES_FOR_LAYERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn whatever_may_be_in_memory_is_counted() {
        let with_kvm = besides_partitions(GIB, 0, 0);
        assert_eq!(with_kvm, 2 * GIB + GIB / 128);
        // An eighth of the host's memory, up to 1 GiB, is what QEMU takes for translated code by itself.
        assert!(besides_partitions(GIB, 1, 0) - with_kvm > GIB);
        let one_more = besides_partitions(GIB, 3, 0) - besides_partitions(GIB, 2, 0);
        assert_eq!(one_more, 2 * (64 << 22));
        assert_eq!(besides_partitions(GIB, 0, 16 * GIB) - with_kvm, 64 * GIB);
        assert_eq!(besides_partitions(u64::MAX, u32::MAX, u64::MAX), u64::MAX);
    }
}
