//! Freezing what has had nothing to do for some time, until there is something again.
//!
//! Three things are something to do: traffic, a [`Use`], and computing. Whoever needs what may be frozen to run takes a
//! use, which thaws it, and nothing is frozen while there is any. What nobody uses is looked at four times in the time
//! after which it is frozen, so that a look costs hardly anything where there is much traffic. What is frozen is thawed by
//! the first traffic since the look that found none, so what comes while it is being frozen is not missed.

#[cfg(test)]
mod tests;

use crate::{
    Id,
    error::{Error, Result},
};
use futures_util::future::BoxFuture;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Mutex, Notify, OwnedMutexGuard},
    time::{Instant, sleep},
};

/// How often to look in the time after which something is frozen.
const LOOKS: u32 = 4;
/// The part of the time, as a divisor, that it may be busy without counting as computing: the runtimes of languages are
/// never quite still.
const STILL_PART: u32 = 20;
/// How long to wait before what could not be thawed is tried again: half of the time that it has been tried for, from the
/// former to the latter. What has no room for long is not asked for every second.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// How long a use waits for what cannot be thawed at once: a node may have room in a moment. Half as long as containerd
/// waits for those who wait for this.
const PATIENCE: Duration = Duration::from_secs(5);

/// What can be frozen.
pub trait Freezable: Send + Sync + 'static {
    /// What of it is frozen; the default if nothing is.
    type Frozen: Default + PartialEq + Send;

    /// Freezes what runs, as far as it is not `wanted` in the meantime. `frozen` is what may be frozen after that, whether
    /// it fails or not.
    fn freeze<'a>(
        &'a self,
        frozen: &'a mut Self::Frozen,
        wanted: &'a (dyn Fn() -> bool + Sync),
    ) -> BoxFuture<'a, Result<()>>;
    /// Thaws that. No error if it has ended, or runs already.
    fn thaw<'a>(&'a self, frozen: &'a Self::Frozen) -> BoxFuture<'a, Result<()>>;
    /// Whether there was traffic since this was last asked for, or seen.
    fn take_traffic(&self) -> io::Result<bool>;
    /// Waits until there is traffic, or was since it was last asked for.
    fn traffic(&self) -> BoxFuture<'_, io::Result<()>>;
    /// For how long what runs has computed, or waited for what it takes to compute. Less than before if some of it has
    /// ended.
    fn busy(&self) -> BoxFuture<'_, Result<Duration>>;
}

/// Freezes something while it has nothing to do.
pub struct Freezer<F: Freezable> {
    what: F,
    /// What the log calls it.
    id: Id,
    after: Duration,
    frozen: Arc<Mutex<F::Frozen>>,
    /// How many uses there are, or are waited for. Counted before `frozen` is locked, and looked at with the lock.
    uses: AtomicUsize,
    /// Whether one has ended since the last look.
    was_used: AtomicBool,
    /// Told when a use has tried to thaw it.
    thawing: Notify,
    /// Told when it was thawed.
    thawed: Notify,
}

/// As long as there is one, what can be frozen is not.
pub struct Use<F: Freezable>(Arc<Freezer<F>>);

impl<F: Freezable> Freezer<F> {
    /// Freezes it after it has had nothing to do for this time, or up to a quarter longer, while somebody polls
    /// [`watch`](Self::watch).
    pub fn new(what: F, id: Id, after: Duration) -> Arc<Self> {
        Arc::new(Self {
            what,
            id,
            after,
            frozen: Arc::default(),
            uses: AtomicUsize::default(),
            was_used: AtomicBool::default(),
            thawing: Notify::new(),
            thawed: Notify::new(),
        })
    }

    /// Lets it run, and keeps it from being frozen. May be dropped at any time.
    ///
    /// # Errors
    /// It cannot be thawed for [`PATIENCE`]; that is tried again until it can.
    pub async fn begin_use(self: &Arc<Self>) -> Result<Use<F>> {
        let begun = self.keep();
        let thawed = self.thawed.notified();
        let frozen = self.frozen.clone().lock_owned().await;
        if *frozen == F::Frozen::default() {
            return Ok(begun);
        }
        // To its end, also if nobody waits any more: nothing is left that is thawed in part. Whoever gives up before has
        // tried nothing, so that there is one such attempt at a time.
        let freezer = self.clone();
        let thawing = tokio::spawn(async move { freezer.thaw_for_use(frozen).await });
        if let Err(error) = thawing.await.unwrap_or_else(|error| Err(Error::failed(error))) {
            // Whoever watches it tries again meanwhile, however many wait for it.
            tokio::select! {
                biased;
                () = thawed => {}
                () = sleep(PATIENCE) => return Err(error),
            }
        }
        Ok(begun)
    }

    async fn thaw_for_use(&self, mut frozen: OwnedMutexGuard<F::Frozen>) -> Result<()> {
        let thawed = self.thaw(&mut frozen).await;
        self.thawing.notify_waiters();
        thawed
    }

    /// Keeps it as it is, which is frozen perhaps: for what does not take that it runs, and should not wait for it.
    pub fn keep(self: &Arc<Self>) -> Use<F> {
        self.uses.fetch_add(1, Ordering::Relaxed);
        Use(self.clone())
    }

    /// Has it thawed in a moment, and keeps it from being frozen: for what does not wait for it to run.
    pub fn wake(self: &Arc<Self>) -> Use<F> {
        let begun = self.keep();
        self.thawing.notify_waiters();
        begun
    }

    /// Freezes it while it has nothing to do, for ever. It may be left frozen if this is dropped, which is for when nothing
    /// of it is to run again.
    ///
    /// # Errors
    /// Nobody sees its traffic any more; it runs then.
    pub async fn watch(&self) -> io::Result<()> {
        let mut problem = None;
        loop {
            self.idle(&mut problem).await?;
            let thawing = self.thawing.notified();
            let seen = if self.freeze(&mut problem).await {
                tokio::select! {
                    seen = self.what.traffic() => seen,
                    () = thawing => Ok(()),
                }
            } else {
                Ok(())
            };
            self.thaw_at_last().await;
            seen?;
        }
    }

    /// Waits until it has had nothing to do for as long as it takes.
    async fn idle(&self, problem: &mut Option<&'static str>) -> io::Result<()> {
        let mut since = Instant::now();
        // At the last look, if it had nothing else to do then.
        let mut before: Option<(Instant, Duration)> = None;
        loop {
            sleep(self.after / LOOKS).await;
            // Uses first: one that ends in between has set `was_used` by then.
            let is_used = self.is_used() | self.was_used.swap(false, Ordering::Relaxed);
            let busy = if self.what.take_traffic()? || is_used {
                None
            } else {
                let busy = self.what.busy().await;
                busy.inspect_err(|error| {
                    self.tell(problem, "cannot see whether it computes", error)
                })
                .ok()
            };
            let Some(busy) = busy else {
                (since, before) = (Instant::now(), None);
                continue;
            };
            let now = Instant::now();
            let computes = |(then, before): (Instant, Duration)| {
                busy.saturating_sub(before) > (now - then) / STILL_PART
            };
            if before.is_some_and(computes) {
                since = now;
            }
            before = Some((now, busy));
            if since.elapsed() >= self.after {
                return Ok(());
            }
        }
    }

    /// Freezes it, and says whether it is frozen then. If not, some of it may be.
    async fn freeze(&self, problem: &mut Option<&'static str>) -> bool {
        let had_traffic = AtomicBool::default();
        let wanted = || {
            // What fails here fails for whoever waits for traffic.
            if self.what.take_traffic().unwrap_or(true) {
                had_traffic.store(true, Ordering::Relaxed);
            }
            had_traffic.load(Ordering::Relaxed) || self.is_used()
        };
        let mut frozen = self.frozen.lock().await;
        if wanted() {
            return false;
        }
        let begin = Instant::now();
        if let Err(error) = self.what.freeze(&mut frozen, &wanted).await {
            self.tell(problem, "cannot freeze it", &error);
            return false;
        }
        let is_frozen = *frozen != F::Frozen::default() && !wanted();
        if is_frozen {
            *problem = None;
            let latency_us = begin.elapsed().as_micros();
            tracing::debug!(latency_us, "pod {} has nothing to do and is frozen", self.id);
        }
        is_frozen
    }

    /// Thaws it, however often that has to be tried.
    async fn thaw_at_last(&self) {
        let (begin, mut problem) = (Instant::now(), None);
        loop {
            let thawed = self.thaw(&mut *self.frozen.lock().await).await;
            let Err(error) = thawed else { return };
            self.tell(&mut problem, "cannot thaw it, and tries again", &error);
            let pause = (begin.elapsed() / 2).clamp(RETRY_INTERVAL, MAX_RETRY_INTERVAL);
            tokio::select! {
                () = sleep(pause) => {}
                () = self.until_a_use_has_thawed_it() => return,
            }
        }
    }

    async fn until_a_use_has_thawed_it(&self) {
        loop {
            self.thawing.notified().await;
            if *self.frozen.lock().await == F::Frozen::default() {
                return;
            }
        }
    }

    async fn thaw(&self, frozen: &mut F::Frozen) -> Result<()> {
        if *frozen == F::Frozen::default() {
            return Ok(());
        }
        let begin = Instant::now();
        self.what.thaw(frozen).await?;
        *frozen = F::Frozen::default();
        self.thawed.notify_waiters();
        let latency_us = begin.elapsed().as_micros();
        tracing::debug!(latency_us, "pod {} runs again", self.id);
        Ok(())
    }

    /// Says what is wrong, unless that was said last.
    fn tell(&self, last: &mut Option<&'static str>, problem: &'static str, why: &Error) {
        if last.replace(problem) != Some(problem) {
            tracing::warn!("pod {}: {problem}: {why}", self.id);
        }
    }

    fn is_used(&self) -> bool {
        self.uses.load(Ordering::Acquire) > 0
    }
}

impl<F: Freezable> Drop for Use<F> {
    fn drop(&mut self) {
        // Before the count goes down, so that a look that misses it in the count finds this.
        self.0.was_used.store(true, Ordering::Relaxed);
        self.0.uses.fetch_sub(1, Ordering::Release);
    }
}
