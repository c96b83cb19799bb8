//! Ordinary memory, of which the host keeps what is not in use (HyperAlloc, EuroSys'25).

use super::{Elastic, GuestMemory, Layout, Resize, Running, Target};
use crate::{AgentClient, BoxFuture, Result, VmError, hyperalloc::Reclaimer};
use squeezy_llfree::AREA_BYTES;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Mutex, MutexGuard};

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
    /// Held while a size is chosen and while the size changes, so that the size becomes what was requested last.
    order: Mutex<()>,
}

/// What the host has done by itself.
struct Work {
    /// How long it took.
    took: Duration,
    /// The part of that in which the host's kernel gave memory back.
    discarding: Duration,
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

    /// Requests the size that `target` computes, and comes as near to it as the guest lets it. Returns that size, and
    /// the work itself.
    async fn send(&self, target: Target<'_>) -> Result<(u64, Work)> {
        let order = self.order.lock().await;
        let bytes = target();
        self.requested.store(bytes, SeqCst);
        Ok((bytes, self.follow(&order).await?))
    }

    /// Comes as near to what is requested as the guest lets it.
    async fn follow(&self, _: &MutexGuard<'_, ()>) -> Result<Work> {
        let reclaimer = self.reclaimer()?.clone();
        let bytes = self.extra_bytes - self.with_lent(self.requested.load(SeqCst));
        let work = move || {
            let begin = Instant::now();
            let discarding = reclaimer.hold(bytes);
            discarding.map(|discarding| Work { took: begin.elapsed(), discarding })
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| VmError::system("a thread has failed", error))?
    }

    async fn resize_to(&self, target: Target<'_>, limit: Duration) -> Result<Resize> {
        let before_bytes = self.size_now()?;
        let begin = Instant::now();
        let (requested_bytes, first) = self.send(target).await?;
        let (mut latency, mut discarding) = (first.took, first.discarding);
        let mut polls = 0;
        loop {
            let plugged_bytes = self.size_now()?;
            let resize = Resize {
                before_bytes,
                requested_bytes,
                plugged_bytes,
                lead: Duration::ZERO,
                latency,
                discarding: Some(discarding),
                polls,
                device: None,
            };
            let missing = plugged_bytes.saturating_sub(self.with_lent(requested_bytes));
            // The rest would be less than an area.
            if missing < AREA_BYTES || self.requested.load(SeqCst) != requested_bytes {
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
            let more = self.follow(&self.order.lock().await).await?;
            latency += PAUSE + more.took;
            discarding += more.discarding;
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
        Box::pin(async move { self.send(target).await.map(drop) })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hyperalloc::tests::{Guest, USABLE_BYTES};
    use futures_util::{FutureExt, future::join_all};
    use std::sync::atomic::AtomicBool;

    const LONG: Duration = Duration::from_secs(20);

    /// The memory of a guest, all of which the host may keep.
    fn driven(guest: &Guest) -> HostDriven {
        HostDriven {
            reclaimer: Arc::new(OnceLock::from(Arc::new(guest.reclaimer()))),
            extra_bytes: USABLE_BYTES,
            requested: USABLE_BYTES.into(),
            lent: 0.into(),
            order: Mutex::default(),
        }
    }

    fn booted() -> Guest {
        let guest = Guest::new();
        guest.boot();
        guest
    }

    #[tokio::test]
    async fn a_size_is_chosen_when_nobody_else_changes_it() {
        let driven = driven(&booted());
        let is_alone = AtomicBool::new(true);
        let target = || {
            is_alone.fetch_and(driven.order.try_lock().is_err(), SeqCst);
            AREA_BYTES
        };
        driven.resize(&target, LONG, None).await.unwrap();
        driven.request(&target).await.unwrap();
        assert!(is_alone.load(SeqCst));
    }

    /// Each computes what all of them add up to, as instances that come and go do.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn resizes_that_overlap_end_at_what_they_add_up_to() {
        let driven = driven(&booted());
        let areas = AtomicU64::new(0);
        let target = || areas.load(SeqCst) * AREA_BYTES;
        for round in 0..50 {
            let all = (0..3).map(|number| {
                let (areas, driven) = (&areas, &driven);
                async move {
                    tokio::task::yield_now().await;
                    // Three come in even rounds, and go in odd ones.
                    let change = if round % 2 == 0 { 1 } else { u64::MAX };
                    areas.fetch_add(change, SeqCst);
                    let done = driven.resize(&target, LONG, None).await.unwrap();
                    assert!(done.polls == 0, "{number}: {done:?}");
                }
            });
            join_all(all).await;
            let bytes = areas.load(SeqCst) * AREA_BYTES;
            assert_eq!((driven.size_now(), driven.requested_bytes()), (Ok(bytes), bytes));
        }
    }

    /// A host that discards for seconds works on the zone for as long. Others of the runtime go on, this VM's status
    /// included.
    #[tokio::test]
    async fn nobody_waits_for_a_zone_in_the_runtime() {
        let guest = booted();
        let driven = driven(&guest);
        driven.resize(&|| 0, LONG, None).await.unwrap();
        let (worked_on, is_worked_on) = std::sync::mpsc::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel();
        let reclaimer = driven.reclaimer().unwrap().clone();
        let slow = std::thread::spawn(move || {
            let _zones = reclaimer.work_on_all();
            worked_on.send(()).unwrap();
            // If somebody waits, they go on at last, and the test fails.
            may_go_on.recv_timeout(LONG).is_ok()
        });
        is_worked_on.recv().unwrap();
        assert_eq!(driven.size().now_or_never(), Some(Ok(0)));
        assert!(driven.resize(&|| AREA_BYTES, LONG, None).now_or_never().is_none());
        assert!(driven.starved().now_or_never().is_none());
        let _ = go_on.send(());
        assert!(slow.join().unwrap(), "somebody has waited");
    }
}
