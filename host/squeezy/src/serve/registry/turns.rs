//! Turns to ask registries and to pull: a registry that is slow for one namespace keeps no other one waiting, unless
//! several do the same, and the operator's never.

use super::lock;
use squeezy_openwhisk::Namespace;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many images are pulled at a time for the operator's namespace, and how many for all others, one for each: each
/// takes a processor, and the disk.
const AT_A_TIME: usize = 2;

/// How many requests to registries what a tag means are under way for the operator's namespace, and how many for all
/// others, one for each.
const MOST_ASKING: usize = 4;

/// Those who pull or ask, and those who wait for that.
pub struct Turns {
    to_pull: Lines,
    to_ask: Lines,
}

/// A turn, which ends when this is dropped.
pub struct Turn {
    _in_line: Option<OwnedSemaphorePermit>,
    _slot: Option<OwnedSemaphorePermit>,
}

struct Lines {
    of_guest: Arc<Semaphore>,
    of_others: Arc<Semaphore>,
    /// One for each namespace but the operator's.
    lines: Mutex<BTreeMap<Namespace, Arc<Semaphore>>>,
}

impl Turns {
    pub fn new() -> Self {
        Self { to_pull: Lines::new(AT_A_TIME), to_ask: Lines::new(MOST_ASKING) }
    }

    /// Waits for a namespace's turn to pull.
    pub async fn to_pull(&self, namespace: &Namespace) -> Turn {
        self.to_pull.turn(namespace).await
    }

    /// Waits for a namespace's turn to ask what a tag means.
    pub async fn to_ask(&self, namespace: &Namespace) -> Turn {
        self.to_ask.turn(namespace).await
    }

    /// A namespace ends.
    pub fn forget(&self, namespace: &Namespace) {
        for lines in [&self.to_pull, &self.to_ask] {
            lock(&lines.lines).remove(namespace);
        }
    }
}

impl Lines {
    fn new(at_a_time: usize) -> Self {
        let slots = || Arc::new(Semaphore::new(at_a_time));
        Self { of_guest: slots(), of_others: slots(), lines: Mutex::default() }
    }

    async fn turn(&self, namespace: &Namespace) -> Turn {
        if namespace.is_guest() {
            return Turn {
                _in_line: None,
                _slot: self.of_guest.clone().acquire_owned().await.ok(),
            };
        }
        let one = || Arc::new(Semaphore::new(1));
        let line = lock(&self.lines).entry(namespace.clone()).or_insert_with(one).clone();
        let in_line = line.acquire_owned().await.ok();
        Turn { _in_line: in_line, _slot: self.of_others.clone().acquire_owned().await.ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn waits(turns: &Turns, namespace: &str) -> bool {
        let namespace = namespace.parse().unwrap();
        let turn = turns.to_pull(&namespace);
        tokio::time::timeout(Duration::from_millis(20), turn).await.is_err()
    }

    #[tokio::test]
    async fn each_waits_for_its_own_and_the_operator_for_no_other() {
        let turns = Turns::new();
        let acme = turns.to_pull(&"acme".parse().unwrap()).await;
        assert!(waits(&turns, "acme").await && !waits(&turns, "other").await);
        let other = turns.to_pull(&"other".parse().unwrap()).await;
        assert!(waits(&turns, "third").await && !waits(&turns, "guest").await);
        // Whoever waits in a line has no slot.
        drop(other);
        assert!(waits(&turns, "acme").await && !waits(&turns, "third").await);
        drop(acme);
        assert!(!waits(&turns, "acme").await);
    }
}
