//! Memory for the bodies of requests and responses: one budget, reserved before anything is read or
//! built.
//!
//! Half of it is for results and logs that wait to be written (`squeezy_store`). The other half is
//! for requests, from their first byte until their call has ended, and for responses until they have been sent; a
//! quarter of that is only for small ones, so that large ones do not crowd them out.
//!
//! Clients without a key, who call web actions, have a budget of their own, so that they take nothing from
//! the others.

use axum::body::Bytes;
use squeezy_protocol::MAX_PAYLOAD_BYTES;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The minimum and maximum of the budget in bytes; in between it is 1/32 of the node's memory.
const LEAST: u64 = 16 << 20;
const MOST: u64 = 64 << 20;

/// The same for the budget of clients without a key, which is 1/128 of it. Their answers that wait for a reservation
/// come on top.
const LEAST_FOR_STRANGERS: u64 = 8 << 20;
const MOST_FOR_STRANGERS: u64 = 16 << 20;

/// What such answers may take together, in bytes: one of the largest.
const WAITING_OF_STRANGERS: usize = MAX_PAYLOAD_BYTES;

/// The unit of the budget, in bytes.
const UNIT: usize = 1 << 10;

/// Bodies up to this size are small, in bytes.
const SMALL: usize = 16 << 10;

/// How long a reservation waits for others to be released.
const WAIT: Duration = Duration::from_secs(5);

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
    small: Room,
    large: Room,
    /// For answers that are there and wait for their reservation.
    waiting_answers: Semaphore,
    /// The budget for results and logs that wait to be written, in bytes.
    pub kept_bytes: usize,
}

struct Room {
    units: u32,
    free: Arc<Semaphore>,
    /// How many reservations are waiting.
    waiting: AtomicUsize,
}

/// A reservation, released on drop.
#[derive(Debug)]
pub struct Held {
    permit: OwnedSemaphorePermit,
}

impl Held {
    /// How much it is, in bytes.
    pub fn bytes(&self) -> usize {
        self.permit.num_permits() * UNIT
    }

    /// Releases what is beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let beyond = self.permit.num_permits().saturating_sub(bytes.div_ceil(UNIT));
        drop(self.permit.split(beyond));
    }
}

/// Why a reservation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Others hold the memory; retrying later may succeed.
    Now,
    /// It exceeds the whole budget.
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
        let room = |bytes: usize| {
            let units = (bytes / UNIT).min(Semaphore::MAX_PERMITS);
            let free = Arc::new(Semaphore::new(units));
            let units = u32::try_from(units).unwrap_or(u32::MAX);
            Room { units, free, waiting: AtomicUsize::new(0) }
        };
        Arc::new(Self {
            small: room(bytes / 4),
            large: room(bytes - bytes / 4),
            waiting_answers: Semaphore::new(waiting_units),
            kept_bytes,
        })
    }

    /// Reserves `bytes`. Waits for others to release theirs, for a limited time.
    pub async fn take(&self, bytes: usize) -> Result<Held, NoRoom> {
        let (room, units) = self.room(bytes)?;
        if let Ok(held) = self.take_now(bytes) {
            return Ok(held);
        }
        let _waiting = Waiting::new(&room.waiting);
        let acquire = room.free.clone().acquire_many_owned(units);
        match tokio::time::timeout(WAIT, acquire).await {
            Ok(Ok(permit)) => Ok(Held { permit }),
            _ => Err(NoRoom::Now),
        }
    }

    /// Reserves `bytes` for an answer whose text, of `text_bytes`, is there already and has no reservation. Waits
    /// like [`Self::take`], but only as long as there are not too many that do.
    pub async fn take_for_answer(&self, bytes: usize, text_bytes: usize) -> Result<Held, NoRoom> {
        if let Ok(held) = self.take_now(bytes) {
            return Ok(held);
        }
        let units = u32::try_from(text_bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let _waits = self.waiting_answers.try_acquire_many(units).map_err(|_| NoRoom::Now)?;
        self.take(bytes).await
    }

    /// Reserves `bytes` if they are available now.
    pub fn take_now(&self, bytes: usize) -> Result<Held, NoRoom> {
        let (room, units) = self.room(bytes)?;
        let permit = room.free.clone().try_acquire_many_owned(units);
        permit.map(|permit| Held { permit }).map_err(|_| NoRoom::Now)
    }

    fn room(&self, bytes: usize) -> Result<(&Room, u32), NoRoom> {
        let room = if bytes <= SMALL { &self.small } else { &self.large };
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        if units > room.units { Err(NoRoom::Never) } else { Ok((room, units)) }
    }

    /// `bytes`, limited to the maximum of a single reservation.
    pub fn at_most(&self, bytes: usize) -> usize {
        bytes.min(self.large.units as usize * UNIT)
    }

    /// All of it that is for requests and responses, in bytes.
    pub fn bytes(&self) -> usize {
        [&self.small, &self.large].iter().map(|room| room.units as usize * UNIT).sum()
    }

    /// Whether a reservation is waiting because others hold all the memory.
    pub fn is_short(&self) -> bool {
        [&self.small, &self.large].iter().any(|room| room.waiting.load(Ordering::Relaxed) > 0)
    }
}

/// A waiting reservation.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
    async fn there_is_no_more_than_there_is() {
        let bodies = Bodies::new(64 << 20);
        let most = bodies.at_most(usize::MAX);
        assert_eq!(most, 24 << 20);
        assert_eq!(bodies.take(most + UNIT).await.unwrap_err(), NoRoom::Never);
        let all = bodies.take(most).await.unwrap();
        assert!(!bodies.is_short());
        let small = bodies.take(SMALL).await.unwrap();
        let (waits, short) = tokio::join!(bodies.take(SMALL + 1), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            bodies.is_short()
        });
        assert!(short && waits.unwrap_err() == NoRoom::Now);
        drop((all, small));
        let again = bodies.take(most).await.unwrap();
        let sent = held(vec![0; 10], again);
        let part = sent.slice(2..4);
        drop(sent);
        assert_eq!(bodies.large.free.available_permits(), 0);
        drop(part);
        assert_eq!(bodies.large.free.available_permits(), most / UNIT);
    }

    #[tokio::test]
    async fn answers_of_strangers_wait_only_if_few_of_them_do() {
        let bodies = Bodies::for_strangers(share_for_strangers(0));
        let mut all = bodies.take(bodies.at_most(usize::MAX)).await.unwrap();
        let answer = || bodies.take_for_answer(1 << 20, WAITING_OF_STRANGERS);
        let (first, second) = tokio::join!(answer(), async {
            let begin = std::time::Instant::now();
            let second = bodies.take_for_answer(1 << 20, UNIT).await;
            assert!(begin.elapsed() < WAIT / 2, "it is refused at once");
            // The rest stays reserved.
            all.shrink_to(5 << 20);
            second
        });
        assert_eq!(second.unwrap_err(), NoRoom::Now);
        assert!(first.is_ok() && bodies.take_now(SMALL + 1).is_err());
        assert!(answer().await.is_err() && bodies.take_now(SMALL).is_ok());
        drop(all);
        assert!(answer().await.is_ok());
    }

    #[test]
    fn a_node_gives_a_small_part_of_its_memory() {
        assert_eq!(share(1 << 30), 32 << 20);
        assert_eq!((share(0), share(u64::MAX)), (LEAST, MOST));
        assert_eq!(share_for_strangers(1280 << 20), 18 << 20);
        let strangers = Bodies::for_strangers(share_for_strangers(0));
        // A body of 1 MiB, and what is made of it.
        assert_eq!((strangers.at_most(usize::MAX), strangers.kept_bytes), (6 << 20, 0));
    }
}
