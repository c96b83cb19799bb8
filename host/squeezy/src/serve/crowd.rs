//! Places for connections; decides which connection gives up its place when none is left.
//!
//! A new connection never waits for idle ones. When all places are taken, the connection that the
//! daemon has waited for longest is closed, preferably one that has not presented the key. A call
//! of a client that has presented the key is never cut off.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// The state of a connection. The lowest has to go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The client has not presented the key, and the daemon is waiting for it.
    Idle,
    /// The client has not presented the key, and is being answered.
    Served,
    /// The client has presented the key, and the daemon is waiting for a request or the rest of
    /// one.
    Known,
    /// The client has presented the key, and its call is in progress.
    Busy,
}

impl Rank {
    /// How long a connection in this state keeps its place in any case; `None` if it is never
    /// evicted.
    fn grace(self) -> Option<Duration> {
        match self {
            // By then, a request sent right after connecting has been read.
            Self::Idle => Some(Duration::from_millis(250)),
            // Longer than the slowest of these responses (the metrics) takes.
            Self::Served => Some(Duration::from_secs(5)),
            Self::Known => Some(Duration::from_secs(2)),
            Self::Busy => None,
        }
    }
}

/// All connections.
pub struct Crowd {
    most: usize,
    state: Mutex<State>,
    /// A connection has closed, or can be evicted now.
    changed: Notify,
}

#[derive(Default)]
struct State {
    latest: u64,
    /// Ordered by rank, then by time of entering that rank.
    order: BTreeSet<(Rank, Instant, u64)>,
    by_number: BTreeMap<u64, (Rank, Instant, Arc<Notify>)>,
}

/// A connection's place, released on drop.
pub struct Place {
    crowd: Arc<Crowd>,
    number: u64,
    leave: Arc<Notify>,
}

impl Crowd {
    /// At most `most` connections.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default(), changed: Notify::new() })
    }

    /// Gets a place for a new connection once one is free or another connection can be evicted.
    pub async fn enter(self: &Arc<Self>) -> Place {
        loop {
            let changed = self.changed.notified();
            let wait = match self.try_enter() {
                Ok(place) => return place,
                Err(wait) => wait,
            };
            match wait {
                Some(wait) => drop(tokio::time::timeout(wait, changed).await),
                None => changed.await,
            }
        }
    }

    /// Evicts a connection if possible, because something other than places has run out.
    pub fn make_room(&self) {
        let _ = self.lock().evict();
    }

    /// Gets a place; or how long until a connection can be evicted, if that is known.
    fn try_enter(self: &Arc<Self>) -> Result<Place, Option<Duration>> {
        let mut state = self.lock();
        if state.by_number.len() >= self.most {
            state.evict()?;
        }
        state.latest += 1;
        let (number, leave) = (state.latest, Arc::new(Notify::new()));
        state.insert(number, Rank::Idle, leave.clone());
        Ok(Place { crowd: self.clone(), number, leave })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Evicts the first in the order; if it is still in its grace period, returns how much of that
    /// is left.
    fn evict(&mut self) -> Result<(), Option<Duration>> {
        let Some(&(rank, since, number)) = self.order.first() else { return Err(None) };
        let grace = rank.grace().ok_or(None)?;
        let left = grace.saturating_sub(since.elapsed());
        if !left.is_zero() {
            return Err(Some(left));
        }
        if let Some(leave) = self.remove(number) {
            leave.notify_one();
        }
        Ok(())
    }

    fn insert(&mut self, number: u64, rank: Rank, leave: Arc<Notify>) {
        let since = Instant::now();
        self.order.insert((rank, since, number));
        self.by_number.insert(number, (rank, since, leave));
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Notify>> {
        let (rank, since, leave) = self.by_number.remove(&number)?;
        self.order.remove(&(rank, since, number));
        Some(leave)
    }
}

impl Place {
    /// The client has sent a request, or all of one, and the daemon starts to work on it.
    pub fn works(&self) {
        self.change(|rank| if rank < Rank::Known { Rank::Served } else { Rank::Busy });
    }

    /// The daemon starts to wait for the client.
    pub fn waits(&self) {
        self.change(|rank| if rank < Rank::Known { Rank::Idle } else { Rank::Known });
    }

    /// The client has presented the key.
    pub fn is_known(&self) {
        self.change(|_| Rank::Busy);
    }

    /// Has this connection closed.
    pub fn leave(&self) {
        self.leave.notify_one();
    }

    /// Waits until this connection has to close.
    pub async fn left(&self) {
        self.leave.notified().await;
    }

    fn change(&self, to: impl FnOnce(Rank) -> Rank) {
        let mut state = self.crowd.lock();
        // It may have been evicted already.
        let Some(&(rank, ..)) = state.by_number.get(&self.number) else { return };
        if let Some(leave) = state.remove(self.number) {
            state.insert(self.number, to(rank), leave);
        }
        drop(state);
        self.crowd.changed.notify_one();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.lock().remove(self.number);
        self.crowd.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it has been evicted.
    async fn has_to_go(place: &Place) -> bool {
        tokio::time::timeout(Duration::from_millis(20), place.left()).await.is_ok()
    }

    #[tokio::test]
    async fn the_one_that_was_waited_for_longest_goes_first() {
        let crowd = Crowd::new(3);
        let places = [crowd.enter().await, crowd.enter().await, crowd.enter().await];
        // It has been answered in the meantime.
        places[0].works();
        places[0].waits();
        let begin = Instant::now();
        let _fourth = crowd.enter().await;
        assert!(begin.elapsed() >= Duration::from_millis(100), "nobody is cut off at once");
        assert!(begin.elapsed() < Duration::from_secs(2));
        assert!(has_to_go(&places[1]).await);
        assert!(!has_to_go(&places[0]).await && !has_to_go(&places[2]).await);
    }

    #[tokio::test]
    async fn who_has_shown_the_key_goes_last_and_not_in_a_call() {
        let crowd = Crowd::new(3);
        let places = [crowd.enter().await, crowd.enter().await, crowd.enter().await];
        places[0].is_known();
        places[1].is_known();
        places[0].waits();
        for _ in 0..2 {
            // Each evicts the one that is only idle.
            let newcomer = crowd.enter().await;
            assert!(!has_to_go(&places[0]).await && !has_to_go(&newcomer).await);
        }
        assert!(has_to_go(&places[2]).await);
        let third = crowd.enter().await;
        third.is_known();
        let begin = Instant::now();
        let fourth = crowd.enter().await;
        assert!(begin.elapsed() > Duration::from_secs(1) && has_to_go(&places[0]).await);
        fourth.is_known();
        // All are in calls now.
        let next = tokio::time::timeout(Duration::from_millis(500), crowd.enter()).await;
        assert!(next.is_err());
        drop(fourth);
        tokio::time::timeout(Duration::from_secs(1), crowd.enter()).await.unwrap();
    }
}
