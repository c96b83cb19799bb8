//! The agent: init of the VM and server of the host's calls, and what it shares with `squeezyctl`.
//!
//! One thread does everything. Calls of the host are HTTP/2 streams over a virtio-serial port
//! ([`port`], [`server`]); an instance is a fresh process that the agent starts from its own
//! executable ([`instance`]), which builds its sandbox, waits for its partition and becomes the
//! instance's command ([`sandbox`]).

pub mod abi;
pub mod body;
pub mod cgroup;
pub mod clock;
pub mod error;
pub mod init;
pub mod instance;
pub mod memory;
pub mod port;
pub mod profile;
pub mod proxy;
pub mod sandbox;
pub mod server;
pub mod squeeze;
pub mod sysctl;
pub mod sysfs;

/// Version of the agent, as the host sees it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Prints one line on the guest's console; the host keeps the console's output for diagnosis.
#[macro_export]
macro_rules! console {
    ($($arg:tt)*) => { eprintln!("squeezy-agent: {}", format_args!($($arg)*)) };
}
