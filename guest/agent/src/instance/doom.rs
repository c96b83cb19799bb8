//! Dooming an instance: it is frozen and can only be killed, so the host may discard its memory.

use super::Entry;
use crate::{error::ApiError, sysfs};
use squeezy_protocol::{ErrorCode, Instance, PartitionNumber};
use std::io;

impl Entry {
    /// Makes it such that it can only be killed. It must be frozen, and nobody else may have to do with its memory:
    /// the kernel's log says who has.
    pub async fn doom(&self) -> Result<Instance, ApiError> {
        if !self.frozen.get() || !self.is_alive() {
            return Err(self.refuse("it is not frozen"));
        }
        let partition = self.own_partition()?;
        // A request that comes in the meantime must not thaw it.
        self.doomed.set(true);
        if let Err(error) = write(partition, true).await {
            self.doomed.set(false);
            return Err(match error.kind() {
                io::ErrorKind::ResourceBusy => self.refuse("others have to do with its memory"),
                _ => ApiError::internal(&format!("dooming instance {}", self.id), error),
            });
        }
        Ok(self.description())
    }

    /// Undoes [`Entry::doom`]. Not possible once the host has discarded its memory.
    pub async fn undoom(&self) -> Result<Instance, ApiError> {
        if self.doomed.get() && self.is_alive() {
            write(self.own_partition()?, false)
                .await
                .map_err(|e| ApiError::internal(&format!("sparing instance {}", self.id), e))?;
            self.doomed.set(false);
        }
        Ok(self.description())
    }

    fn own_partition(&self) -> Result<PartitionNumber, ApiError> {
        self.start.get().partition.ok_or_else(|| self.refuse("it has no partition of its own"))
    }

    fn refuse(&self, why: &str) -> ApiError {
        ApiError::new(ErrorCode::Unavailable, format!("{}: {why}", self.id))
    }
}

/// The kernel looks at all memory of the partition, which takes milliseconds.
async fn write(partition: PartitionNumber, doomed: bool) -> io::Result<()> {
    tokio::task::spawn_blocking(move || sysfs::set_doomed(partition, doomed))
        .await
        .map_err(io::Error::other)?
}
