//! Memory for what clients send and are sent: one budget for all, taken before any of it is read or made.
//!
//! Half of it is for results and logs that are kept (`activation`), half for requests from their first
//! byte until their call has ended, and for answers until they have been sent. A quarter of that is for
//! small ones alone, so that large ones do not keep those out.

use axum::body::Bytes;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Least and most of the node's memory that they get; otherwise its thirty-second part. Bytes.
const LEAST: u64 = 16 << 20;
const MOST: u64 = 64 << 20;

/// What is counted in.
const UNIT: usize = 1 << 10;

/// What counts as small, in bytes.
const SMALL: usize = 16 << 10;

/// How long one waits for others to be done with theirs.
const WAIT: Duration = Duration::from_secs(5);

/// How much of a node's memory is for bodies, in bytes.
pub fn share(memory_bytes: u64) -> u64 {
    (memory_bytes / 32).clamp(LEAST, MOST)
}

/// The memory for them.
pub struct Bodies {
    small: Room,
    large: Room,
    /// What may be kept of results and logs, in bytes.
    pub kept_bytes: usize,
}

struct Room {
    units: u32,
    free: Arc<Semaphore>,
    /// How many wait for some of it.
    waiting: AtomicUsize,
}

/// Memory that one has, as long as it has this.
#[derive(Debug)]
pub struct Held {
    _permit: OwnedSemaphorePermit,
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Others have it; it may be there soon.
    Now,
    /// It is more than there is in all.
    Never,
}

impl Bodies {
    /// So many bytes of them.
    pub fn new(bytes: u64) -> Arc<Self> {
        let half = usize::try_from(bytes / 2).unwrap_or(usize::MAX);
        let room = |bytes: usize| {
            let units = (bytes / UNIT).min(Semaphore::MAX_PERMITS);
            let free = Arc::new(Semaphore::new(units));
            let units = u32::try_from(units).unwrap_or(u32::MAX);
            Room { units, free, waiting: AtomicUsize::new(0) }
        };
        Arc::new(Self { small: room(half / 4), large: room(half - half / 4), kept_bytes: half })
    }

    /// So many bytes, as soon as others are done with theirs, but not for ever.
    pub async fn take(&self, bytes: usize) -> Result<Held, NoRoom> {
        let (room, units) = self.room(bytes)?;
        if let Ok(held) = self.take_now(bytes) {
            return Ok(held);
        }
        let _waiting = Waiting::new(&room.waiting);
        let acquire = room.free.clone().acquire_many_owned(units);
        match tokio::time::timeout(WAIT, acquire).await {
            Ok(Ok(permit)) => Ok(Held { _permit: permit }),
            _ => Err(NoRoom::Now),
        }
    }

    /// So many bytes, if they are there.
    pub fn take_now(&self, bytes: usize) -> Result<Held, NoRoom> {
        let (room, units) = self.room(bytes)?;
        let permit = room.free.clone().try_acquire_many_owned(units);
        permit.map(|permit| Held { _permit: permit }).map_err(|_| NoRoom::Now)
    }

    fn room(&self, bytes: usize) -> Result<(&Room, u32), NoRoom> {
        let room = if bytes <= SMALL { &self.small } else { &self.large };
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        if units > room.units { Err(NoRoom::Never) } else { Ok((room, units)) }
    }

    /// The most that one alone can have, or less if it does not need so much.
    pub fn at_most(&self, bytes: usize) -> usize {
        bytes.min(self.large.units as usize * UNIT)
    }

    /// Whether somebody waits because others have all of it.
    pub fn is_short(&self) -> bool {
        [&self.small, &self.large].iter().any(|room| room.waiting.load(Ordering::Relaxed) > 0)
    }
}

/// One who waits.
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

/// Bytes whose memory is given back when the last of them has been sent.
pub fn held(bytes: Vec<u8>, held: Held) -> Bytes {
    struct Owner(Vec<u8>, #[expect(dead_code, reason = "held")] Held);
    impl AsRef<[u8]> for Owner {
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

    #[test]
    fn a_node_gives_a_small_part_of_its_memory() {
        assert_eq!(share(1 << 30), 32 << 20);
        assert_eq!((share(0), share(u64::MAX)), (LEAST, MOST));
    }
}
