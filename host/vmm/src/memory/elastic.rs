//! Resizable parts of memory.

use crate::{AgentClient, BoxFuture, Result, backend::DeviceRequests};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Computes the desired size in bytes at the moment of the request. So when resizes overlap, each
/// requests what all of them add up to, and whichever is last requests the right size.
pub type Target<'a> = &'a (dyn Fn() -> u64 + Send + Sync);

/// A part of a running VM's memory that is resized independently. Sizes are of this part alone, in
/// bytes.
///
/// How is up to the implementation: those in `guest_driven/` tell the guest its size and wait until
/// the guest has followed. In `hyperalloc.rs` the host does it by itself, with its own accounting.
pub trait Elastic: Send + Sync {
    /// The maximum size.
    fn max_bytes(&self) -> u64;

    /// The size it should have when the VM is ready.
    fn start_bytes(&self) -> u64;

    /// The size that was requested last, with what is lent on top of it.
    fn requested_bytes(&self) -> u64;

    /// The size it has now.
    fn size(&self) -> BoxFuture<'_, Result<u64>>;

    /// Requests a size without waiting for it.
    fn request<'a>(&'a self, target: Target<'a>) -> BoxFuture<'a, Result<()>>;

    /// Waits until the guest asks for memory that the host keeps of this part; returns how many bytes.
    fn starved(&self) -> BoxFuture<'_, u64> {
        Box::pin(std::future::pending())
    }

    /// Gives a guest that lacks memory some of what it has asked for, at most this many bytes, on top of what is
    /// requested, now and later; returns how many.
    fn lend(&self, most_bytes: u64) -> BoxFuture<'_, Result<u64>> {
        let _ = most_bytes;
        Box::pin(async { Ok(0) })
    }

    /// Requests a size, and returns once it is reached. After `limit` it fails with
    /// [`VmError::Resize`](crate::VmError::Resize) and the reason, for which `agent` may be asked;
    /// the request stands. A later request overrides this one, and ends its wait too.
    fn resize<'a>(
        &'a self,
        target: Target<'a>,
        limit: Duration,
        agent: Option<&'a AgentClient>,
    ) -> BoxFuture<'a, Result<Resize>>;
}

/// A completed resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    /// Size before, in bytes, or what was requested before if that had been reached.
    pub before_bytes: u64,
    /// Size that was requested, in bytes.
    pub requested_bytes: u64,
    /// Size after, in bytes: as requested, or as a later request changed it.
    pub plugged_bytes: u64,
    /// Time from the call until the request: the device may have to be asked for its size before.
    #[serde(default)]
    pub lead: Duration,
    /// Time from the request until the size was reached.
    pub latency: Duration,
    /// The part of that in which the host's kernel gave memory back, where the host does so by itself.
    #[serde(default)]
    pub discarding: Option<Duration>,
    /// How many times the size was polled.
    pub polls: u32,
    /// Requests that the guest made to the device, if they are counted.
    pub device: Option<DeviceRequests>,
}
