//! How many areas are in hand at a time.

use super::zone_memory::Discarded;
use squeezy_llfree::{AREA_BYTES, TREE_AREAS};
use std::time::Duration;

/// For how long areas are in hand, about. Meanwhile an allocation of the guest may have to wait.
const IN_HAND: Duration = Duration::from_millis(2);
/// The most areas at a time. It takes 0.6 ms to discard them as huge pages, and 26 ms as small ones, where those before
/// were huge.
pub(super) const MOST_AREAS: u32 = 128;
/// As long as nothing is known of the host: 0.2 ms of huge pages, 6 ms of small ones.
const FIRST_AREAS: u32 = 32;

/// What the last discard says about the next one.
#[derive(Debug)]
pub(super) struct Pace {
    areas: u32,
}

impl Pace {
    /// Of a host of which nothing is known.
    pub(super) fn unknown() -> Self {
        Self { areas: FIRST_AREAS }
    }

    /// How many areas can be in hand.
    pub(super) fn areas(&self) -> u32 {
        self.areas
    }

    /// Learns from what has been discarded. Areas with nothing behind them say nothing about others. The next batch is at
    /// most twice as large: what follows may be in pieces, or swapped out.
    pub(super) fn learn(&mut self, Discarded { bytes, took }: Discarded) {
        if bytes == 0 {
            return;
        }
        let areas = IN_HAND.as_nanos() * u128::from(bytes)
            / (took.as_nanos().max(1) * u128::from(AREA_BYTES));
        // Trees are taken as a whole.
        self.areas = u32::try_from(areas)
            .unwrap_or(u32::MAX)
            .clamp(TREE_AREAS, MOST_AREAS.min(2 * self.areas));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_as_large_as_the_last_one_was_fast() {
        let mut pace = Pace::unknown();
        let mut after = |areas: u64, bytes_of_each, microseconds| {
            let took = Duration::from_micros(microseconds);
            pace.learn(Discarded { bytes: areas * bytes_of_each, took });
            pace.areas()
        };
        // Nothing, huge pages, small ones, very slow ones, and one small page in each area.
        assert_eq!(after(32, 0, 0), FIRST_AREAS);
        assert_eq!(after(32, AREA_BYTES, 160), 64);
        assert_eq!(after(64, AREA_BYTES, 320), MOST_AREAS);
        assert_eq!(after(128, AREA_BYTES, 640), MOST_AREAS);
        assert_eq!(after(128, AREA_BYTES, 25_600), 10);
        assert_eq!(after(10, AREA_BYTES, 1_000_000), TREE_AREAS);
        assert_eq!(after(8, AREA_BYTES, 500), 16);
        assert_eq!(after(16, AREA_BYTES, 1000), 32);
        assert_eq!(after(32, 4096, 100), TREE_AREAS);
        assert_eq!(after(1, AREA_BYTES, 0), 16);
    }
}
