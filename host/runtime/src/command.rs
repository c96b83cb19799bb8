//! What has to be done.

use crate::{FunctionIndex, InstanceNumber, RequestNumber};

/// What has to be done. Each one but [`Command::Reject`] is answered by an [`crate::Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Plug the memory of a new instance; answered by `Plugged` or `PlugFailed`.
    Plug {
        /// What it will be an instance of.
        function: FunctionIndex,
        /// Its number, the same in every later command.
        instance: InstanceNumber,
    },
    /// Start the instance, its memory is there; answered by `Started` or `StartFailed`.
    Start {
        /// What it is an instance of.
        function: FunctionIndex,
        /// The instance.
        instance: InstanceNumber,
    },
    /// Pass the request to the instance; answered by `Answered` or `Broken`.
    Dispatch {
        /// The instance, which has no other request.
        instance: InstanceNumber,
        /// The request.
        request: RequestNumber,
    },
    /// Stop the instance, whatever of it there is; answered by `Stopped`.
    Stop {
        /// The instance.
        instance: InstanceNumber,
        /// Why.
        reason: StopReason,
    },
    /// Take the memory of a stopped instance back; answered by `Reclaimed` or `ReclaimFailed`.
    Reclaim {
        /// What it was an instance of.
        function: FunctionIndex,
        /// The instance.
        instance: InstanceNumber,
    },
    /// Tell whoever sent the request that nobody will answer it.
    Reject {
        /// The request.
        request: RequestNumber,
        /// Why.
        reason: RejectReason,
    },
}

/// Why an instance is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// It had nothing to do for the keep-alive time.
    KeepAliveOver,
    /// Somebody else needs its memory.
    Evicted,
    /// It ended by itself, could not be started, or cannot take another request.
    Broken,
    /// Everything ends.
    Draining,
}

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// As many requests wait as may wait.
    QueueFull,
    /// The instance that was to answer it could not be started.
    StartFailed,
    /// Everything ends.
    Draining,
}
