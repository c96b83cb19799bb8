//! Boots VMs and runs the kernel's selftests (`../programs`) in them.
//!
//! A [`Suite`] is one boot: a kernel, a layout, boot parameters and the programs to run. The guest
//! writes TAP to one virtio-serial port; over another it asks the host to resize its memory. A test
//! that fails in the guest, a guest that stops, and a kernel that complains on its console are
//! failures of the test that ran the suite.

mod complaints;
mod dead_host;
mod host;
mod monitor;
mod stray;
mod suite;
mod tap;

pub use complaints::complaints;
pub use monitor::{BELIEVED_PROCESSOR, Monitor};
pub use stray::lose_count;
pub use suite::{PLUGS, Report, Suite, base_bytes, partitions};
pub use tap::{Outcome, Verdict};

/// Bytes of a MiB.
pub const MIB: u64 = 1 << 20;
