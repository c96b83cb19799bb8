//! Time, as the caller tells it.

use std::{ops::Add, time::Duration};

/// A moment, as the time since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(pub Duration);

impl Moment {
    /// When the run begins.
    pub const START: Self = Self(Duration::ZERO);

    /// The time that has passed since `earlier`, zero when that lies ahead.
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
