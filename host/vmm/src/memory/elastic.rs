//! What can grow and shrink.

use crate::{AgentClient, BoxFuture, Result, backend::DeviceRequests};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Says the bytes that are wanted, at the moment when they are asked for. Of several resizes at a time
/// each then asks for what all of them have come to, and whoever asks last asks for the right size.
pub type Target<'a> = &'a (dyn Fn() -> u64 + Send + Sync);

/// A part of a running VM's memory that is resized by itself. Sizes are of this part alone, in bytes.
///
/// It says nothing of how: a part of `guest_driven/` tells the guest its size and
/// waits until the guest has followed. One that the host resizes by itself, such as a monitor that
/// shares the guest's allocator, implements the same with an account of its own (`docs/vmm.md`).
pub trait Elastic: Send + Sync {
    /// Bytes that it can have at most.
    fn max_bytes(&self) -> u64;

    /// Bytes that it is to have when the VM is ready.
    fn start_bytes(&self) -> u64;

    /// Bytes that were asked for last.
    fn requested_bytes(&self) -> u64;

    /// Bytes that the guest has of it.
    fn size(&self) -> BoxFuture<'_, Result<u64>>;

    /// Asks for a size, without waiting for it.
    fn request<'a>(&'a self, target: Target<'a>) -> BoxFuture<'a, Result<()>>;

    /// Asks for a size, and returns when it is there. After `limit` it is an error
    /// ([`VmError::Resize`](crate::VmError::Resize)) with the reason, for which `agent` may be asked;
    /// the request stands. A later one overrides it, and ends it too.
    fn resize<'a>(
        &'a self,
        target: Target<'a>,
        limit: Duration,
        agent: Option<&'a AgentClient>,
    ) -> BoxFuture<'a, Result<Resize>>;
}

/// A resize that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    /// Bytes the guest had before.
    pub before_bytes: u64,
    /// Bytes it was asked to have.
    pub requested_bytes: u64,
    /// Bytes it has now: those that were asked for, or what a later request made of them.
    pub plugged_bytes: u64,
    /// From the request until it had that size.
    pub latency: Duration,
    /// How many times its size was looked at for it.
    pub polls: u32,
    /// What the guest asked the device for it, if that is counted.
    pub device: Option<DeviceRequests>,
}
