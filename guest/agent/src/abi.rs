//! The kernel's interface (`docs/abi.md`): `prctl(PR_SQUEEZY, ...)`.
//!
//! The numbers are those of `guest/kernel/src/include/uapi/linux/squeezy.h`; a test reads that
//! header and compares.

use rustix::io::Errno;
use squeezy_protocol::PartitionNumber;

/// First argument of prctl(2).
pub const PR_SQUEEZY: i32 = 0x5351_5a59;
/// Attach the caller's next execve to a partition.
pub const PR_SQUEEZY_ASSIGN: i32 = 1;
/// Drop an attachment that no execve has used.
pub const PR_SQUEEZY_CANCEL: i32 = 2;
/// Get the partition a process runs in.
pub const PR_SQUEEZY_GET: i32 = 3;
/// Attach the caller's next execve to the partition a process runs in, beside it.
pub const PR_SQUEEZY_JOIN: i32 = 4;
/// Any partition.
pub const PR_SQUEEZY_ANY: i32 = -1;

/// How long to wait for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// At most this many milliseconds; 0 fails at once if none is free.
    Millis(u32),
    /// Until one is free or a signal arrives.
    Forever,
}

/// Why the caller was not attached to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// `ENODEV`, or `EINVAL` from a kernel that does not know the call.
    #[error(
        "this kernel has no partitions: boot the Squeezy kernel with squeezy.partition_size= and \
         squeezy.partitions= on its command line"
    )]
    NoPartitions,
    /// `EPERM`.
    #[error("attaching to a partition needs CAP_SYS_RESOURCE: run as root")]
    NotPermitted,
    /// `EINVAL`.
    #[error("there is no partition with that number")]
    OutOfRange,
    /// `EBUSY`.
    #[error("this process already runs in a partition")]
    AlreadyAssigned,
    /// `EAGAIN` or `ETIMEDOUT`.
    #[error("no partition became free in time: plug one more, or wait longer")]
    NoneFree,
    /// `EINTR`.
    #[error("interrupted while waiting for a partition")]
    Interrupted,
    /// An error that `docs/abi.md` does not list.
    #[error("prctl(PR_SQUEEZY_ASSIGN): {0}")]
    Unexpected(Errno),
}

/// Attaches the calling process to `partition` (`None` for any) from its next execve on.
pub fn assign(
    partition: Option<PartitionNumber>,
    wait: Wait,
) -> Result<PartitionNumber, AssignError> {
    let number = partition.map_or(PR_SQUEEZY_ANY as usize, |number| usize::from(number.0));
    let millis = match wait {
        Wait::Millis(millis) => millis as usize,
        Wait::Forever => usize::MAX,
    };
    squeezy_prctl(PR_SQUEEZY_ASSIGN, number, millis).map_err(|errno| match errno {
        Errno::NODEV => AssignError::NoPartitions,
        Errno::INVAL if !crate::sysfs::present() => AssignError::NoPartitions,
        Errno::PERM => AssignError::NotPermitted,
        Errno::INVAL => AssignError::OutOfRange,
        Errno::BUSY => AssignError::AlreadyAssigned,
        Errno::AGAIN | Errno::TIMEDOUT => AssignError::NoneFree,
        Errno::INTR => AssignError::Interrupted,
        other => AssignError::Unexpected(other),
    })
}

/// Attaches the calling process to the partition that process `pid` runs in, beside it, from its next execve on.
pub fn join(pid: u32) -> Result<PartitionNumber, Errno> {
    squeezy_prctl(PR_SQUEEZY_JOIN, pid as usize, 0)
}

/// Drops the attachment that [`assign`] made and no execve has used.
pub fn cancel() -> Result<(), Errno> {
    squeezy_prctl(PR_SQUEEZY_CANCEL, 0, 0).map(drop)
}

/// The partition that process `pid` runs in (0 is the caller); `ENODATA` if it runs in none.
pub fn partition_of(pid: u32) -> Result<PartitionNumber, Errno> {
    squeezy_prctl(PR_SQUEEZY_GET, pid as usize, 0)
}

fn squeezy_prctl(operation: i32, a: usize, b: usize) -> Result<PartitionNumber, Errno> {
    // SAFETY: PR_SQUEEZY takes only numbers, so no memory of ours is read or written; a kernel that does not
    // know it returns EINVAL.
    let result = unsafe {
        libc::syscall(libc::SYS_prctl, PR_SQUEEZY as usize, operation as usize, a, b, 0usize)
    };
    if result < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(errno));
    }
    u16::try_from(result).map(PartitionNumber).map_err(|_| Errno::RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of `#define NAME VALUE` in a C header.
    fn defined(header: &str, name: &str) -> Option<i64> {
        let value = header.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some("#define") && words.next() == Some(name))
                .then(|| words.next().unwrap_or_default().trim_matches(['(', ')']).to_owned())
        })?;
        match value.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).ok(),
            None => value.parse().ok(),
        }
    }

    #[test]
    fn constants_are_those_of_the_kernel_header() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../kernel/src/include/uapi/linux/squeezy.h");
        let header = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
        for (name, ours) in [
            ("PR_SQUEEZY", PR_SQUEEZY),
            ("PR_SQUEEZY_ASSIGN", PR_SQUEEZY_ASSIGN),
            ("PR_SQUEEZY_CANCEL", PR_SQUEEZY_CANCEL),
            ("PR_SQUEEZY_GET", PR_SQUEEZY_GET),
            ("PR_SQUEEZY_JOIN", PR_SQUEEZY_JOIN),
            ("PR_SQUEEZY_ANY", PR_SQUEEZY_ANY),
        ] {
            assert_eq!(defined(&header, name), Some(i64::from(ours)), "{name}");
        }
    }

    #[test]
    fn a_kernel_without_partitions_says_so() {
        if crate::sysfs::present() {
            return; // The machine that runs the tests has partitions itself.
        }
        assert_eq!(assign(None, Wait::Millis(0)), Err(AssignError::NoPartitions));
        assert_eq!(cancel(), Err(Errno::INVAL));
        assert_eq!(partition_of(0), Err(Errno::INVAL));
        assert_eq!(join(1), Err(Errno::INVAL));
    }
}
