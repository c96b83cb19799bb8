//! Why VMs end.

use squeezy_vmm::VmError;
use std::fmt;

/// Why a VM could not be booted, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VmEnd {
    /// It was no longer needed.
    Unneeded,
    /// It could not take any more instances.
    Replaced,
    /// It held more memory than it may while it was paused, and more than there was.
    Overdrawn,
    /// It failed.
    Failed(VmError),
}

impl fmt::Display for VmEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unneeded => f.write_str("it is no longer needed"),
            Self::Replaced => f.write_str("it had to be replaced"),
            Self::Overdrawn => f.write_str(
                "it held more memory than it may while it was paused, and more than there was",
            ),
            Self::Failed(error) => error.fmt(f),
        }
    }
}
