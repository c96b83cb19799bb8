//! When time changes what, the earliest first.

use crate::{FunctionIndex, InstanceNumber, Moment, VmIndex};
use std::collections::{BTreeMap, BTreeSet};

/// What a deadline is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Instance(InstanceNumber),
    Vm(VmIndex),
    /// The request that has waited longest of this function's.
    Waiting(FunctionIndex),
    /// The choice of who is squeezed, which comes after every event.
    Squeezing,
}

/// One deadline at most of each VM, instance and function; what is due then, their state says.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    order: BTreeSet<(Moment, Subject)>,
    of: BTreeMap<Subject, Moment>,
}

impl Deadlines {
    /// Sets the deadline of somebody, or takes it away.
    pub fn set(&mut self, subject: Subject, at: Option<Moment>) {
        let before = match at {
            Some(at) => self.of.insert(subject, at),
            None => self.of.remove(&subject),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, subject));
        }
        if let Some(at) = at {
            self.order.insert((at, subject));
        }
    }

    /// The earliest.
    pub fn next(&self) -> Option<Moment> {
        self.order.first().map(|&(at, _)| at)
    }

    /// Takes out all that have come by `now`, in their order.
    pub fn take(&mut self, now: Moment) -> Vec<Subject> {
        let mut due = Vec::new();
        while let Some(&(at, subject)) = self.order.first().filter(|(at, _)| *at <= now) {
            self.order.remove(&(at, subject));
            self.of.remove(&subject);
            due.push(subject);
        }
        due
    }
}
