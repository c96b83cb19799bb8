//! Places for connections; decides which connection gives up its place when none is left.
//!
//! A new connection never waits for idle ones. When all places are taken, the connection that the
//! daemon has waited for longest is closed, preferably one that has not presented a key. A call
//! of a client that has presented a key is never cut off.
//!
//! Clients with a key of one namespace have a quarter of the places at most, those of the namespace `guest` and of all
//! namespaces together all but an eighth. What is left is the operator's, and of clients who are about to show who
//! they are. The operator's have no bound of their own, but a 64th of the places is never of a client with a key: a probe
//! gets in, however many calls there are.

use super::{
    callers::{Caller, Role},
    tally::Tally,
};
use crate::mutex::lock;
use squeezy_openwhisk::Namespace;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// The state of a connection. The lowest has to go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The client has not presented a key, and the daemon is waiting for it.
    Idle,
    /// The client has not presented a key, and is being answered.
    Served,
    /// The client has presented a key, and the daemon is waiting for a request or the rest of
    /// one.
    Known,
    /// The client has presented a key, and its call is in progress.
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
    by_number: BTreeMap<u64, Entry>,
    /// How many are of clients with a key of each namespace; not those of the operator.
    known: Tally<Namespace>,
    /// How many are of clients with any key.
    all_known: usize,
}

struct Entry {
    rank: Rank,
    since: Instant,
    leave: Arc<Notify>,
    /// Whose key the client has presented, if not the operator's.
    namespace: Option<Namespace>,
}

/// How long a client with a key waits for a place among those of all clients with one: longer than it takes until one
/// that is waited for may be evicted.
const WAIT_FOR_PLACE: Duration = Duration::from_secs(5);

/// Clients with a key, or those of a namespace, have as many connections as they may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPlace;

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

    /// How many places the clients of a namespace may have.
    fn most_of(&self, namespace: &Namespace) -> usize {
        if namespace.is_guest() { self.most_of_all() } else { (self.most / 4).max(1) }
    }

    /// How many those of all namespaces may have together.
    fn most_of_all(&self) -> usize {
        self.most - self.most / 8
    }

    /// How many the clients with a key may have, those of the operator included.
    fn most_known(&self) -> usize {
        self.most - self.most / 64
    }

    /// Gets a place; or how long until a connection can be evicted, if that is known.
    fn try_enter(self: &Arc<Self>) -> Result<Place, Option<Duration>> {
        let mut state = self.lock();
        if state.by_number.len() >= self.most {
            state.evict()?;
        }
        state.latest += 1;
        let (number, leave) = (state.latest, Arc::new(Notify::new()));
        state.insert(number, Rank::Idle, leave.clone(), None);
        Ok(Place { crowd: self.clone(), number, leave })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
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
        self.leave(number);
        Ok(())
    }

    fn insert(
        &mut self,
        number: u64,
        rank: Rank,
        leave: Arc<Notify>,
        namespace: Option<Namespace>,
    ) {
        let since = Instant::now();
        self.order.insert((rank, since, number));
        self.all_known += usize::from(rank >= Rank::Known);
        if let Some(namespace) = &namespace {
            self.known.add(namespace.clone());
        }
        self.by_number.insert(number, Entry { rank, since, leave, namespace });
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.by_number.remove(&number)?;
        self.order.remove(&(entry.rank, entry.since, number));
        self.all_known -= usize::from(entry.rank >= Rank::Known);
        if let Some(namespace) = &entry.namespace {
            self.known.remove(namespace);
        }
        Some(entry)
    }

    /// Has a connection closed whose client has shown a key of a namespace, or the operator's, of which `may_go` says so:
    /// the one whose client is waited for longest. If that is not for long enough, returns how long it takes until it is;
    /// `None` if no such client is waited for.
    fn evict_known(
        &mut self,
        may_go: impl Fn(Option<&Namespace>) -> bool,
    ) -> Result<(), Option<Duration>> {
        let is_one = |(rank, _, number): &&(Rank, Instant, u64)| {
            let namespace = self.by_number.get(number).and_then(|entry| entry.namespace.as_ref());
            *rank >= Rank::Known && may_go(namespace)
        };
        let &(rank, since, number) = self.order.iter().find(is_one).ok_or(None)?;
        let left = rank.grace().ok_or(None)?.saturating_sub(since.elapsed());
        if !left.is_zero() {
            return Err(Some(left));
        }
        self.leave(number);
        Ok(())
    }

    fn leave(&mut self, number: u64) {
        if let Some(entry) = self.remove(number) {
            entry.leave.notify_one();
        }
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

    /// The client has presented this caller's key, and its call is in progress. Waits for a while if others may have to
    /// give way soon.
    pub async fn is_known(&self, caller: &Caller) -> Result<(), NoPlace> {
        let begin = Instant::now();
        loop {
            match self.try_known(caller) {
                Ok(()) => return Ok(()),
                Err(Some(left)) if begin.elapsed() + left < WAIT_FOR_PLACE => {
                    tokio::time::sleep(left).await;
                }
                Err(_) => return Err(NoPlace),
            }
        }
    }

    /// The same, without waiting; or how long until there may be a place, if that is known.
    fn try_known(&self, caller: &Caller) -> Result<(), Option<Duration>> {
        let namespace = match caller.role {
            Role::Operator => None,
            _ => Some(&caller.namespace),
        };
        let mut state = self.crowd.lock();
        // It may have been evicted already.
        let Some(entry) = state.by_number.get(&self.number) else { return Ok(()) };
        let was_known = entry.rank >= Rank::Known;
        if let Some(namespace) = namespace.filter(|own| entry.namespace.as_ref() != Some(own)) {
            if state.known.of(namespace) >= self.crowd.most_of(namespace) {
                // Whoever has all that is its own does not wait.
                state.evict_known(|other| other == Some(namespace)).map_err(|_| None)?;
            } else if state.known.all() >= self.crowd.most_of_all() {
                let own = state.evict_known(|other| other == Some(namespace));
                let evicted = own.or_else(|_| state.evict_known(|other| other.is_some()));
                evicted.map_err(|_| None)?;
            }
        }
        if !was_known && state.all_known >= self.crowd.most_known() {
            state.evict_known(|_| true)?;
        }
        if let Some(Entry { leave, .. }) = state.remove(self.number) {
            state.insert(self.number, Rank::Busy, leave, namespace.cloned());
        }
        drop(state);
        self.crowd.changed.notify_one();
        Ok(())
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
        if let Some(Entry { rank, leave, namespace, .. }) = state.remove(self.number) {
            state.insert(self.number, to(rank), leave, namespace);
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

    fn caller(namespace: &str, role: Role) -> Caller {
        Caller { namespace: namespace.parse().unwrap(), role, key: None }
    }

    /// The operator's client.
    fn known(place: &Place) {
        place.try_known(&caller("guest", Role::Operator)).unwrap();
    }

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
        known(&places[0]);
        known(&places[1]);
        places[0].waits();
        for _ in 0..2 {
            // Each evicts the one that is only idle.
            let newcomer = crowd.enter().await;
            assert!(!has_to_go(&places[0]).await && !has_to_go(&newcomer).await);
        }
        assert!(has_to_go(&places[2]).await);
        let third = crowd.enter().await;
        known(&third);
        let begin = Instant::now();
        let fourth = crowd.enter().await;
        assert!(begin.elapsed() > Duration::from_secs(1) && has_to_go(&places[0]).await);
        known(&fourth);
        // All are in calls now.
        let next = tokio::time::timeout(Duration::from_millis(500), crowd.enter()).await;
        assert!(next.is_err());
        drop(fourth);
        tokio::time::timeout(Duration::from_secs(1), crowd.enter()).await.unwrap();
    }

    #[tokio::test]
    async fn a_namespace_has_a_part_of_the_places_and_the_operator_always_gets_one() {
        let crowd = Crowd::new(16);
        let (acme, other) = (caller("acme", Role::Call), caller("other", Role::Change));
        let guest = caller("guest", Role::Read);
        let mut own = Vec::new();
        for _ in 0..4 {
            let place = crowd.enter().await;
            assert_eq!(place.is_known(&acme).await, Ok(()));
            // Each call of the same client counts once.
            assert_eq!(place.is_known(&acme).await, Ok(()));
            own.push(place);
        }
        let fifth = crowd.enter().await;
        assert_eq!(fifth.is_known(&acme).await, Err(NoPlace));
        assert_eq!(fifth.is_known(&other).await, Ok(()));
        drop(own.pop());
        let place = crowd.enter().await;
        assert_eq!(place.is_known(&acme).await, Ok(()));
        own.push(place);
        // Whom the daemon has waited for gives up its place to another client of its namespace.
        own[0].waits();
        tokio::time::sleep(Duration::from_millis(2100)).await;
        let sixth = crowd.enter().await;
        assert_eq!(sixth.is_known(&acme).await, Ok(()));
        assert!(has_to_go(&own[0]).await && !has_to_go(&own[1]).await);
        drop(own.remove(0));
        let mut others = Vec::new();
        for _ in 0..9 {
            let place = crowd.enter().await;
            assert_eq!(place.is_known(&guest).await, Ok(()));
            others.push(place);
        }
        let next = crowd.enter().await;
        assert_eq!(next.is_known(&guest).await, Err(NoPlace), "14 of 16 are taken");
        // Whoever of them is waited for gives way, whosever it is.
        own[0].waits();
        tokio::time::sleep(Duration::from_millis(2100)).await;
        assert_eq!(next.is_known(&guest).await, Ok(()));
        assert!(has_to_go(&own[0]).await);
        known(&next);
        drop((own, others, fifth, sixth, next));
        assert!(crowd.lock().known.is_empty() && crowd.lock().order.is_empty());
    }

    #[tokio::test]
    async fn a_probe_gets_in_however_many_calls_the_operator_has() {
        let crowd = Crowd::new(64);
        let operator = caller("guest", Role::Operator);
        let mut calls = Vec::new();
        for _ in 0..63 {
            let place = crowd.enter().await;
            known(&place);
            // Each further call on it is no further connection.
            known(&place);
            calls.push(place);
        }
        let mut probe = crowd.enter().await;
        for _ in 0..3 {
            probe.works();
            assert_eq!(probe.is_known(&operator).await, Err(NoPlace));
            probe.waits();
            let next = tokio::time::timeout(Duration::from_secs(10), crowd.enter()).await;
            assert!(has_to_go(&probe).await);
            probe = next.expect("who only connects does not keep it out");
        }
        // The operator's own connections that wait for a call give way to one, which waits for that.
        calls[0].waits();
        assert_eq!(probe.is_known(&operator).await, Ok(()));
        assert!(has_to_go(&calls[0]).await && !has_to_go(&calls[1]).await);
        drop((calls, probe));
        assert_eq!(crowd.lock().all_known, 0);
    }
}
