//! A guest that lacks memory while the host keeps some of it.

use super::{Vm, memory::check_host_memory};
use crate::Result;

impl Vm {
    /// Waits until the guest asks for memory that the host keeps ([`memory::HyperAlloc`](crate::memory::HyperAlloc)),
    /// because otherwise it kills somebody; returns how many bytes it asks for. It is the guest's word, but never more
    /// than the host keeps. [`Vm::lend`] is the answer; without one it kills after a quarter of a second.
    ///
    /// However often a guest asks, this returns 20 times a second at most.
    pub async fn starved(&self) -> u64 {
        match self.shared.elastic.first() {
            Some(part) => part.starved().await,
            None => std::future::pending().await,
        }
    }

    /// Gives back what the guest has just asked for ([`Vm::starved`]), at most this many bytes; returns how many. The
    /// guest has them on top of whatever size is requested, until the VM ends.
    pub async fn lend(&self, most_bytes: u64) -> Result<u64> {
        let work = async {
            check_host_memory(most_bytes)?;
            let Some(part) = self.shared.elastic.first() else { return Ok(0) };
            part.lend(most_bytes).await
        };
        let bytes = self.shared.fate.guard(work).await?;
        tracing::info!(vm = self.config().name, bytes, "lent to a guest that lacks memory");
        Ok(bytes)
    }
}
