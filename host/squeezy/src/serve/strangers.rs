//! Clients without a key, who call web actions: what they may have of what belongs to all.

use super::{
    bodies::{Bodies, Portion},
    tally::Tally,
};
use crate::mutex::lock;
use squeezy_openwhisk::QualifiedName;
use std::sync::{Arc, Mutex, MutexGuard};

/// All of them.
pub struct Strangers {
    /// Memory for their requests and answers.
    pub bodies: Arc<Bodies>,
    calls: Mutex<Calls>,
}

/// Their calls.
#[derive(Default)]
struct Calls {
    /// How many there are of each action.
    whole: Tally<QualifiedName>,
    /// How many calls of each action are parts of one of a sequence.
    parts: Tally<QualifiedName>,
}

/// The place of a call, also if nobody waits for the call any more. Released on drop.
pub struct StrangerCall {
    strangers: Arc<Strangers>,
    action: QualifiedName,
    is_part: bool,
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
        let of_namespace = calls.whole.of_those(|other| other.namespace == action.namespace);
        if calls.have_half(action, queue)
            || of_namespace >= portion.of(queue).max(1)
            || calls.whole.all() >= queue
        {
            return None;
        }
        calls.whole.add(action.clone());
        Some(StrangerCall { strangers: self.clone(), action: action.clone(), is_part: false })
    }

    /// Gets a place for the part of a call of a sequence, which has one of its own: this one is in the action's queue, and
    /// none more in all of them together.
    pub fn part(self: &Arc<Self>, action: &QualifiedName, queue: usize) -> Option<StrangerCall> {
        let mut calls = self.calls();
        if calls.have_half(action, queue) {
            return None;
        }
        calls.parts.add(action.clone());
        Some(StrangerCall { strangers: self.clone(), action: action.clone(), is_part: true })
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        lock(&self.calls)
    }
}

impl Calls {
    /// Whether they have half of an action's queue.
    fn have_half(&self, action: &QualifiedName, queue: usize) -> bool {
        self.whole.of(action) + self.parts.of(action) >= (queue / 2).max(1)
    }
}

impl StrangerCall {
    /// Those of whom the caller is one.
    pub fn strangers(&self) -> &Arc<Strangers> {
        &self.strangers
    }
}

impl Drop for StrangerCall {
    fn drop(&mut self) {
        let mut calls = self.strangers.calls();
        let of_kind = if self.is_part { &mut calls.parts } else { &mut calls.whole };
        of_kind.remove(&self.action);
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
        assert!(strangers.calls().whole.is_empty());
        let shortest = strangers.call(&QualifiedName::guest("a"), Portion::Quarter, 1);
        assert!(shortest.is_some());
    }

    #[test]
    fn a_part_of_a_sequence_s_call_has_a_place_in_its_action_s_half() {
        let strangers = Strangers::new(0);
        let (sequence, action) = (QualifiedName::guest("s"), QualifiedName::guest("a"));
        let call = |of: &QualifiedName| strangers.call(of, Portion::All, 8);
        let _sequences: Vec<_> = (0..4).map(|_| call(&sequence).unwrap()).collect();
        let mut parts: Vec<_> = (0..3).map(|_| strangers.part(&action, 8).unwrap()).collect();
        let one = call(&action);
        assert!(one.is_some() && call(&action).is_none() && strangers.part(&action, 8).is_none());
        parts.pop();
        assert!(strangers.part(&action, 8).is_some());
        drop(parts);
        // Parts have taken nothing of what there is in all.
        let _others: Vec<_> = (0..3).map(|_| call(&action).unwrap()).collect();
        assert!(call(&QualifiedName::guest("b")).is_none());
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
