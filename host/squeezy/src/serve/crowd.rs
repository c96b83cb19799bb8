//! Places of connections: who has to give up theirs when there are no more.
//!
//! A new connection is never kept waiting by those that only hold theirs. When all places are taken, the
//! one goes that has kept the daemon waiting longest: of those who have not shown the key, if there are
//! any. A call of who has shown it is never cut off.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// What a connection is at, in the order in which they have to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Its client has not shown the key, and is waited for.
    Idle,
    /// It has not shown it, and gets an answer.
    Served,
    /// It has shown it, and is waited for: for a request, or for the rest of one.
    Known,
    /// It has shown it, and its call is worked on.
    Busy,
}

impl Rank {
    /// For how long it keeps its place whoever wants it; for ever if there is nothing.
    fn grace(self) -> Option<Duration> {
        match self {
            // A request that came with the connection has been read by then.
            Self::Idle => Some(Duration::from_millis(250)),
            // Longer than the slowest of these answers takes, which is that of the metrics.
            Self::Served => Some(Duration::from_secs(5)),
            Self::Known => Some(Duration::from_secs(2)),
            Self::Busy => None,
        }
    }
}

/// All connections there are.
pub struct Crowd {
    most: usize,
    state: Mutex<State>,
    /// Somebody has left, or has become one who may have to.
    changed: Notify,
}

#[derive(Default)]
struct State {
    latest: u64,
    /// By what they are at, and since when.
    order: BTreeSet<(Rank, Instant, u64)>,
    by_number: BTreeMap<u64, (Rank, Instant, Arc<Notify>)>,
}

/// The place of one connection, given up when this is dropped.
pub struct Place {
    crowd: Arc<Crowd>,
    number: u64,
    leave: Arc<Notify>,
}

impl Crowd {
    /// One of at most so many.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default(), changed: Notify::new() })
    }

    /// A place for a new connection, as soon as there is one or somebody can be made to leave.
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

    /// Makes one leave that may have to, for want of something else than places.
    pub fn make_room(&self) {
        let _ = self.lock().evict();
    }

    /// A place; or how long it is until somebody may have to leave, if that can be told.
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
    /// Makes the first of the order leave, unless it has its place for a while yet: for how long.
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
    /// Its client has sent a request, or all of it, which is worked on from now on.
    pub fn works(&self) {
        self.change(|rank| if rank < Rank::Known { Rank::Served } else { Rank::Busy });
    }

    /// Its client is waited for from now on.
    pub fn waits(&self) {
        self.change(|rank| if rank < Rank::Known { Rank::Idle } else { Rank::Known });
    }

    /// Its client has shown the key.
    pub fn is_known(&self) {
        self.change(|_| Rank::Busy);
    }

    /// Waits until it has to go.
    pub async fn left(&self) {
        self.leave.notified().await;
    }

    fn change(&self, to: impl FnOnce(Rank) -> Rank) {
        let mut state = self.crowd.lock();
        // It may have had to go already.
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

    /// Whether it has to go.
    async fn has_to_go(place: &Place) -> bool {
        tokio::time::timeout(Duration::from_millis(20), place.left()).await.is_ok()
    }

    #[tokio::test]
    async fn the_one_that_was_waited_for_longest_goes_first() {
        let crowd = Crowd::new(3);
        let places = [crowd.enter().await, crowd.enter().await, crowd.enter().await];
        // It has got its answer meanwhile.
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
            // Each is the one that only holds its place.
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
