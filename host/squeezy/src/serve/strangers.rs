//! Clients without a key, who call web actions: what they may have of what belongs to all.

use super::bodies::Bodies;
use squeezy_openwhisk::QualifiedName;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// All of them.
pub struct Strangers {
    /// Memory for their requests and answers.
    pub bodies: Arc<Bodies>,
    /// How many calls of theirs there are of each action.
    calls: Mutex<BTreeMap<QualifiedName, usize>>,
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
    /// there, and in all of them together as many as one has.
    pub fn call(self: &Arc<Self>, action: &QualifiedName, queue: usize) -> Option<StrangerCall> {
        let mut calls = self.calls();
        let of_action = calls.get(action).copied().unwrap_or(0);
        if of_action >= (queue / 2).max(1) || calls.values().sum::<usize>() >= queue {
            return None;
        }
        calls.insert(action.clone(), of_action + 1);
        Some(StrangerCall { strangers: self.clone(), action: action.clone() })
    }

    fn calls(&self) -> MutexGuard<'_, BTreeMap<QualifiedName, usize>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StrangerCall {
    fn drop(&mut self) {
        let mut calls = self.strangers.calls();
        if let Some(count) = calls.get_mut(&self.action) {
            *count -= 1;
            if *count == 0 {
                calls.remove(&self.action);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_queue_and_one_queue_in_all_are_for_strangers() {
        let strangers = Strangers::new(0);
        let call = |action| strangers.call(&QualifiedName::guest(action), 8);
        let most = |action| std::iter::from_fn(|| call(action)).collect::<Vec<_>>();
        let (first, mut second) = (most("a"), most("b"));
        assert_eq!((first.len(), second.len(), most("c").len()), (4, 4, 0));
        second.pop();
        assert!(call("a").is_none() && call("c").is_some());
        drop((first, second));
        assert!(strangers.calls().is_empty());
        assert!(strangers.call(&QualifiedName::guest("a"), 1).is_some(), "the shortest queue");
    }
}
