//! Errors of namespaces and keys.

use super::OverQuota;
use std::{io, path::PathBuf};

/// Why a namespace or a key cannot be used, made or removed, as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    /// There is no such namespace.
    #[error("There is no such namespace.")]
    NoNamespace,
    /// There is no such key.
    #[error("The namespace has no such key.")]
    NoKey,
    /// The namespace exists already.
    #[error("The namespace exists already.")]
    Exists,
    /// The key exists already.
    #[error("The namespace has a key with this name: revoke it first, or choose another name.")]
    KeyExists,
    /// The namespace is being deleted.
    #[error("The namespace is being deleted: its last calls have to end first.")]
    Going,
    /// The operator's namespace.
    #[error("The namespace guest is the operator's: it cannot be deleted.")]
    Guest,
    /// There is something in the namespace.
    #[error("The namespace has actions ({0}): delete them first, or use force.")]
    HasActions(usize),
    /// There is nothing but packages in the namespace.
    #[error("The namespace has packages ({0}): delete them first, or use force.")]
    HasPackages(usize),
    /// The bound on namespaces.
    #[error("There can be {0} namespaces: delete one first.")]
    TooManyNamespaces(usize),
    /// The bound on keys.
    #[error("A namespace can have {0} keys: revoke one first.")]
    TooManyKeys(usize),
    /// It may have no more.
    #[error("{0}")]
    Over(#[from] OverQuota),
    /// What it may have cannot be understood.
    #[error("{0}")]
    Quotas(String),
    /// A role that belongs to the operator.
    #[error("A key with the role monitor sees all namespaces: it can only be one of guest.")]
    MonitorsAll,
    /// The file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The file is damaged.
    #[error(
        "{}: {problem}; it holds the namespaces and their keys: repair it, or move it away to start without them",
        path.display()
    )]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}
