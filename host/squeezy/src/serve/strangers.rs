//! Clients without a key, who call web actions: what they may have of what belongs to all.

use super::{
    bodies::{Bodies, Portion},
    tally::Tally,
};
use squeezy_openwhisk::QualifiedName;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All of them.
pub struct Strangers {
    /// Memory for their requests and answers.
    pub bodies: Arc<Bodies>,
    /// How many calls of theirs there are of each action.
    calls: Mutex<Tally<QualifiedName>>,
}

/// The place of a call, also if nobody waits for the call any more. Released on drop.
pub struct StrangerCall {
    strangers: Arc<Strangers>,
    action: QualifiedName,
}

impl Strangers {
    /// With a memory budget of `bytes`.
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { bodies: Bodies::for_strangers(bytes), calls: Mutex::default() })
    }

    /// Gets a place for a call, where up to `queue` calls of an action may wait. Strangers have half as many places
    /// there, and in all of them together as many as one has, of which actions of one namespace have this portion.
    pub fn call(
        self: &Arc<Self>,
        action: &QualifiedName,
        portion: Portion,
        queue: usize,
    ) -> Option<StrangerCall> {
        let mut calls = self.calls();
        let of_namespace = calls.of_those(|other| other.namespace == action.namespace);
        if calls.of(action) >= (queue / 2).max(1)
            || of_namespace >= portion.of(queue).max(1)
            || calls.all() >= queue
        {
            return None;
        }
        calls.add(action.clone());
        Some(StrangerCall { strangers: self.clone(), action: action.clone() })
    }

    fn calls(&self) -> MutexGuard<'_, Tally<QualifiedName>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StrangerCall {
    fn drop(&mut self) {
        self.strangers.calls().remove(&self.action);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_queue_and_one_queue_in_all_are_for_strangers() {
        let strangers = Strangers::new(0);
        let call = |action| strangers.call(&QualifiedName::guest(action), Portion::All, 8);
        let most = |action| std::iter::from_fn(|| call(action)).collect::<Vec<_>>();
        let (first, mut second) = (most("a"), most("b"));
        assert_eq!((first.len(), second.len(), most("c").len()), (4, 4, 0));
        second.pop();
        assert!(call("a").is_none() && call("c").is_some());
        drop((first, second));
        assert!(strangers.calls().is_empty());
        let shortest = strangers.call(&QualifiedName::guest("a"), Portion::Quarter, 1);
        assert!(shortest.is_some());
    }

    #[test]
    fn one_namespace_leaves_places_to_others() {
        let strangers = Strangers::new(0);
        let call = |action: &str| strangers.call(&action.parse().unwrap(), Portion::Quarter, 8);
        let of_acme = [call("/acme/a"), call("/acme/b")];
        assert!(of_acme.iter().all(Option::is_some) && call("/acme/c").is_none());
        assert!(call("/other/a").is_some());
    }
}
