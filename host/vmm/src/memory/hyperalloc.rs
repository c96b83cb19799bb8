//! Ordinary memory, of which the host keeps what is not in use (HyperAlloc, EuroSys'25).

use super::{Elastic, GuestMemory, Layout, Resize, Running, Target};
use crate::{AgentClient, BoxFuture, Result, VmError, hyperalloc::Reclaimer};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tokio::sync::Mutex;

/// The pause before the host looks again for memory that the guest could not spare.
const PAUSE: Duration = Duration::from_millis(5);

/// How often the host looks whether the guest asks for memory. It waits for a quarter of a second, and somebody has to
/// decide.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The guest boots with all of it. The host takes it at start, and gives it back as memory is requested. It needs
/// [`Llfree::All`](crate::Llfree::All).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HyperAlloc {
    /// Bytes besides the base.
    pub extra_bytes: u64,
}

impl GuestMemory for HyperAlloc {
    fn check(&self, _: u32) -> Result<()> {
        Ok(())
    }

    fn layout(&self, base_bytes: u64) -> Layout {
        let boot_bytes = base_bytes.saturating_add(self.extra_bytes);
        Layout { boot_bytes, ..Layout::ram(base_bytes) }
    }

    fn start(&self, vm: &Running) -> Vec<Box<dyn Elastic>> {
        vec![Box::new(HostDriven {
            reclaimer: vm.reclaimer.clone(),
            extra_bytes: self.extra_bytes,
            requested: self.extra_bytes.into(),
            lent: 0.into(),
            order: Mutex::default(),
        })]
    }
}

/// A part of memory that the host resizes by itself.
struct HostDriven {
    /// There once the guest has said where its allocator's state is.
    reclaimer: Arc<OnceLock<Arc<Reclaimer>>>,
    extra_bytes: u64,
    /// What was requested last. A later request ends an earlier one's wait.
    requested: AtomicU64,
    /// What it has on top of that.
    lent: AtomicU64,
    /// Held while the size changes.
    order: Mutex<()>,
}

impl HostDriven {
    fn reclaimer(&self) -> Result<&Arc<Reclaimer>> {
        self.reclaimer.get().ok_or_else(|| {
            VmError::AllocatorState("the VM was started without `llfree=all`".to_owned())
        })
    }

    fn size_now(&self) -> Result<u64> {
        Ok(self.extra_bytes.saturating_sub(self.reclaimer()?.held_bytes()))
    }

    /// What the guest should have, if `requested_bytes` are requested.
    fn with_lent(&self, requested_bytes: u64) -> u64 {
        requested_bytes.saturating_add(self.lent.load(SeqCst)).min(self.extra_bytes)
    }

    /// Comes as near to what is requested as the guest lets it. Returns how long the work itself took.
    async fn follow(&self) -> Result<Duration> {
        let _order = self.order.lock().await;
        let reclaimer = self.reclaimer()?.clone();
        let bytes = self.extra_bytes - self.with_lent(self.requested.load(SeqCst));
        let work = move || {
            let begin = Instant::now();
            reclaimer.hold(bytes).map(|()| begin.elapsed())
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| VmError::system("a thread has failed", error))?
    }

    async fn resize_to(&self, target: Target<'_>, limit: Duration) -> Result<Resize> {
        let before_bytes = self.size_now()?;
        let requested_bytes = target();
        self.requested.store(requested_bytes, SeqCst);
        let begin = Instant::now();
        let mut latency = Duration::ZERO;
        let mut polls = 0;
        loop {
            latency += self.follow().await?;
            let plugged_bytes = self.size_now()?;
            let resize = Resize {
                before_bytes,
                requested_bytes,
                plugged_bytes,
                latency,
                polls,
                device: None,
            };
            let missing = plugged_bytes.saturating_sub(self.with_lent(requested_bytes));
            // The rest would be less than an area.
            if missing < 2 << 20 || self.requested.load(SeqCst) != requested_bytes {
                return Ok(resize);
            }
            if begin.elapsed() >= limit {
                return Err(VmError::Resize {
                    requested: requested_bytes,
                    plugged: plugged_bytes,
                    after: begin.elapsed(),
                    reason: "the guest has no more areas of 2 MiB that are free and that it does not need"
                        .to_owned(),
                });
            }
            tokio::time::sleep(PAUSE).await;
            latency += PAUSE;
            polls += 1;
        }
    }
}

impl Elastic for HostDriven {
    fn max_bytes(&self) -> u64 {
        self.extra_bytes
    }

    fn start_bytes(&self) -> u64 {
        0
    }

    fn requested_bytes(&self) -> u64 {
        self.with_lent(self.requested.load(SeqCst))
    }

    fn size(&self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async { self.size_now() })
    }

    fn request<'a>(&'a self, target: Target<'a>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.requested.store(target(), SeqCst);
            self.follow().await.map(drop)
        })
    }

    fn starved(&self) -> BoxFuture<'_, u64> {
        Box::pin(async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let bytes = self.reclaimer.get().map_or(0, |reclaimer| reclaimer.asked_bytes());
                if bytes > 0 {
                    return bytes;
                }
            }
        })
    }

    fn lend(&self, most_bytes: u64) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let _order = self.order.lock().await;
            let reclaimer = self.reclaimer()?.clone();
            let given = tokio::task::spawn_blocking(move || reclaimer.give_asked(most_bytes));
            let bytes =
                given.await.map_err(|error| VmError::system("a thread has failed", error))?;
            self.lent.fetch_add(bytes, SeqCst);
            Ok(bytes)
        })
    }

    fn resize<'a>(
        &'a self,
        target: Target<'a>,
        limit: Duration,
        _: Option<&'a AgentClient>,
    ) -> BoxFuture<'a, Result<Resize>> {
        Box::pin(self.resize_to(target, limit))
    }
}
