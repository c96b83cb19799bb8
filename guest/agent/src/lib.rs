//! The agent, which is init of the VM and serves the host's calls, and the code that it shares with
//! `squeezyctl`.
//!
//! The agent has one thread. The host's calls are HTTP/2 streams over a virtio-serial port ([`port`],
//! [`server`]). An instance is a fresh process that the agent starts from its own executable ([`instance`]);
//! it builds its sandbox, waits for its partition and executes the instance's command ([`sandbox`]).

pub mod abi;
pub mod body;
pub mod cgroup;
pub mod clock;
mod detached;
pub mod error;
pub mod file_system;
pub mod init;
pub mod instance;
pub mod layers;
pub mod memory;
pub mod network;
pub mod networks;
pub mod page_cache;
pub mod port;
mod processes;
pub mod profile;
pub mod proxy;
pub mod sandbox;
pub mod server;
mod sizes;
pub mod squeeze;
pub mod sysctl;
pub mod sysfs;
pub mod volumes;

/// The agent's version, as reported to the host.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Prints a line on the guest's console, whose output the host keeps for diagnosis.
#[macro_export]
macro_rules! console {
    ($($arg:tt)*) => { eprintln!("squeezy-agent: {}", format_args!($($arg)*)) };
}
