//! Scripts that tell fake machines what to do.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// An operation on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::node) enum Operation {
    Boot,
    Plug,
    Start,
    FirstRequest,
    Call,
    Freeze,
    Squeeze,
    Doom,
    Condemn,
    DropPageCache,
    Pause,
    Resume,
    Stop,
    Reclaim,
    /// Checks again whether memory that was late has come back.
    Settle,
    End,
}

impl Operation {
    /// The operations of an instance that is alone in its VM. The VM may end in the middle of each.
    pub(in crate::node) const OF_ONE: [Self; 10] = [
        Self::Plug,
        Self::Start,
        Self::FirstRequest,
        Self::Call,
        Self::Freeze,
        Self::Pause,
        Self::Resume,
        Self::Stop,
        Self::Reclaim,
        Self::Settle,
    ];

    /// Whether it needs the guest to run.
    pub(super) fn is_in_guest(self) -> bool {
        !matches!(self, Self::Boot | Self::Condemn | Self::Pause | Self::Resume | Self::End)
    }
}

/// How an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum Fate {
    Works,
    Fails,
    /// It gets no answer until its timeout.
    Hangs,
    /// Its instance ends, and the operation succeeds if it still can.
    InstanceDies,
    VmDies,
}

/// When and how an operation ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct Step {
    pub(in crate::node) after: Duration,
    pub(in crate::node) fate: Fate,
}

/// Decides the fates of operations, one after the other.
pub(in crate::node) trait Script: Send {
    /// The fate of the next operation of this kind.
    fn next(&mut self, operation: Operation) -> Step;
}

/// Everything succeeds after 10 ms, except as specified.
#[derive(Default)]
pub(in crate::node) struct Exceptions(BTreeMap<Operation, VecDeque<Step>>);

impl Exceptions {
    const AFTER: Duration = Duration::from_millis(10);

    /// The next operation of this kind without a specified step ends like this.
    pub(in crate::node) fn with(self, operation: Operation, fate: Fate) -> Self {
        self.and(operation, Step { after: Self::AFTER, fate })
    }

    /// The next operation of this kind without a specified step succeeds after this long.
    pub(in crate::node) fn slow(self, operation: Operation, after: Duration) -> Self {
        self.and(operation, Step { after, fate: Fate::Works })
    }

    fn and(mut self, operation: Operation, step: Step) -> Self {
        self.0.entry(operation).or_default().push_back(step);
        self
    }
}

impl Script for Exceptions {
    fn next(&mut self, operation: Operation) -> Step {
        let step = self.0.get_mut(&operation).and_then(VecDeque::pop_front);
        step.unwrap_or(Step { after: Self::AFTER, fate: Fate::Works })
    }
}
