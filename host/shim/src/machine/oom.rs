//! Which VM the host's kernel ends first when the host has no memory left.
//!
//! As kubelet has it for pods of its class Burstable: whoever has more than was promised to him goes first. Without this, a
//! VM would have what its server has of containerd, which is to go last, after all pods of other runtimes.

use rustix::system::sysinfo;
use std::{fs, io};

/// What is promised to a VM for each pod besides the pod's limit, in bytes: the overhead of the RuntimeClass.
const OVERHEAD_BYTES: u64 = 40 << 20;
/// No VM is spared, and those without a promise are not all the same.
const RANGE: (u64, u64) = (3, 999);

/// Has a VM's process judged by what is promised to its pods, in bytes each.
///
/// # Errors
/// It has ended.
pub(super) fn judge(process: u32, pods_bytes: impl Iterator<Item = u64>) -> io::Result<()> {
    let host = sysinfo();
    let host_bytes = host.totalram as u64 * u64::from(host.mem_unit);
    let promised_bytes = pods_bytes.map(|bytes| bytes.saturating_add(OVERHEAD_BYTES)).sum();
    fs::write(
        format!("/proc/{process}/oom_score_adj"),
        adjustment(promised_bytes, host_bytes).to_string(),
    )
}

/// What the kernel adds to the thousandths of the host's memory that a process has, so that whoever has more than was
/// promised to him has more than 1000.
fn adjustment(promised_bytes: u64, host_bytes: u64) -> u64 {
    let promised = promised_bytes.saturating_mul(1000) / host_bytes.max(1);
    1000_u64.saturating_sub(promised).clamp(RANGE.0, RANGE.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_promised_more_goes_later_and_nobody_is_spared() {
        for (promised_mib, adjusted) in
            [(0, 999), (168, 990), (8192, 500), (16384, 3), (1 << 30, 3)]
        {
            assert_eq!(adjustment(promised_mib << 20, 16 << 30), adjusted, "{promised_mib} MiB");
        }
        assert_eq!(adjustment(1, 0), 3);
    }

    #[test]
    fn a_process_that_has_ended_is_an_error() {
        assert!(judge(u32::MAX, std::iter::empty()).is_err());
    }
}
