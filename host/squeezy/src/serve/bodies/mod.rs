//! Memory for the bodies of requests and responses: one budget, reserved before anything is read or
//! built.
//!
//! Half of it is for results and logs that wait to be written (`squeezy_store`). The other half is
//! for requests, from their first byte until their call has ended, and for responses until they have been sent; a
//! quarter of that is only for small ones, so that large ones do not crowd them out. Of both, each namespace has its
//! part ([`Part`]), so that none crowds out another.
//!
//! Clients without a key, who call web actions, have a budget of their own, so that they take nothing from
//! the others.

mod part;
mod room;

use super::lines::{Lines, Turn};
use crate::mutex::lock;
use axum::body::Bytes;
pub use part::{Part, Payer, Portion};
use room::{Held as HeldUnits, Room};
use squeezy_protocol::MAX_PAYLOAD_BYTES;
use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::sync::Semaphore;

/// The minimum and maximum of the budget in bytes; in between it is 1/32 of the node's memory.
const LEAST: u64 = 24 << 20;
const MOST: u64 = 64 << 20;

/// The same for the budget of clients without a key, which is 1/128 of it. Their answers that wait for a reservation
/// come on top.
const LEAST_FOR_STRANGERS: u64 = 12 << 20;
const MOST_FOR_STRANGERS: u64 = 16 << 20;

/// What such answers may take together, in bytes: one of the largest.
const WAITING_OF_STRANGERS: usize = MAX_PAYLOAD_BYTES;

/// The unit of the budget, in bytes.
const UNIT: usize = 1 << 10;

/// Bodies up to this size are small, in bytes.
pub const SMALL: usize = 16 << 10;

/// How long a reservation waits for others to be released.
const WAIT: Duration = Duration::from_secs(5);

/// How long a request with much code waits for its turn: longer than the body of one before it may take to arrive.
const WAIT_FOR_TURN: Duration = Duration::from_secs(45);

/// The share of a node's memory that is for bodies, in bytes.
pub fn share(memory_bytes: u64) -> u64 {
    (memory_bytes / 32).clamp(LEAST, MOST)
}

/// The share that is for bodies of clients without a key, in bytes.
pub fn share_for_strangers(memory_bytes: u64) -> u64 {
    let bytes = (memory_bytes / 128).clamp(LEAST_FOR_STRANGERS, MOST_FOR_STRANGERS);
    bytes + WAITING_OF_STRANGERS as u64
}

/// The budget.
pub struct Bodies {
    small: Arc<Room>,
    large: Arc<Room>,
    /// Turns of requests with much code.
    code: Lines,
    /// For answers that are there and wait for their reservation.
    waiting_answers: Semaphore,
    /// The budget for results and logs that wait to be written, in bytes.
    pub kept_bytes: usize,
}

/// A reservation, released on drop.
pub struct Held {
    units: HeldUnits,
    /// That of a request with much code.
    turn: Mutex<Option<Turn>>,
}

impl From<HeldUnits> for Held {
    fn from(units: HeldUnits) -> Self {
        Self { units, turn: Mutex::default() }
    }
}

impl Held {
    /// Whether somebody waits who would not if this were released, or not as long.
    pub fn is_wanted(&self) -> bool {
        self.units.is_wanted() || self.is_turn_wanted()
    }

    /// Whether somebody waits for the turn for much code, which this has.
    pub fn is_turn_wanted(&self) -> bool {
        self.turn().as_ref().is_some_and(Turn::is_wanted)
    }

    /// The turn for much code, which ends when what is returned is dropped.
    pub fn take_turn(&self) -> Option<Turn> {
        self.turn().take()
    }

    fn turn(&self) -> MutexGuard<'_, Option<Turn>> {
        lock(&self.turn)
    }

    /// Releases what is beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        self.units.shrink_to(bytes.div_ceil(UNIT));
    }

    /// Reserves `bytes` more, if they are available now and within the part: whoever holds a reservation never waits for
    /// another.
    pub fn grow_now(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.units.grow_now(bytes.div_ceil(UNIT))
    }

    /// What has been reserved for an answer is for a request from now on, unless there are too many already.
    pub fn becomes_request_now(&mut self) -> Result<(), NoRoom> {
        self.units.becomes_request_now()
    }
}

/// Why a reservation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Others hold the memory; retrying later may succeed.
    Now,
    /// The namespace holds as much as it may; retrying later may succeed.
    OfPart,
    /// It exceeds what there ever is for one.
    Never,
}

impl Bodies {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Arc<Self> {
        let half = usize::try_from(bytes / 2).unwrap_or(usize::MAX);
        Self::with(half, half, Semaphore::MAX_PERMITS)
    }

    /// A budget of `bytes` for clients without a key, all of it for requests and responses.
    pub fn for_strangers(bytes: u64) -> Arc<Self> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let waiting_bytes = WAITING_OF_STRANGERS;
        Self::with(bytes.saturating_sub(waiting_bytes), 0, waiting_bytes / UNIT)
    }

    fn with(bytes: usize, kept_bytes: usize, waiting_units: usize) -> Arc<Self> {
        Arc::new(Self {
            small: Room::new(bytes / 4 / UNIT),
            large: Room::new((bytes - bytes / 4) / UNIT),
            code: Lines::new(1),
            waiting_answers: Semaphore::new(waiting_units),
            kept_bytes,
        })
    }

    /// What somebody may have of it.
    pub fn part(self: &Arc<Self>, payer: Payer) -> Part {
        Part::new(self.clone(), payer)
    }
}

/// Bytes whose reservation, which `held` is or has, is released once the last of them has been sent.
pub fn held<T: Send + 'static>(bytes: Vec<u8>, held: T) -> Bytes {
    struct Owner<T>(Vec<u8>, #[allow(dead_code, reason = "held")] T);
    impl<T> AsRef<[u8]> for Owner<T> {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Owner(bytes, held))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_gives_a_small_part_of_its_memory() {
        assert_eq!(share(1 << 30), 32 << 20);
        assert_eq!((share(0), share(u64::MAX)), (LEAST, MOST));
        assert_eq!(share_for_strangers(1536 << 20), 20 << 20);
        let strangers = Bodies::for_strangers(share_for_strangers(0));
        assert_eq!(strangers.kept_bytes, 0);
        // A body of 1 MiB of the smallest part, and what is made of it.
        let part = strangers.part(Payer::named("acme"));
        assert!(part.take_for_request(6 << 20).await.is_ok());
    }

    #[test]
    fn the_manual_says_how_much_that_is() {
        let manual = include_str!("../../../../../docs/operations.md");
        let range = |least: u64, most: u64| format!("{} to {} MiB", least >> 20, most >> 20);
        let all = range(LEAST, MOST);
        let strangers = range(share_for_strangers(0), share_for_strangers(u64::MAX));
        let said = format!("have 1/32, from {all}, and {strangers} more for those of clients");
        assert!(manual.contains(&said), "{said}");
        let strangers = range(LEAST_FOR_STRANGERS, MOST_FOR_STRANGERS);
        let waiting = WAITING_OF_STRANGERS >> 20;
        let said = format!("1/128 of `memory` for themselves, from {strangers}, and {waiting} MiB");
        assert!(manual.contains(&said), "{said}");
    }
}
