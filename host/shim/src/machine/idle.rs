//! What is frozen of a pod that has nothing to do: its containers, but for those that containerd has paused.

use super::{Booted, pod::Pod, process};
use crate::{error::Result, freezer::Freezable, network::Traffic};
use futures_util::future::{BoxFuture, join_all};
use squeezy_protocol::{ErrorCode, InstanceId};
use squeezy_vmm::VmError;
use std::{io, sync::Arc, time::Duration};

/// A pod that is frozen when it has nothing to do.
pub(super) struct Idle {
    pub(super) booted: Arc<Booted>,
    pub(super) pod: Pod,
    pub(super) traffic: Traffic,
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
            for id in frozen.iter() {
                if wanted() {
                    return Ok(());
                }
                unless_ended(agent.freeze(id).await)?;
            }
            // All of it stands still before that, which takes longer.
            for id in frozen.iter() {
                if wanted() {
                    return Ok(());
                }
                let bytes = unless_ended(process::squeeze(agent, id).await)?.unwrap_or(0);
                tracing::debug!(
                    "instance {id} has nothing to do: {bytes} bytes of it are the host's"
                );
            }
            Ok(())
        })
    }

    fn thaw<'a>(&'a self, frozen: &'a Vec<InstanceId>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let agent = self.booted.vm.agent()?;
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

/// Nothing if the instance has just ended.
fn unless_ended<T>(result: Result<T, VmError>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(VmError::Agent { code: ErrorCode::NotFound | ErrorCode::Unavailable, .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
