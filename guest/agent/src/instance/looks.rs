//! When instances are looked at that have a limit of their private memory.
//!
//! The looks have one budget, however many such instances there are: one is looked at at a time, and each waits the
//! longer, the more there are.

use std::{cell::Cell, time::Duration};
use tokio::sync::{Mutex, MutexGuard};

/// How much one processor is taken to fill in a millisecond, in bytes: an estimate.
const BYTES_PER_MS: u64 = 2 << 20;
/// The shortest time between two looks at an instance.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
/// The longest, whatever a look takes: it is how long an instance may go unseen.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Of a processor's time, looks take one part in so many.
const PAUSE_PER_LOOK: u32 = 20;

/// The looks at all instances of a VM.
#[derive(Debug, Default)]
pub(super) struct Looks {
    turn: Mutex<()>,
    /// The number of instances that have such a limit.
    watched: Cell<u32>,
}

impl Looks {
    /// Counts an instance with a limit until the guard is dropped.
    pub(super) fn watch(&self) -> Watched<'_> {
        self.watched.set(self.watched.get() + 1);
        Watched(self)
    }

    /// Waits until no other instance is looked at.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// How long not to look again at an instance of which so many bytes are missing to its limit, if looking took so
    /// much of a processor's time.
    pub(super) fn pause(&self, missing_bytes: u64, look: Duration, processors: u32) -> Duration {
        let bytes_per_ms = BYTES_PER_MS * u64::from(processors.max(1));
        let filled = Duration::from_millis(missing_bytes / bytes_per_ms);
        let share = look.saturating_mul(PAUSE_PER_LOOK).saturating_mul(self.watched.get());
        filled.max(share).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }
}

/// An instance that is counted.
#[derive(Debug)]
pub(super) struct Watched<'a>(&'a Looks);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.watched.set(self.0.watched.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_near_the_limit_is_looked_at_sooner() {
        let (looks, none) = (Looks::default(), Duration::ZERO);
        assert_eq!(looks.pause(0, none, 1), SHORTEST_PAUSE);
        assert_eq!(looks.pause(256 << 20, none, 1), Duration::from_millis(128));
        assert_eq!(looks.pause(u64::MAX, none, 1), LONGEST_PAUSE);
    }

    #[test]
    fn all_processors_may_fill_memory_at_once() {
        let looks = Looks::default();
        assert_eq!(looks.pause(256 << 20, Duration::ZERO, 4), Duration::from_millis(32));
        assert_eq!(looks.pause(256 << 20, Duration::ZERO, 0), Duration::from_millis(128));
    }

    #[test]
    fn all_looks_together_take_a_part_of_a_processor() {
        let looks = Looks::default();
        let look = Duration::from_millis(4);
        let one = looks.watch();
        assert_eq!(looks.pause(0, look, 2), Duration::from_millis(80));
        let others: Vec<_> = (0..9).map(|_| looks.watch()).collect();
        assert_eq!(looks.pause(0, look, 2), Duration::from_millis(800));
        drop(others);
        assert_eq!(looks.pause(0, look, 2), Duration::from_millis(80));
        // Nobody is left alone for longer, whatever he makes looking take.
        assert_eq!(looks.pause(0, Duration::from_secs(60), 2), LONGEST_PAUSE);
        drop(one);
    }

    #[tokio::test]
    async fn one_is_looked_at_at_a_time() {
        let looks = Looks::default();
        let turn = looks.turn().await;
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, looks.turn()).await.is_err());
        drop(turn);
        assert!(tokio::time::timeout(soon, looks.turn()).await.is_ok());
    }
}
