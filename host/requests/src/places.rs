//! A number of places that are taken and given back.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// Places, of which some are free.
pub struct Places {
    free: Mutex<usize>,
    given_back: Condvar,
}

/// One of them, until it is dropped.
pub struct Place<'a>(&'a Places);

impl Places {
    /// So many.
    pub fn new(free: usize) -> Self {
        Self { free: Mutex::new(free), given_back: Condvar::new() }
    }

    /// One of them, as soon as one is free; nothing if none is by then.
    pub fn take(&self, until: Instant) -> Option<Place<'_>> {
        let patience = until.saturating_duration_since(Instant::now());
        let (mut free, _) = self
            .given_back
            .wait_timeout_while(self.free(), patience, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free = free.checked_sub(1)?;
        Some(Place(self))
    }

    fn free(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.free() += 1;
        self.0.given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
        time::Duration,
    };

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn no_more_have_one_than_there_are() {
        let (places, inside) = (Places::new(2), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _place = places.take(Instant::now() + LONG).unwrap();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                    thread::sleep(Duration::from_millis(2));
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(*places.free(), 2, "all are free");
    }

    #[test]
    fn whoever_has_waited_for_long_goes_without() {
        let places = Places::new(1);
        let place = places.take(Instant::now()).unwrap();
        let until = Instant::now() + Duration::from_millis(20);
        assert!(places.take(until).is_none());
        assert!(Instant::now() >= until);
        drop(place);
        assert!(places.take(until).is_some(), "one that is free is not waited for");
    }
}
