//! Why VMs end.

use squeezy_vmm::VmError;
use std::fmt;

/// Why a VM could not be booted, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VmEnd {
    /// Nobody needed it.
    Unneeded,
    /// It could not be given instances any more.
    Replaced,
    /// It failed.
    Failed(VmError),
}

impl fmt::Display for VmEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unneeded => f.write_str("it is not needed"),
            Self::Replaced => f.write_str("it was to be replaced"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}
