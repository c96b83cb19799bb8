//! One host at a time works on a guest's state.

use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock, open},
    io::Errno,
};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// A file is locked against others who would work on the same state. The VMM has the same open file, so the lock is
/// on one of our own, which goes with this process.
#[derive(Debug)]
pub(super) struct StateLock(OwnedFd);

impl StateLock {
    /// Fails at once if somebody else has it, and says why.
    pub(super) fn new(file: &impl AsFd) -> Result<Self, String> {
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        let own = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(cannot_lock)?;
        flock(&own, FlockOperation::NonBlockingLockExclusive).map_err(cannot_lock)?;
        Ok(Self(own))
    }
}

fn cannot_lock(error: Errno) -> String {
    match error {
        Errno::WOULDBLOCK => "somebody else works on it".to_owned(),
        error => format!("its file cannot be locked: {error}"),
    }
}

impl Drop for StateLock {
    /// A child that has just been forked still has the open file, and the lock with it.
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_late_is_told_that_somebody_else_works_on_it() {
        let file = tempfile::tempfile().unwrap();
        let first = StateLock::new(&file).unwrap();
        assert_eq!(StateLock::new(&file).unwrap_err(), "somebody else works on it");
        drop(first);
        StateLock::new(&file).unwrap();
        let error = cannot_lock(Errno::NOLCK);
        assert!(error.contains("cannot be locked") && !error.contains("somebody"), "{error}");
    }
}
