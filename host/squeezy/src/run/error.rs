//! Why a run cannot start, or its results cannot be written.

use squeezy_load::{ChoiceError, SyntheticError, TraceError};
use squeezy_node::{ImageError, NodeError};
use squeezy_vmm::VmError;
use std::path::PathBuf;

/// Each is one sentence that says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file or directory cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// The function cannot be used.
    #[error("{0}")]
    Function(#[from] ImageError),
    /// The trace is invalid.
    #[error("{}: {error}", path.display())]
    Trace {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        error: TraceError,
    },
    /// The trace does not contain the function.
    #[error("{}: {error}", path.display())]
    Choice {
        /// Its file.
        path: PathBuf,
        /// What is wrong with the choice.
        error: ChoiceError,
    },
    /// The window of the trace is empty.
    #[error(
        "the trace has no invocations in the {length_seconds} s from second {from_seconds} on; choose another --from, a higher --speed or a longer --duration"
    )]
    EmptyWindow {
        /// Start of the window, in seconds of the trace.
        from_seconds: f64,
        /// Length of the window, in seconds of the trace.
        length_seconds: f64,
    },
    /// The synthetic load is invalid.
    #[error("{0}")]
    Synthetic(#[from] SyntheticError),
    /// The VM has no room for even one instance.
    #[error("{0}")]
    Node(#[from] NodeError),
    /// The VM's configuration or files cannot be used.
    #[error("{0}")]
    Vm(#[from] VmError),
    /// The VM could not be booted, or ended before the load began.
    #[error("{0}")]
    Boot(String),
    /// The first instance cannot be started, so the load would fail.
    #[error("an instance of {function} cannot be run: {reason}")]
    FirstInstance {
        /// The function.
        function: String,
        /// Why it failed.
        reason: String,
    },
    /// The plot cannot be drawn.
    #[error("the plot cannot be drawn: {0}")]
    Plot(String),
    /// Standard output cannot be written.
    #[error("standard output: {0}")]
    Output(String),
    /// Signals cannot be handled.
    #[error("signals cannot be handled: {0}")]
    Signals(std::io::Error),
}
