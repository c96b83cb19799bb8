//! What becomes of a guest that uses memory that the host keeps.

use squeezy_llfree::TREE_AREAS;
use std::time::{Duration, Instant};

/// How much may have been used at a look.
///
/// An honest kernel reads up to seven bytes past the end of a page (`load_unaligned_zeropad`), of a name or a packet
/// that a function has given it, say. Behind the last page of an area there may be one that the host keeps, and then the
/// read has the host put a page there, of up to 2 MiB. A function that fills all it may have for that can have it done
/// wherever an area of its own is before one that is kept: it ends its VM if that is so in nine places or more. A guest
/// that breaks the rules can use as much, and it is discarded at the next look. Places are what counts, not how large the
/// host's pages are there: each is work for the host.
const STRAY_AREAS: u64 = TREE_AREAS as u64;
/// How long a warning counts. Whoever reads the memory of the VMM (`gcore`) may do so again.
const WARNED_FOR: Duration = Duration::from_mins(10);

/// What it takes to end a VM.
#[derive(Debug, Default)]
pub(super) struct Lenience {
    /// When the guest was warned.
    warned: Option<Instant>,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Lives,
    IsWarned,
    Ends,
}

impl Lenience {
    /// Judges a guest that has used something in so many areas since the last look.
    pub(super) fn judge(&mut self, areas: u64, now: Instant) -> Verdict {
        if areas <= STRAY_AREAS {
            return Verdict::Lives;
        }
        let before = self.warned.replace(now);
        match before {
            Some(before) if now.duration_since(before) < WARNED_FOR => Verdict::Ends,
            _ => Verdict::IsWarned,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_uses_a_few_areas_again_and_again_lives() {
        let (mut lenience, now) = (Lenience::default(), Instant::now());
        for second in 0..3600 {
            let areas = STRAY_AREAS - second % 8;
            let verdict = lenience.judge(areas, now + Duration::from_secs(second));
            assert_eq!(verdict, Verdict::Lives);
        }
    }

    #[test]
    fn who_uses_more_is_warned_and_ended_if_that_was_not_long_ago() {
        let (mut lenience, start) = (Lenience::default(), Instant::now());
        let mut judge =
            |areas, seconds| lenience.judge(areas, start + Duration::from_secs(seconds));
        assert_eq!(judge(STRAY_AREAS + 1, 1), Verdict::IsWarned);
        assert_eq!(judge(STRAY_AREAS, 2), Verdict::Lives);
        assert_eq!(judge(STRAY_AREAS + 1, 601), Verdict::IsWarned);
        assert_eq!(judge(u64::MAX, 1200), Verdict::Ends);
    }
}
