//! Dooming an instance: it is frozen and can only be killed, so the host may discard its memory.

use super::Entry;
use crate::{error::ApiError, sysfs};
use squeezy_protocol::{ErrorCode, Instance, PartitionNumber};
use std::{io, rc::Rc};

impl Entry {
    /// Makes it such that it can only be killed, unless it is spared first. It must be frozen, and nobody else may
    /// have to do with its memory: the kernel's log says who has. Once begun, this continues even if the caller gives
    /// up.
    pub async fn doom(self: &Rc<Self>) -> Result<Instance, ApiError> {
        let entry = Rc::clone(self);
        // A request has to know whether the kernel was told, so nobody may leave between telling it and saying so.
        let told = tokio::task::spawn_local(async move { entry.tell_doom().await });
        told.await.unwrap_or_else(|_| Err(ApiError::internal("dooming", "its task is gone")))
    }

    async fn tell_doom(&self) -> Result<Instance, ApiError> {
        let mut doomed = self.doomed.lock().await;
        if !self.frozen.get() || self.requests.get() > 0 || !self.is_alive() {
            return Err(self.refuse("it is not frozen"));
        }
        let partition = self.own_partition()?;
        if let Err(error) = write(partition, true).await {
            return Err(match error.kind() {
                io::ErrorKind::ResourceBusy => self.refuse("others have to do with its memory"),
                _ => ApiError::internal(&format!("dooming instance {}", self.id), error),
            });
        }
        *doomed = true;
        Ok(self.description())
    }

    /// Undoes [`Entry::doom`], or kills it, if the host has discarded its memory.
    pub(super) async fn spare(&self) -> Result<(), ApiError> {
        let mut doomed = self.doomed.lock().await;
        if *doomed && self.is_alive() {
            if let Err(error) = write(self.own_partition()?, false).await {
                self.kill()?;
                return Err(self.refuse(&format!("it is doomed: {error}")));
            }
            *doomed = false;
        }
        Ok(())
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
