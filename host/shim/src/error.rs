//! Why a call is refused or failed, in a sentence for whoever runs the pod.

use containerd_shim_protos::ttrpc;
use std::fmt;

/// What went wrong, and how containerd shall take it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What containerd decides by.
    pub kind: ErrorKind,
    /// One line.
    pub message: String,
}

/// The result of what may fail so.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How containerd takes an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request itself is wrong.
    Invalid,
    /// No such task. containerd counts a task of which it hears this as gone.
    NotFound,
    /// There is such a task already.
    Exists,
    /// Not in this state of the task.
    State,
    /// There is no room for it.
    Full,
    /// The VM has no room for its pod beside the others that it has. Another one may.
    Crowded,
    /// The shim has no such call. Never [`ErrorKind::NotFound`], which means that the task is gone.
    Unimplemented,
    /// A container asks for something that the shim cannot do. Never [`ErrorKind::Unimplemented`], which containerd 2
    /// takes for a shim of an older API: it makes the same call again, for streams that it has closed.
    Unsupported,
    /// Something that should have worked has failed.
    Failed,
}

impl Error {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string() }
    }

    pub(crate) fn invalid(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn state(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::State, message)
    }

    pub(crate) fn unimplemented(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Unimplemented, message)
    }

    pub(crate) fn unsupported(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Failed, message)
    }
}

impl From<Error> for ttrpc::Error {
    fn from(error: Error) -> Self {
        let code = match error.kind {
            ErrorKind::Invalid | ErrorKind::Unsupported => ttrpc::Code::INVALID_ARGUMENT,
            ErrorKind::NotFound => ttrpc::Code::NOT_FOUND,
            ErrorKind::Exists => ttrpc::Code::ALREADY_EXISTS,
            ErrorKind::State => ttrpc::Code::FAILED_PRECONDITION,
            ErrorKind::Full | ErrorKind::Crowded => ttrpc::Code::RESOURCE_EXHAUSTED,
            ErrorKind::Unimplemented => ttrpc::Code::UNIMPLEMENTED,
            ErrorKind::Failed => ttrpc::Code::INTERNAL,
        };
        Self::RpcStatus(ttrpc::get_status(code, error.message))
    }
}
