//! Time, as passed in by the caller.

use std::{ops::Add, time::Duration};

/// A point in time, as the time since the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(pub Duration);

impl Moment {
    /// The start of the run.
    pub const START: Self = Self(Duration::ZERO);

    /// The time passed since `earlier`; zero if that lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}
