//! Turns at what only a few can do at a time: each namespace has a line of its own before it, so that one that does much
//! of it keeps others waiting no longer than one that does a little, and the operator's never.

use crate::mutex::lock;
use squeezy_openwhisk::Namespace;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Those who have a turn, and those who wait for one.
pub struct Lines {
    of_guest: Arc<Semaphore>,
    of_others: Arc<Semaphore>,
    /// One for each namespace but the operator's in which somebody is.
    lines: Mutex<BTreeMap<Namespace, Arc<Semaphore>>>,
    at_a_time: usize,
}

/// A turn, which ends when this is dropped.
pub struct Turn {
    in_line: Option<OwnedSemaphorePermit>,
    slot: Option<OwnedSemaphorePermit>,
    at_a_time: usize,
}

impl Lines {
    /// So many turns at a time for the operator's namespace, and so many for all others, one for each.
    pub fn new(at_a_time: usize) -> Self {
        let slots = || Arc::new(Semaphore::new(at_a_time));
        Self { of_guest: slots(), of_others: slots(), lines: Mutex::default(), at_a_time }
    }

    /// Waits for a namespace's turn. Whoever waits in a line has no slot.
    pub async fn turn(&self, namespace: &Namespace) -> Turn {
        let (line, slots) = self.way(namespace);
        let in_line = match line {
            Some(line) => line.acquire_owned().await.ok(),
            None => None,
        };
        let slot = slots.clone().acquire_owned().await.ok();
        Turn { in_line, slot, at_a_time: self.at_a_time }
    }

    /// A namespace's turn, if it need not be waited for.
    pub fn turn_now(&self, namespace: &Namespace) -> Option<Turn> {
        let (line, slots) = self.way(namespace);
        let in_line = line.map(Semaphore::try_acquire_owned).transpose().ok()?;
        let slot = slots.clone().try_acquire_owned().ok()?;
        Some(Turn { in_line, slot: Some(slot), at_a_time: self.at_a_time })
    }

    /// How many of a namespace have a turn or wait for one.
    pub fn length(&self, namespace: &Namespace) -> usize {
        match namespace.is_guest() {
            true => length(&self.of_guest),
            false => self.lines().get(namespace).map_or(0, length),
        }
    }

    /// The line that a namespace's turns are waited for in, if it has one, and then the slots.
    fn way(&self, namespace: &Namespace) -> (Option<Arc<Semaphore>>, &Arc<Semaphore>) {
        match namespace.is_guest() {
            true => (None, &self.of_guest),
            false => (Some(self.line(namespace)), &self.of_others),
        }
    }

    fn line(&self, namespace: &Namespace) -> Arc<Semaphore> {
        let mut lines = self.lines();
        lines.retain(|_, line| length(line) > 0);
        lines.entry(namespace.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }

    fn lines(&self) -> MutexGuard<'_, BTreeMap<Namespace, Arc<Semaphore>>> {
        lock(&self.lines)
    }
}

impl Turn {
    /// Whether somebody waits for it.
    pub fn is_wanted(&self) -> bool {
        let has_more = |permit: &Option<OwnedSemaphorePermit>, most: usize| {
            permit.as_ref().is_some_and(|permit| length(permit.semaphore()) > most)
        };
        has_more(&self.in_line, 1) || has_more(&self.slot, self.at_a_time)
    }
}

/// How many have a permit of a semaphore or wait for one: all that have it, but [`Lines`].
fn length(semaphore: &Arc<Semaphore>) -> usize {
    Arc::strong_count(semaphore) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn waits(lines: &Lines, namespace: &str) -> bool {
        let namespace = namespace.parse().unwrap();
        let turn = lines.turn(&namespace);
        tokio::time::timeout(Duration::from_millis(20), turn).await.is_err()
    }

    #[tokio::test]
    async fn each_waits_for_its_own_and_the_operator_for_no_other() {
        let lines = Lines::new(2);
        let acme = lines.turn(&"acme".parse().unwrap()).await;
        assert!(waits(&lines, "acme").await && !waits(&lines, "other").await);
        let other = lines.turn(&"other".parse().unwrap()).await;
        assert!(waits(&lines, "third").await && !waits(&lines, "guest").await);
        drop(other);
        assert!(waits(&lines, "acme").await && !waits(&lines, "third").await);
        drop(acme);
        assert!(!waits(&lines, "acme").await);
    }

    #[tokio::test]
    async fn who_does_not_wait_gets_a_turn_that_nobody_has_or_waits_for() {
        let lines = Lines::new(1);
        let (acme, other): (Namespace, Namespace) =
            ("acme".parse().unwrap(), "other".parse().unwrap());
        let turn = lines.turn_now(&acme).unwrap();
        assert!(waits(&lines, "acme").await && waits(&lines, "other").await);
        assert!(lines.turn_now(&acme).is_none() && lines.turn_now(&other).is_none());
        let of_guest = lines.turn_now(&Namespace::guest());
        assert!(of_guest.is_some() && lines.turn_now(&Namespace::guest()).is_none());
        let (of_other, ()) = tokio::join!(lines.turn(&other), async {
            drop(turn);
            assert!(lines.turn_now(&acme).is_none(), "it is the one's who has waited for it");
        });
        drop(of_other);
        assert!(lines.turn_now(&acme).is_some());
    }

    #[tokio::test]
    async fn a_turn_is_wanted_while_somebody_waits_for_it() {
        let lines = Lines::new(1);
        let (acme, other): (Namespace, Namespace) =
            ("acme".parse().unwrap(), "other".parse().unwrap());
        let turn = lines.turn(&acme).await;
        assert!(!turn.is_wanted() && lines.length(&acme) == 1);
        for namespace in [&acme, &other] {
            let (waits, ()) = tokio::join!(
                tokio::time::timeout(Duration::from_millis(20), lines.turn(namespace)),
                async { assert!(turn.is_wanted(), "{namespace}") }
            );
            assert!(waits.is_err() && !turn.is_wanted());
        }
        let of_guest = lines.turn(&Namespace::guest()).await;
        assert!(!of_guest.is_wanted() && !turn.is_wanted());
        drop(turn);
        assert_eq!((lines.length(&acme), lines.length(&Namespace::guest())), (0, 1));
        // Nothing is kept of those who have been there.
        drop(lines.turn(&other).await);
        drop(lines.turn(&acme).await);
        assert_eq!(lines.lines().len(), 1);
    }
}
