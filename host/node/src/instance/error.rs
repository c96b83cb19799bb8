//! Errors of instances.

use crate::vm_end::VmEnd;
use squeezy_protocol::{ExitReason, MAX_PAYLOAD_BYTES};
use squeezy_vmm::VmError;
use std::time::Duration;

/// Why an instance could not be started, called, frozen, squeezed or stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstanceError {
    /// Its VM has ended, or has not been booted yet.
    #[error("its VM has ended")]
    NoVm,
    /// Its memory could not be plugged; the plug's own error says why.
    #[error("its memory could not be plugged")]
    NotPlugged,
    /// The host could not make its first request.
    #[error("{0}")]
    NoFirstRequest(String),
    /// Its server did not answer its first request in time.
    #[error("{path} was not answered within {} s", limit.as_secs_f64())]
    StartTooLong {
        /// The request's path.
        path: String,
        /// The time limit.
        limit: Duration,
        /// The end of its output.
        output: Vec<String>,
    },
    /// It ended before answering its first request.
    #[error("it {reason} before it had answered {path}: {last_line}")]
    EndedAtStart {
        /// How it ended.
        reason: ExitReason,
        /// The request's path.
        path: String,
        /// The last line of its output.
        last_line: String,
        /// The end of its output.
        output: Vec<String>,
    },
    /// Its server answered its first request, but does not take calls.
    #[error("{path}: {problem}")]
    NotReady {
        /// The request's path.
        path: String,
        /// What is wrong.
        problem: String,
        /// The end of its output.
        output: Vec<String>,
    },
    /// A call was not answered in time.
    #[error("the call was not answered within its limit of {} s", .0.as_secs_f64())]
    CallTooLong(Duration),
    /// Its function was removed, and what it did was not waited for.
    #[error("the function was removed, with its calls")]
    Removed,
    /// It ended while it had a call.
    #[error("the instance {0}")]
    Ended(ExitReason),
    /// Its answer is longer than the agent passes on.
    #[error("its answer is longer than {} MiB", MAX_PAYLOAD_BYTES >> 20)]
    AnswerTooLong,
    /// There is no answer from its server that could be passed on, for this reason.
    #[error("{0}")]
    NoAnswer(String),
    /// Its resident memory on the host is unknown.
    #[error("its memory could not be measured")]
    NotMeasured,
    /// Its VM ended while it had a call.
    #[error("{0}")]
    VmEnded(VmEnd),
    /// Its VM, or the agent in it, failed.
    #[error(transparent)]
    Vm(#[from] VmError),
}

impl InstanceError {
    /// The end of the instance's output, if the instance itself is why it could not be started, rather than the host or
    /// its VM.
    pub fn output(&self) -> Option<&[String]> {
        match self {
            Self::StartTooLong { output, .. }
            | Self::EndedAtStart { output, .. }
            | Self::NotReady { output, .. } => Some(output),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub(crate) fn output_mut(&mut self) -> Option<&mut Vec<String>> {
        match self {
            Self::StartTooLong { output, .. }
            | Self::EndedAtStart { output, .. }
            | Self::NotReady { output, .. } => Some(output),
            _ => None,
        }
    }
}
