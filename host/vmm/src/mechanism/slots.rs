//! Slots for instances in a VM.

use crate::{Result, VmError, mutex::lock};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard};

/// The number of a slot for an instance in a VM, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slot(pub u16);

/// Which slots of a VM are in use.
pub struct Slots {
    used: Mutex<Vec<bool>>,
}

impl Slots {
    /// `count` slots, all free.
    pub fn new(count: u16) -> Self {
        Self { used: Mutex::new(vec![false; count.into()]) }
    }

    /// Takes the first free slot. An error if the VM is full.
    pub fn take(&self) -> Result<Slot> {
        let mut used = self.lock();
        let free = used.iter_mut().zip(0..).find(|(used, _)| !**used);
        let Some((slot, index)) = free else {
            return Err(VmError::Full { instances: used.len() as u16 });
        };
        *slot = true;
        Ok(Slot(index))
    }

    /// Frees a slot. An error if it is not in use.
    pub fn free(&self, slot: Slot) -> Result<()> {
        match self.lock().get_mut(usize::from(slot.0)) {
            Some(used @ true) => *used = false,
            _ => return Err(VmError::SlotNotInUse(slot.0)),
        }
        Ok(())
    }

    /// How many are in use.
    pub(super) fn count(&self) -> u16 {
        self.lock().iter().map(|used| u16::from(*used)).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<bool>> {
        lock(&self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_once() {
        let slots = Slots::new(2);
        assert_eq!(slots.take(), Ok(Slot(0)));
        assert_eq!(slots.take(), Ok(Slot(1)));
        assert_eq!(slots.count(), 2);
        assert_eq!(slots.take(), Err(VmError::Full { instances: 2 }));
        slots.free(Slot(0)).unwrap();
        assert_eq!(slots.count(), 1);
        assert_eq!(slots.free(Slot(0)), Err(VmError::SlotNotInUse(0)));
        assert_eq!(slots.free(Slot(9)), Err(VmError::SlotNotInUse(9)));
        assert_eq!(slots.take(), Ok(Slot(0)));
    }
}
