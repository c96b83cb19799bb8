//! Calls of functions, and what comes of them.

use crate::InstanceError;
use bytes::Bytes;
use http::Response;
use serde::Serialize;
use serde_json::Value;
use squeezy_scaler::{RejectReason, WaitingFor};
use std::time::Duration;

/// A call of a function.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its name; nobody else's.
    pub id: String,
    /// What the function is given.
    pub value: Value,
    /// Whether what the instance writes meanwhile is wanted.
    pub logs: bool,
}

/// What a call waited for until an instance took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitedFor {
    /// An instance was idle, and ran.
    Nothing,
    /// An instance was there, but frozen, or its VM paused.
    Thaw,
    /// All instances were at work, and one of them took it when it was done.
    Busy,
    /// The instance that took it was started meanwhile.
    Start,
    /// So was its VM.
    Boot,
}

impl WaitedFor {
    /// Every one, from the shortest to the longest.
    pub const ALL: [Self; 5] = [Self::Nothing, Self::Thaw, Self::Busy, Self::Start, Self::Boot];

    /// Its name, as it is exported.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Thaw => "thaw",
            Self::Busy => "busy",
            Self::Start => "start",
            Self::Boot => "boot",
        }
    }
}

/// What came of a call.
#[derive(Debug)]
pub struct Answer {
    /// What the instance answered.
    pub response: Response<Bytes>,
    /// How long the call waited for an instance.
    pub waited: Duration,
    /// What for.
    pub waited_for: WaitedFor,
    /// How long the instance took for it.
    pub took: Duration,
    /// Whether the instance was started while it waited; how long its first request took.
    pub cold: Option<Duration>,
    /// What the instance has written meanwhile, line by line, if it was wanted.
    pub logs: Vec<String>,
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nobody takes it.
    #[error("{}", reason(*.0))]
    Rejected(RejectReason),
    /// Somebody has taken it and failed.
    #[error("{reason}")]
    Failed {
        /// Why.
        reason: InstanceError,
        /// How long it had waited for an instance.
        waited: Duration,
        /// What for.
        waited_for: WaitedFor,
        /// How long that instance had it.
        took: Duration,
        /// Whether that instance was started meanwhile.
        cold: bool,
        /// Whether its VM has ended, which is not the function's doing.
        vm_ended: bool,
        /// What the instance has written meanwhile, line by line, if it was wanted.
        logs: Vec<String>,
    },
    /// The node has ended.
    #[error("the node has ended")]
    Ended,
}

fn reason(reason: RejectReason) -> &'static str {
    match reason {
        RejectReason::QueueFull => "too many calls of this function are waiting",
        RejectReason::WaitedTooLong(WaitingFor::Vm) => {
            "no instance took it in time: the VM was still booting or ending"
        }
        RejectReason::WaitedTooLong(WaitingFor::Start) => {
            "no instance took it in time: one was still being started"
        }
        RejectReason::WaitedTooLong(WaitingFor::Busy) => {
            "no instance took it in time: all instances of its function were busy"
        }
        RejectReason::WaitedTooLong(WaitingFor::Memory) => {
            "no instance took it in time: other functions had the memory or the room for one"
        }
        RejectReason::StartFailed => "the instance for it could not be started",
        RejectReason::VmFailed => "the VM for it could not be booted, or has ended",
        RejectReason::Retired => "the function no longer exists",
        RejectReason::Draining => "everything ends",
    }
}
