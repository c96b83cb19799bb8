//! A part of the budget: who holds how much of it, and who waits for some.
//!
//! Whoever waits is served in order, except that those whose namespace has as much as it may have keep nobody else
//! waiting, nor do those who ask for more than that at once. Requests, which may hold theirs for as long as their calls
//! run, may hold three quarters of the room, so that there is always some for answers, which are sent soon.

use super::{NoRoom, Payer, Portion};
use crate::mutex::lock;
use squeezy_openwhisk::Namespace;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::sync::Notify;

/// What a reservation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A request, from its first byte until its call has ended.
    Request,
    /// An answer, until it has been sent.
    Answer,
}

/// What somebody holds or wants to have.
#[derive(Clone, Debug)]
pub struct Claim {
    pub payer: Payer,
    pub purpose: Purpose,
    pub units: usize,
}

/// The room, in units.
pub struct Room {
    units: usize,
    state: Mutex<State>,
}

/// What is held, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    by_requests: usize,
    by_answers: usize,
}

impl Taken {
    fn all(self) -> usize {
        self.by_requests + self.by_answers
    }

    fn of(&mut self, purpose: Purpose) -> &mut usize {
        match purpose {
            Purpose::Request => &mut self.by_requests,
            Purpose::Answer => &mut self.by_answers,
        }
    }
}

#[derive(Default)]
struct State {
    taken: Taken,
    by_namespace: BTreeMap<Namespace, Taken>,
    /// In the order of their coming.
    waiting: VecDeque<Waiter>,
    latest: u64,
}

struct Waiter {
    number: u64,
    claim: Claim,
    served: Arc<Notify>,
}

/// What a claim that has to wait lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// Its namespace has what it may have.
    Part,
    /// Requests have what they may have.
    RoomForRequests,
    /// There is no more.
    Room,
}

impl From<Option<Lack>> for NoRoom {
    fn from(lack: Option<Lack>) -> Self {
        // If it lacks nothing itself, those before it do.
        if lack == Some(Lack::Part) { Self::OfPart } else { Self::Now }
    }
}

impl Room {
    pub fn new(units: usize) -> Arc<Self> {
        Arc::new(Self { units, state: Mutex::default() })
    }

    /// What this may be at most for somebody who holds nothing.
    pub fn most_for(&self, purpose: Purpose) -> usize {
        match purpose {
            Purpose::Request => self.units - self.units / 4,
            Purpose::Answer => self.units,
        }
    }

    /// Gives somebody what he claims, after waiting for it for `limit` at most.
    pub async fn take(self: &Arc<Self>, claim: Claim, limit: Duration) -> Result<Held, NoRoom> {
        let (waiting, served) = Waiting::begin(self, claim);
        // Whoever is served at the last moment is served.
        let _ = tokio::time::timeout(limit, served.notified()).await;
        waiting.end()
    }

    /// Gives somebody what he claims, if he need not wait.
    pub fn take_now(self: &Arc<Self>, claim: Claim) -> Result<Held, NoRoom> {
        Waiting::begin(self, claim).0.end()
    }

    /// Whether somebody waits who would not if this were released, or not as long.
    pub fn is_short_because_of(&self, held: &Claim) -> bool {
        let state = self.lock();
        let is_kept = |Waiter { claim, .. }: &Waiter| match self.lack(&state, claim) {
            _ if claim.units > self.most(claim) => false,
            Some(Lack::Part) => {
                (&claim.payer.namespace, claim.purpose) == (&held.payer.namespace, held.purpose)
            }
            Some(Lack::RoomForRequests) => held.purpose == Purpose::Request,
            Some(Lack::Room) | None => true,
        };
        state.waiting.iter().any(is_kept)
    }

    /// What a namespace may hold of what there is for this purpose.
    pub fn most(&self, claim: &Claim) -> usize {
        claim.payer.portion.of(self.most_for(claim.purpose))
    }

    /// What a claim lacks. Whoever has nothing for a purpose may have more than its part at once, or what is larger
    /// could never be had.
    fn lack(&self, state: &State, claim: &Claim) -> Option<Lack> {
        let own = state.by_namespace.get(&claim.payer.namespace).copied();
        let own = *own.unwrap_or_default().of(claim.purpose);
        let is_alone = claim.payer.portion == Portion::All;
        if own > 0 && !is_alone && own + claim.units > self.most(claim) {
            Some(Lack::Part)
        } else if claim.purpose == Purpose::Request
            && state.taken.by_requests + claim.units > self.most_for(Purpose::Request)
        {
            Some(Lack::RoomForRequests)
        } else {
            (state.taken.all() + claim.units > self.units).then_some(Lack::Room)
        }
    }

    /// Serves all who wait and need not.
    fn serve(&self, state: &mut State) {
        // Whether some wait for what only requests may not have, or for what nobody may.
        let (mut is_kept_for_requests, mut is_kept) = (false, false);
        let mut waiting = std::mem::take(&mut state.waiting);
        waiting.retain(|waiter| {
            let claim = &waiter.claim;
            let is_behind = is_kept || (is_kept_for_requests && claim.purpose == Purpose::Request);
            match self.lack(state, claim) {
                None if !is_behind => {
                    state.add(claim);
                    waiter.served.notify_one();
                    return false;
                }
                _ if claim.units > self.most(claim) => {}
                Some(Lack::Room) => is_kept = true,
                Some(Lack::RoomForRequests) => is_kept_for_requests = true,
                Some(Lack::Part) | None => {}
            }
            true
        });
        state.waiting = waiting;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn add(&mut self, claim: &Claim) {
        *self.taken.of(claim.purpose) += claim.units;
        let own = self.by_namespace.entry(claim.payer.namespace.clone()).or_default();
        *own.of(claim.purpose) += claim.units;
    }

    fn remove(&mut self, claim: &Claim) {
        *self.taken.of(claim.purpose) -= claim.units;
        if let Some(own) = self.by_namespace.get_mut(&claim.payer.namespace) {
            *own.of(claim.purpose) -= claim.units;
            if *own == Taken::default() {
                self.by_namespace.remove(&claim.payer.namespace);
            }
        }
    }

    fn waits(&self, number: u64) -> bool {
        self.waiting.iter().any(|waiter| waiter.number == number)
    }
}

/// Somebody who waits, or has been served and does not know it; gives both up on drop.
struct Waiting<'a> {
    room: &'a Arc<Room>,
    number: u64,
    claim: Claim,
    is_over: bool,
}

impl<'a> Waiting<'a> {
    fn begin(room: &'a Arc<Room>, claim: Claim) -> (Self, Arc<Notify>) {
        let served = Arc::new(Notify::new());
        let mut state = room.lock();
        state.latest += 1;
        let number = state.latest;
        let waiter = Waiter { number, claim: claim.clone(), served: served.clone() };
        state.waiting.push_back(waiter);
        room.serve(&mut state);
        drop(state);
        (Self { room, number, claim, is_over: false }, served)
    }

    fn end(mut self) -> Result<Held, NoRoom> {
        let state = self.room.lock();
        if state.waits(self.number) {
            return Err(self.room.lack(&state, &self.claim).into());
        }
        drop(state);
        self.is_over = true;
        Ok(Held { room: self.room.clone(), claim: self.claim.clone() })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.room.lock();
        let there = state.waiting.len();
        state.waiting.retain(|waiter| waiter.number != self.number);
        if state.waiting.len() == there {
            state.remove(&self.claim);
        }
        self.room.serve(&mut state);
    }
}

/// A reservation, released on drop.
pub struct Held {
    room: Arc<Room>,
    claim: Claim,
}

impl Held {
    /// Whether somebody waits for what this is.
    pub fn is_wanted(&self) -> bool {
        self.room.is_short_because_of(&self.claim)
    }

    /// Releases what is beyond this many units.
    pub fn shrink_to(&mut self, units: usize) {
        let beyond = self.claim.units.saturating_sub(units);
        let mut state = self.room.lock();
        state.remove(&Claim { units: beyond, ..self.claim.clone() });
        self.claim.units -= beyond;
        self.room.serve(&mut state);
    }

    /// Has it be so many units more, if that needs no waiting and is not beyond its namespace's part.
    pub fn grow_now(&mut self, units: usize) -> Result<(), NoRoom> {
        let grown = Claim { units: self.claim.units + units, ..self.claim.clone() };
        if grown.units > self.room.most(&grown) {
            return Err(NoRoom::Never);
        }
        self.change_now(grown)
    }

    /// Has what was for an answer be for a request, if that needs no waiting.
    pub fn becomes_request_now(&mut self) -> Result<(), NoRoom> {
        self.change_now(Claim { purpose: Purpose::Request, ..self.claim.clone() })
    }

    /// It is not behind those who wait, because whoever holds something must not wait.
    fn change_now(&mut self, claim: Claim) -> Result<(), NoRoom> {
        let mut state = self.room.lock();
        state.remove(&self.claim);
        let lack = self.room.lack(&state, &claim);
        if lack.is_none() {
            self.claim = claim;
        }
        state.add(&self.claim);
        self.room.serve(&mut state);
        if lack.is_some() { Err(lack.into()) } else { Ok(()) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.room.lock();
        state.remove(&self.claim);
        self.room.serve(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNITS: usize = 16;

    #[derive(Clone, Debug)]
    enum Step {
        Claim(Claim),
        GiveUp(usize),
        Release(usize),
        Grow(usize, usize),
        Shrink(usize, usize),
        BecomeRequest(usize),
    }

    fn claim() -> impl Strategy<Value = Claim> {
        let payers = [
            ("guest", Portion::ThreeQuarters),
            ("acme", Portion::Quarter),
            ("other", Portion::Quarter),
        ];
        let payers =
            payers.map(|(name, portion)| Payer { namespace: name.parse().unwrap(), portion });
        let purposes = prop_oneof![Just(Purpose::Request), Just(Purpose::Answer)];
        let units = prop_oneof![4 => 1..5_usize, 1 => 1..=UNITS];
        (prop::sample::select(payers.to_vec()), purposes, units).prop_map(
            |(payer, purpose, units)| {
                let units = units.min(Room::new(UNITS).most_for(purpose));
                Claim { payer, purpose, units }
            },
        )
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => claim().prop_map(Step::Claim),
            1 => (0..99_usize).prop_map(Step::GiveUp),
            4 => (0..99_usize).prop_map(Step::Release),
            1 => (0..99_usize, 1..5_usize).prop_map(|(which, units)| Step::Grow(which, units)),
            1 => (0..99_usize, 0..5_usize).prop_map(|(which, units)| Step::Shrink(which, units)),
            1 => (0..99_usize).prop_map(Step::BecomeRequest),
        ];
        prop::collection::vec(step, 1..60)
    }

    /// Those of this purpose of a namespace hold no more than `most`, unless it is one alone.
    fn within(held: &[Held], purpose: Purpose, namespace: &Namespace, most: usize) -> bool {
        let is_one =
            |claim: &&Claim| claim.purpose == purpose && claim.payer.namespace == *namespace;
        let all: Vec<_> = held.iter().map(|held| &held.claim).filter(is_one).collect();
        all.len() < 2 || all.iter().map(|claim| claim.units).sum::<usize>() <= most
    }

    fn check(room: &Arc<Room>, held: &[Held]) {
        let state = room.lock();
        let sum = held.iter().map(|held| held.claim.units).sum::<usize>();
        assert!(state.taken.all() == sum && sum <= UNITS);
        let by_requests = held.iter().filter(|held| held.claim.purpose == Purpose::Request);
        let by_requests = by_requests.map(|held| held.claim.units).sum::<usize>();
        assert!(by_requests <= room.most_for(Purpose::Request));
        for claim in held.iter().map(|held| &held.claim) {
            let namespace = &claim.payer.namespace;
            assert!(within(held, claim.purpose, namespace, room.most(claim)), "{claim:?}");
        }
        // Whoever lacks nothing waits behind somebody who wants no more than his part and for whom there is no room.
        for (index, waiter) in state.waiting.iter().enumerate() {
            if room.lack(&state, &waiter.claim).is_none() {
                let keeps = |before: &Waiter| {
                    before.claim.units <= room.most(&before.claim)
                        && room.lack(&state, &before.claim).is_some_and(|lack| lack != Lack::Part)
                };
                assert!(state.waiting.iter().take(index).any(keeps), "{:?}", waiter.claim);
            }
        }
    }

    proptest! {
        #[test]
        fn each_keeps_to_its_part_and_nobody_waits_for_nothing(steps in steps()) {
            let room = Room::new(UNITS);
            let (mut waiting, mut held) = (Vec::new(), Vec::<Held>::new());
            for step in steps {
                let which = |which: usize| if held.is_empty() { None } else { Some(which % held.len()) };
                match step {
                    Step::Claim(claim) => waiting.push(Waiting::begin(&room, claim).0),
                    Step::GiveUp(which) if !waiting.is_empty() => {
                        let which = which % waiting.len();
                        drop(waiting.swap_remove(which));
                    }
                    Step::Release(index) => {
                        if let Some(index) = which(index) {
                            drop(held.swap_remove(index));
                        }
                    }
                    Step::Grow(index, units) => {
                        if let Some(index) = which(index) {
                            let before = held[index].claim.units;
                            let grown = held[index].grow_now(units).is_ok();
                            let claim = &held[index].claim;
                            let right = if grown { before + units } else { before };
                            prop_assert_eq!(claim.units, right);
                            prop_assert!(!grown || right <= room.most(claim));
                        }
                    }
                    Step::Shrink(index, units) => {
                        if let Some(index) = which(index) {
                            held[index].shrink_to(units.max(1));
                        }
                    }
                    Step::BecomeRequest(index) => {
                        if let Some(index) = which(index) {
                            let _ = held[index].becomes_request_now();
                        }
                    }
                    Step::GiveUp(_) => {}
                }
                let served: Vec<_> = waiting
                    .extract_if(.., |waiting| !room.lock().waits(waiting.number))
                    .collect();
                for waiting in served {
                    held.push(waiting.end().ok().unwrap());
                }
                check(&room, &held);
            }
            // All are served in the end, if those who are served go.
            while !waiting.is_empty() {
                prop_assert!(!held.is_empty());
                held.clear();
                let served: Vec<_> = waiting
                    .extract_if(.., |waiting| !room.lock().waits(waiting.number))
                    .collect();
                for waiting in served {
                    held.push(waiting.end().ok().unwrap());
                }
            }
            held.clear();
            prop_assert!(room.lock().by_namespace.is_empty());
        }
    }
}
