//! Deadlines, earliest first.

use crate::{FunctionIndex, InstanceNumber, Moment, VmIndex};
use std::collections::{BTreeMap, BTreeSet};

/// What a deadline is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Instance(InstanceNumber),
    Vm(VmIndex),
    /// This function's oldest queued request.
    Waiting(FunctionIndex),
    /// The start of an instance of this function that is kept up, after one has failed.
    Keeping(FunctionIndex),
    /// The choice of what to squeeze, which is made after every event.
    Squeezing,
}

/// At most one deadline per subject. What is due then follows from the subject's state.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    order: BTreeSet<(Moment, Subject)>,
    of: BTreeMap<Subject, Moment>,
}

impl Deadlines {
    /// Sets or clears the subject's deadline.
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

    /// The earliest deadline.
    pub fn next(&self) -> Option<Moment> {
        self.order.first().map(|&(at, _)| at)
    }

    /// Removes and returns all deadlines up to `now`, in order.
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
