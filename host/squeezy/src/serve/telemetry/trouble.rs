//! What the log says of a collector that does not take what it is sent: little, however often that changes.

use std::time::{Duration, Instant};

/// A collector that fails again within this time is not worth another line.
const QUIET: Duration = Duration::from_secs(600);

/// Whether the log has said that the collector fails.
#[derive(Default)]
pub struct Trouble {
    /// When it last did.
    said: Option<Instant>,
    /// Whether the log has not said yet that it works again.
    is_open: bool,
}

impl Trouble {
    /// It fails now. Whether to say so.
    pub fn begins(&mut self, now: Instant) -> bool {
        let is_news = !self.is_open && self.said.is_none_or(|said| now - said >= QUIET);
        if is_news {
            (self.said, self.is_open) = (Some(now), true);
        }
        is_news
    }

    /// It works. Whether to say so.
    pub fn ends(&mut self) -> bool {
        std::mem::take(&mut self.is_open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_that_comes_and_goes_does_not_fill_the_log() {
        let (mut trouble, begin) = (Trouble::default(), Instant::now());
        assert!(!trouble.ends());
        let mut lines = 0;
        for second in 0..3600 {
            lines += u32::from(trouble.begins(begin + Duration::from_secs(second)));
            lines += u32::from(trouble.ends());
        }
        assert_eq!(lines, 12);
        let mut trouble = Trouble::default();
        assert!(trouble.begins(begin) && !trouble.begins(begin + 2 * QUIET), "said once");
    }
}
