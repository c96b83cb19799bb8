//! Why an experiment could not be run.

use squeezy_vmm::VmError;
use std::path::PathBuf;

/// Why an experiment could not be run, as one line for a person.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The VM, or the host it is on.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// What was asked for makes no sense.
    #[error("{0}")]
    Arguments(String),
    /// A file cannot be written or read.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said, or what is wrong with its content.
        reason: String,
    },
    /// A program in the guest did not do its part.
    #[error("in the guest, {program} failed: {reason}")]
    Workload {
        /// Its name.
        program: &'static str,
        /// What it said.
        reason: String,
    },
    /// An instance that is a plain process did not do its part.
    #[error("the instance of {function}: {reason}")]
    Instance {
        /// Its function.
        function: String,
        /// What went wrong.
        reason: String,
    },
    /// The plot could not be drawn.
    #[error("the plot cannot be drawn: {0}")]
    Plot(String),
    /// Part of what was to be measured could not be; the rest was.
    #[error("not everything could be measured: {0}")]
    Incomplete(String),
    /// Ctrl-C or SIGTERM.
    #[error("interrupted; the lines measured until now are kept")]
    Interrupted,
}

/// `Result` with a [`BenchError`].
pub(crate) type Result<T = (), E = BenchError> = std::result::Result<T, E>;

impl BenchError {
    pub(crate) fn file(path: impl Into<PathBuf>, reason: impl std::fmt::Display) -> Self {
        Self::File { path: path.into(), reason: reason.to_string() }
    }

    /// A function that does not answer, or not as it should.
    pub(crate) fn function(reason: String) -> Self {
        Self::Workload { program: "the function", reason }
    }
}
