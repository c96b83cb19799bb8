//! Errors of experiments.

use squeezy_vmm::VmError;
use std::path::PathBuf;

/// Why an experiment failed, as one readable line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// An error of the VM, or of its host.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// The arguments are invalid.
    #[error("{0}")]
    Arguments(String),
    /// A file cannot be written or read.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error, or what is wrong with the content.
        reason: String,
    },
    /// A program in the guest failed.
    #[error("in the guest, {program} failed: {reason}")]
    Workload {
        /// Its name.
        program: String,
        /// Its output, or what is wrong with it.
        reason: String,
    },
    /// An instance that is a plain process failed.
    #[error("the instance of {function}: {reason}")]
    Instance {
        /// Its function.
        function: String,
        /// What failed.
        reason: String,
    },
    /// A pod cannot be run, or does not do what it should.
    #[error("the pod {pod}: {reason}")]
    Pod {
        /// Its name.
        pod: String,
        /// What failed.
        reason: String,
    },
    /// The plot could not be drawn.
    #[error("the plot cannot be drawn: {0}")]
    Plot(String),
    /// Some of the measurements failed; the others succeeded.
    #[error("not everything could be measured: {0}")]
    Incomplete(String),
    /// Ended by SIGINT, SIGTERM or SIGHUP.
    #[error("interrupted; the lines measured so far are kept")]
    Interrupted,
}

/// `Result` with a [`BenchError`].
pub(crate) type Result<T = (), E = BenchError> = std::result::Result<T, E>;

impl BenchError {
    pub(crate) fn file(path: impl Into<PathBuf>, reason: impl std::fmt::Display) -> Self {
        Self::File { path: path.into(), reason: reason.to_string() }
    }

    /// A function does not answer, or answers wrongly.
    pub(crate) fn function(reason: String) -> Self {
        Self::Workload { program: "the function".to_owned(), reason }
    }
}
