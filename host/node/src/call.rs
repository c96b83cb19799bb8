//! Calls of functions, and their results.

use crate::{CallTrace, InstanceError};
use bytes::Bytes;
use http::Response;
use serde::Serialize;
use serde_json::Value;
use squeezy_scaler::{RejectReason, WaitingFor};
use std::time::Duration;

/// A call of a function.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its ID, which must be unique.
    pub id: String,
    /// The function's input.
    pub value: Value,
    /// Whether to return what the instance writes during the call.
    pub logs: bool,
    /// How it is traced, if it is.
    pub trace: Option<CallTrace>,
    /// Whether it has waited for a function that this one replaces. Then it is not refused because too many wait.
    pub sent_on: bool,
}

/// What a call waited for until an instance took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitedFor {
    /// An instance was idle and not frozen.
    Nothing,
    /// An instance was idle, but frozen, or its VM paused.
    Thaw,
    /// All instances were busy, and one of them took it when it was done.
    Busy,
    /// The instance that took it was started in the meantime.
    Start,
    /// The instance's VM was booted in the meantime too.
    Boot,
}

impl WaitedFor {
    /// All values, from the shortest wait to the longest.
    pub const ALL: [Self; 5] = [Self::Nothing, Self::Thaw, Self::Busy, Self::Start, Self::Boot];

    /// Its name in metrics and activations.
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

/// The result of a successful call.
#[derive(Debug)]
pub struct Answer {
    /// What the instance answered.
    pub response: Response<Bytes>,
    /// How long the call waited for an instance.
    pub waited: Duration,
    /// What it waited for.
    pub waited_for: WaitedFor,
    /// How long the instance took.
    pub took: Duration,
    /// If the instance was started while the call waited, how long its first request took.
    pub cold: Option<Duration>,
    /// What the instance wrote during the call, line by line, if requested.
    pub logs: Vec<String>,
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No instance takes it.
    #[error("{}", reason(*.0))]
    Rejected(RejectReason),
    /// An instance took it and failed.
    #[error("{reason}")]
    Failed {
        /// Why.
        reason: InstanceError,
        /// How long it had waited for an instance.
        waited: Duration,
        /// What it waited for.
        waited_for: WaitedFor,
        /// How long the instance had it.
        took: Duration,
        /// Whether the instance was started while the call waited.
        cold: bool,
        /// Whether the instance's VM has ended, which is not the function's fault.
        vm_ended: bool,
        /// What the instance wrote during the call, line by line, if requested.
        logs: Vec<String>,
    },
    /// The node has ended.
    #[error("the node has ended")]
    Ended,
}

fn reason(reason: RejectReason) -> &'static str {
    match reason {
        RejectReason::QueueFull => "too many calls of this function are waiting",
        RejectReason::TooManyCalls => "too many calls of its tenant are in flight",
        RejectReason::OverQuota => "one instance of it needs more memory than the tenant may have",
        RejectReason::NoRoomAhead => "there is not enough memory for it beside what runs",
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
            "no instance took it in time: other functions used the memory or the room for one"
        }
        RejectReason::WaitedTooLong(WaitingFor::Quota) => {
            "no instance took it in time: other functions of the tenant used the memory that it may have"
        }
        RejectReason::StartFailed => "the instance for it could not be started",
        RejectReason::VmFailed => "the VM for it could not be booted, or has ended",
        RejectReason::Retired => "the function no longer exists",
        RejectReason::Draining => "the node is shutting down",
    }
}
