//! One instance sends one large answer at a time: the host gathers answers whole, and an instance has many calls.

use crate::mutex::lock;
use squeezy_protocol::InstanceId;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
};

/// Whose turn it is, for each instance that owes answers.
#[derive(Clone, Default)]
pub(super) struct Turns(Arc<Mutex<BTreeMap<InstanceId, Weak<tokio::sync::Mutex<()>>>>>);

impl Turns {
    /// What is to be held while a large answer of an instance is gathered.
    pub(super) fn of(&self, id: &InstanceId) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = lock(&self.0);
        if let Some(turn) = turns.get(id).and_then(Weak::upgrade) {
            return turn;
        }
        // Instances that owe nothing any more.
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        turns.insert(id.clone(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_one_instance_share_a_turn_and_nothing_is_left_of_it() {
        let turns = Turns::default();
        let [a, b] = ["a", "b"].map(|id| id.parse().unwrap());
        let first = turns.of(&a);
        assert!(Arc::ptr_eq(&first, &turns.of(&a)) && !Arc::ptr_eq(&first, &turns.of(&b)));
        drop(first);
        let other = turns.of(&b);
        assert_eq!(turns.0.lock().unwrap().len(), 1);
        drop(other);
    }
}
