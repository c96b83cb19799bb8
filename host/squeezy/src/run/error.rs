//! Why a run cannot begin, or what is left of it cannot be written.

use squeezy_load::{ChoiceError, SyntheticError, TraceError};
use squeezy_node::{ImageError, NodeError};
use squeezy_vmm::VmError;
use std::path::PathBuf;

/// One sentence for a person, with the way out.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file or directory cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The function cannot be used.
    #[error("{0}")]
    Function(#[from] ImageError),
    /// The trace makes no sense.
    #[error("{}: {error}", path.display())]
    Trace {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        error: TraceError,
    },
    /// The trace does not have the function.
    #[error("{}: {error}", path.display())]
    Choice {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        error: ChoiceError,
    },
    /// The window of the trace is empty.
    #[error(
        "nothing is invoked within {length_seconds} s from second {from_seconds} of the trace on; give another --from, more --speed or a longer --duration"
    )]
    EmptyWindow {
        /// Where the window begins.
        from_seconds: f64,
        /// How long it is in the trace's own time.
        length_seconds: f64,
    },
    /// The synthetic load makes no sense.
    #[error("{0}")]
    Synthetic(#[from] SyntheticError),
    /// No instance could ever run.
    #[error("{0}")]
    Node(#[from] NodeError),
    /// A VM cannot be used.
    #[error("{0}")]
    Vm(#[from] VmError),
    /// The VM could not be booted, or ended before the load began.
    #[error("{0}")]
    Boot(String),
    /// The first instance cannot be started, so no other can.
    #[error("an instance of {function} cannot be run: {reason}")]
    FirstInstance {
        /// The function.
        function: String,
        /// What went wrong.
        reason: String,
    },
    /// The plot cannot be drawn.
    #[error("the plot cannot be drawn: {0}")]
    Plot(String),
    /// Nothing can be printed.
    #[error("standard output: {0}")]
    Output(String),
    /// Ctrl-C cannot be listened to.
    #[error("signals cannot be handled: {0}")]
    Signals(std::io::Error),
}
