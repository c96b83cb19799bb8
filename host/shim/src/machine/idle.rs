//! What is frozen of a pod that has nothing to do: its containers, but for those that containerd has paused.

use super::{Booted, free::take_free, pod::Pod, process};
use crate::{error::Result, freezer::Freezable, network::Traffic, requests::MemoryRequest};
use futures_util::future::{BoxFuture, join_all};
use squeezy_protocol::{InstanceId, PartitionNumber};
use squeezy_vmm::{Grain, VmError};
use std::{io, sync::Arc, time::Duration};
use tokio::time::sleep;

/// How often to look whether a pod is wanted that is being frozen.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A pod that is frozen when it has nothing to do.
pub(super) struct Idle {
    pub(super) booted: Arc<Booted>,
    pub(super) pod: Pod,
    pub(super) traffic: Traffic,
    /// What it requests in its cluster, if that is what it occupies while it is frozen.
    pub(super) request: Option<Arc<MemoryRequest>>,
}

impl Idle {
    /// What these of its containers, which are frozen and in this partition, occupy of the host, in bytes.
    async fn occupied_bytes(
        &self,
        frozen: &[InstanceId],
        partition: Option<PartitionNumber>,
    ) -> Result<u64> {
        let agent = self.booted.vm.agent()?;
        let mut outside_bytes = 0u64;
        for id in frozen {
            let usage = unless_ended(agent.usage(id).await)?;
            outside_bytes =
                outside_bytes.saturating_add(usage.map_or(0, |usage| usage.memory_bytes));
        }
        let inside_bytes = match partition {
            Some(number) => self.booted.vm.partition_occupied(number).await?,
            None => 0,
        };
        Ok(inside_bytes.saturating_add(outside_bytes))
    }
}

impl Freezable for Idle {
    type Frozen = Vec<InstanceId>;

    fn freeze<'a>(
        &'a self,
        frozen: &'a mut Vec<InstanceId>,
        wanted: &'a (dyn Fn() -> bool + Sync),
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let agent = self.booted.vm.agent()?;
            // Whatever comes of it: an answer may get lost.
            *frozen = self.pod.unpaused().await;
            let partition = self.pod.partition();
            for id in frozen.iter() {
                if wanted() {
                    return Ok(());
                }
                unless_ended(agent.freeze(id).await)?;
            }
            // All of it stands still before that, which takes longer.
            let mut bytes = 0u64;
            for id in frozen.iter() {
                if wanted() {
                    return Ok(());
                }
                let reported_bytes = unless_ended(process::squeeze(agent, id).await)?;
                bytes = bytes.saturating_add(reported_bytes.unwrap_or(0));
            }
            // A pod of which nothing runs begins to run without being thawed.
            if frozen.is_empty() {
                return Ok(());
            }
            bytes = tokio::select! {
                taken_bytes = take_free(&self.booted.vm, partition, Grain::Page) => {
                    bytes.saturating_add(taken_bytes)
                }
                () = until(wanted) => return Ok(()),
            };
            tracing::debug!("a pod has nothing to do: {bytes} bytes of it are the host's");
            let Some(request) = &self.request else { return Ok(()) };
            match self.occupied_bytes(frozen, partition).await {
                Ok(bytes) => tokio::select! {
                    () = request.fall(bytes) => {}
                    () = until(wanted) => {}
                },
                Err(error) => tracing::warn!("what a frozen pod occupies is not known: {error}"),
            }
            Ok(())
        })
    }

    fn thaw<'a>(&'a self, frozen: &'a Vec<InstanceId>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let agent = self.booted.vm.agent()?;
            // Others may have been given what it does without.
            if let Some(request) = &self.request {
                request.rise().await?;
            }
            // All of them, whichever fails.
            let thawed = join_all(frozen.iter().map(|id| agent.thaw(id))).await;
            thawed.into_iter().try_for_each(|thawed| unless_ended(thawed).map(drop))
        })
    }

    fn take_traffic(&self) -> io::Result<bool> {
        self.traffic.take()
    }

    fn traffic(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(self.traffic.seen())
    }

    fn busy(&self) -> BoxFuture<'_, Result<Duration>> {
        Box::pin(async move {
            let agent = self.booted.vm.agent()?;
            let mut busy = Duration::ZERO;
            for id in self.pod.unpaused().await {
                busy =
                    busy.saturating_add(unless_ended(agent.busy(&id).await)?.unwrap_or_default());
            }
            Ok(busy)
        })
    }
}

/// Waits until this is so.
async fn until(is_so: &(dyn Fn() -> bool + Sync)) {
    while !is_so() {
        sleep(LOOK_INTERVAL).await;
    }
}

/// Nothing if the instance has just ended.
fn unless_ended<T>(result: Result<T, VmError>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if process::is_gone(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
