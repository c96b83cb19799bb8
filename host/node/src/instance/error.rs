//! Why an instance could not do what it was asked.

use crate::vm_end::VmEnd;
use squeezy_protocol::{ExitReason, MAX_PAYLOAD_BYTES};
use squeezy_vmm::VmError;
use std::time::Duration;

/// Why an instance could not be started, called, frozen, squeezed or stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstanceError {
    /// It has no VM any more, or none yet.
    #[error("its VM has ended")]
    NoVm,
    /// Its memory could not be plugged, which the error of the plug explains.
    #[error("its memory could not be plugged")]
    NotPlugged,
    /// Its server came up, and did not answer its first request in time.
    #[error("{path} was not answered within {} s", limit.as_secs_f64())]
    StartTooLong {
        /// What was asked for.
        path: String,
        /// How long it had.
        limit: Duration,
    },
    /// It ended before it had answered its first request.
    #[error("it {reason} before it had answered {path}: {last_line}")]
    EndedAtStart {
        /// How it ended.
        reason: ExitReason,
        /// What was asked for.
        path: String,
        /// What it wrote last.
        last_line: String,
    },
    /// Its server has answered its first request, and does not take calls.
    #[error("{path}: {problem}")]
    NotReady {
        /// What was asked for.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// A call was not answered in time.
    #[error("the call was not answered within its limit of {} s", .0.as_secs_f64())]
    CallTooLong(Duration),
    /// It ended while it had a call.
    #[error("the instance {0}")]
    Ended(ExitReason),
    /// Its answer is longer than an agent passes on.
    #[error("its answer is longer than {} MiB", MAX_PAYLOAD_BYTES >> 20)]
    AnswerTooLong,
    /// There is no answer of its server that could be passed on; why.
    #[error("{0}")]
    NoAnswer(String),
    /// Nobody knows how much memory the host has behind it.
    #[error("its memory could not be measured")]
    NotMeasured,
    /// Its VM ended while it had a call.
    #[error("{0}")]
    VmEnded(VmEnd),
    /// Its VM, or the agent in it, failed.
    #[error(transparent)]
    Vm(#[from] VmError),
}
