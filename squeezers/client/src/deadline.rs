//! A limit on the whole of something.

use crate::{Error, Result};
use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// A moment after which nothing is waited for any more.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// The moment `limit` from now; a hundred years at most.
    pub fn after(limit: Duration) -> Self {
        const MOST: Duration = Duration::from_secs(100 * 365 * 86_400);
        Self(Instant::now() + limit.min(MOST))
    }

    /// An error that names `what` when it has passed.
    pub fn check(&self, what: &'static str) -> Result<()> {
        self.remaining(what).map(drop)
    }

    /// What is left, never zero; an error that names `what` when nothing is.
    pub(crate) fn remaining(&self, what: &'static str) -> Result<Duration> {
        let remaining = self.0.saturating_duration_since(Instant::now());
        if remaining.is_zero() { Err(Error::Deadline(what)) } else { Ok(remaining) }
    }

    /// Does `work` on a thread of its own, which is left behind when the deadline passes.
    ///
    /// For what reads another process's memory or files, which that process can make wait for as
    /// long as it lives (userfaultfd, FUSE). The thread ends with the process at the latest.
    pub(crate) fn bound<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let remaining = self.remaining(what)?;
        let (sender, receiver) = mpsc::sync_channel(1);
        thread::Builder::new()
            .name("squeezer".to_owned())
            .spawn(move || sender.send(work()))
            .map_err(|error| Error::system("a thread cannot be started", error))?;
        match receiver.recv_timeout(remaining) {
            Ok(result) => result,
            Err(mpsc::RecvTimeoutError::Timeout) => Err(Error::Deadline(what)),
            Err(mpsc::RecvTimeoutError::Disconnected) => panic!("{what}: its thread panicked"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_longer_is_left_behind() {
        let (release, wait) = mpsc::channel::<()>();
        let deadline = Deadline::after(Duration::from_millis(20));
        let result = deadline.bound("waiting", move || Ok(wait.recv()));
        assert!(matches!(result, Err(Error::Deadline("waiting"))), "{result:?}");
        // Only now: the work was still waiting when it was given up.
        drop(release);
    }

    #[test]
    fn what_is_in_time_gives_its_result() {
        let deadline = Deadline::after(Duration::MAX);
        assert_eq!(deadline.bound("counting", || Ok(6 * 7)).unwrap(), 42);
        let error = deadline.bound("looking", || Err::<(), _>(Error::NoProcess(7))).unwrap_err();
        assert!(matches!(error, Error::NoProcess(7)), "{error}");
    }

    #[test]
    fn nothing_begins_after_the_deadline() {
        let error = Deadline::after(Duration::ZERO).bound("this", || Ok(())).unwrap_err();
        assert!(matches!(error, Error::Deadline("this")), "{error}");
    }
}
