//! Dooming an instance: it is frozen and can only be killed, so the host may discard its memory.

use super::{Entry, to_the_end::to_the_end};
use crate::{error::ApiError, sysfs};
use squeezy_protocol::{ErrorCode, Instance, PartitionNumber};
use std::{io, rc::Rc};

impl Entry {
    /// Makes it such that it can only be killed, unless it is spared first. It must be frozen, and nobody else may
    /// have to do with its memory: the kernel's log says who has. Once begun, this continues even if the caller gives
    /// up.
    pub async fn doom(self: &Rc<Self>) -> Result<Instance, ApiError> {
        let entry = Rc::clone(self);
        to_the_end("dooming", async move { entry.tell_doom().await }).await
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

    /// Undoes [`Entry::doom`], or kills it, if the host has discarded its memory. Once begun, this continues even if the
    /// caller gives up.
    pub(super) async fn spare(self: &Rc<Self>) -> Result<(), ApiError> {
        let entry = Rc::clone(self);
        to_the_end("sparing", async move { entry.tell_spare().await }).await
    }

    async fn tell_spare(&self) -> Result<(), ApiError> {
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

#[cfg(test)]
mod tests {
    use super::super::Start;
    use super::*;
    use squeezy_protocol::InstanceSpec;
    use std::{
        pin::pin,
        sync::mpsc,
        task::{Context, Waker},
    };
    use tokio::{runtime, task::LocalSet};

    fn doomed() -> Rc<Entry> {
        let spec = InstanceSpec::new("a".parse().unwrap(), vec!["a".to_owned()]);
        let entry = Entry::new(&spec, 0, None, None, &Rc::default());
        entry.start.set(Start { partition: Some(PartitionNumber(0)), ..Start::default() });
        entry.frozen.set(true);
        *entry.doomed.try_lock().unwrap() = true;
        Rc::new(entry)
    }

    /// Otherwise the kernel would hear of it after it was told to doom the instance again.
    #[test]
    fn nobody_else_tells_the_kernel_while_it_is_told_to_spare_for_who_has_given_up() {
        let mut builder = runtime::Builder::new_current_thread();
        let runtime = builder.max_blocking_threads(1).build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            // The kernel takes its time.
            let (go_on, waits) = mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || waits.recv());
            let entry = doomed();
            {
                let mut request = pin!(entry.spare());
                for _ in 0..3 {
                    let mut context = Context::from_waker(Waker::noop());
                    assert!(request.as_mut().poll(&mut context).is_pending());
                    tokio::task::yield_now().await;
                }
            }
            assert!(entry.doomed.try_lock().is_err(), "somebody else may tell the kernel");
            go_on.send(()).unwrap();
            busy.await.unwrap().unwrap();
            drop(entry.doomed.lock().await);
        });
    }
}
