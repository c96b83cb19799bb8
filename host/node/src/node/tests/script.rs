//! What fake machines do next.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// Something that a machine is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::node) enum Operation {
    Boot,
    Plug,
    Start,
    FirstRequest,
    Call,
    Freeze,
    Squeeze,
    Pause,
    Resume,
    Stop,
    Reclaim,
    /// What had not come back in time is looked at again.
    Settle,
    End,
}

impl Operation {
    /// Those of an instance that is alone in its VM, which may end in the middle of them.
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

    /// Whether the guest has to run for it.
    pub(super) fn is_in_guest(self) -> bool {
        !matches!(self, Self::Boot | Self::Pause | Self::Resume | Self::End)
    }
}

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum Fate {
    Works,
    Fails,
    /// It is not answered, until somebody's patience is over.
    Hangs,
    /// The instance it is about ends, and it works where that is possible.
    InstanceDies,
    VmDies,
}

/// When it ends, and how.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct Step {
    pub(in crate::node) after: Duration,
    pub(in crate::node) fate: Fate,
}

/// Says what operations come to, one after the other.
pub(in crate::node) trait Script: Send {
    /// The next one of this kind.
    fn next(&mut self, operation: Operation) -> Step;
}

/// Everything works and takes 10 ms, but for what is said.
#[derive(Default)]
pub(in crate::node) struct Exceptions(BTreeMap<Operation, VecDeque<Step>>);

impl Exceptions {
    const AFTER: Duration = Duration::from_millis(10);

    /// The next operation of this kind that has not been spoken of ends like that.
    pub(in crate::node) fn with(self, operation: Operation, fate: Fate) -> Self {
        self.and(operation, Step { after: Self::AFTER, fate })
    }

    /// The next operation of this kind that has not been spoken of works after so long.
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
