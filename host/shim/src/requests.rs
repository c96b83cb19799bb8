//! The memory request of a pod in its cluster: its limit while it runs, and what it occupies while it is frozen.
//!
//! The scheduler counts requests, so what a frozen pod does not occupy is room for others. To change them takes rights in
//! the cluster that a server has not, so a program on the node does it, `squeezy-requests`.
//!
//! A pod runs again only when its node has room for it. Where nobody says whether it has, because the program or the API
//! server does not answer, it runs after [`PATIENCE`] all the same, and asks on.

mod socket;
#[cfg(test)]
mod tests;

pub use socket::Socket;

use crate::{
    error::{Error, Result},
    mutex::lock,
};
use futures_util::future::BoxFuture;
use squeezy_requests::{Answer, PodName, Request};
use std::{
    fmt,
    sync::{Arc, MutexGuard},
    time::Duration,
};
use tokio::{
    sync::Mutex,
    task::AbortHandle,
    time::{Instant, sleep},
};

/// How long a pod waits for somebody who says whether there is room for it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often to ask for a pod that runs already.
const ASK_INTERVAL: Duration = Duration::from_secs(10);
/// How long a node that had no room is taken to have none if nobody says otherwise: a cluster that is too busy to answer
/// has no more room for that. Longer than kubelet takes to look again at what it has deferred.
const FULL: Duration = Duration::from_secs(90);
/// How long a change that nobody has answered may still come: the API server gives up after a minute.
const LATE: Duration = Duration::from_secs(70);
/// The unit of what a frozen pod requests, in bytes.
const UNIT_BYTES: u64 = 1 << 20;

/// Who changes what a pod requests.
pub trait Cluster: Send + Sync + 'static {
    /// Changes it. Takes seconds at most.
    fn ask<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Answer, Silence>>;
}

/// Why there is no answer, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Nobody has been asked.
    NotAsked(String),
    /// Somebody may have done it.
    NoAnswer(String),
}

/// What a pod requests.
pub struct MemoryRequest<C: Cluster = Socket> {
    pod: PodName,
    cluster: C,
    state: Mutex<State>,
    /// Asks on for a pod that runs though nobody has said that there is room for it, and which of those that did it is.
    asking: std::sync::Mutex<(u64, Option<AbortHandle>)>,
}

/// What is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is what it was when the pod began: less than its limit if another server left it so, or if its manifest says so.
    Begun,
    /// It is the pod's limit.
    Limit,
    /// It may be less.
    Less,
    /// It may be less, or may become so: nobody has answered the change.
    Unsure,
    /// It may be less, and the pod is to run, for which its node had no room at this time.
    Refused(Instant),
    /// It may be less, and the pod is to run, for which nobody has had an answer since.
    Unanswered(Instant),
}

impl<C: Cluster> MemoryRequest<C> {
    /// That of a pod which runs from now on. If another server of the same pod was killed while it was frozen, it is less
    /// than the pod's limit; that is made up for.
    pub fn of_running(pod: PodName, cluster: C) -> Arc<Self> {
        let (state, asking) = (Mutex::new(State::Begun), std::sync::Mutex::default());
        let request = Arc::new(Self { pod, cluster, state, asking });
        request.ask_on(Duration::ZERO);
        request
    }

    /// The pod is frozen and occupies this much, in bytes. What fails is said in the log, and costs nothing but room. May be
    /// dropped at any time.
    pub async fn fall(&self, occupied_bytes: u64) {
        self.ask_no_more();
        let mut state = self.state.lock().await;
        let before = std::mem::replace(&mut *state, State::Unsure);
        let occupied_bytes = occupied_bytes.max(1).next_multiple_of(UNIT_BYTES);
        let why = match self.ask(Some(occupied_bytes)).await {
            Ok(Answer::Done) => {
                *state = State::Less;
                return;
            }
            // It is what it was.
            Ok(Answer::Refused { why }) | Err(Silence::NotAsked(why)) => {
                *state = before;
                why
            }
            Ok(Answer::Failed { why }) | Err(Silence::NoAnswer(why)) => why,
        };
        self.tell("requests its memory though it is frozen", &why);
    }

    /// The pod is to run.
    ///
    /// # Errors
    /// There is no room for it yet, or nobody has said whether there is for less than [`PATIENCE`].
    pub async fn rise(self: &Arc<Self>) -> Result<()> {
        let mut state = self.state.lock().await;
        let before = *state;
        let since = match before {
            // It has run with that before.
            State::Begun => {
                self.ask_on(Duration::ZERO);
                return Ok(());
            }
            State::Limit => return Ok(()),
            State::Less | State::Unsure | State::Refused(_) => Instant::now(),
            State::Unanswered(since) => since,
        };
        let why = match self.ask(None).await {
            Ok(Answer::Done) if before == State::Unsure => {
                // What was not answered may come after this.
                self.ask_on(LATE);
                return Ok(());
            }
            Ok(Answer::Done) => {
                *state = State::Limit;
                return Ok(());
            }
            Ok(Answer::Refused { why }) => {
                *state = State::Refused(Instant::now());
                return Err(Error::failed(format_args!(
                    "there is no room for what it may use: {why}"
                )));
            }
            Ok(Answer::Failed { why }) | Err(Silence::NotAsked(why) | Silence::NoAnswer(why)) => {
                why
            }
        };
        if let State::Refused(at) = before
            && at.elapsed() < FULL
        {
            return Err(Error::failed(format_args!(
                "there was no room for what it may use, and nobody says otherwise: {why}"
            )));
        }
        *state = State::Unanswered(since);
        if since.elapsed() < PATIENCE {
            return Err(Error::failed(format_args!(
                "nobody says whether there is room for what it may use: {why}"
            )));
        }
        self.tell("runs, and there may be no room for what it may use", &why);
        self.ask_on(Duration::ZERO);
        Ok(())
    }

    /// Asks for the limit, for this long at least, until the pod has it or is frozen again.
    fn ask_on(self: &Arc<Self>, at_least: Duration) {
        let turn = self.ask_no_more();
        let asking = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            let begin = Instant::now();
            while let Some(request) = asking.upgrade() {
                let is_done = request.ask(None).await == Ok(Answer::Done);
                if is_done && begin.elapsed() >= at_least {
                    let mut state = request.state.lock().await;
                    // Unless it is frozen again meanwhile.
                    if request.asking().0 == turn {
                        *state = State::Limit;
                    }
                    return;
                }
                drop(request);
                sleep(ASK_INTERVAL).await;
            }
        });
        let mut asking = self.asking();
        if asking.0 == turn {
            asking.1 = Some(task.abort_handle());
        } else {
            task.abort();
        }
    }

    /// Ends what asks on. Returns the turn of what may do so next.
    fn ask_no_more(&self) -> u64 {
        let mut asking = self.asking();
        if let Some(task) = asking.1.take() {
            task.abort();
        }
        asking.0 += 1;
        asking.0
    }

    fn asking(&self) -> MutexGuard<'_, (u64, Option<AbortHandle>)> {
        lock(&self.asking)
    }

    async fn ask(&self, occupied_bytes: Option<u64>) -> Result<Answer, Silence> {
        self.cluster.ask(&Request { pod: self.pod.clone(), occupied_bytes }).await
    }

    fn tell(&self, what: &str, why: &dyn fmt::Display) {
        tracing::warn!("pod {} {what}: {why}", self.pod);
    }
}
