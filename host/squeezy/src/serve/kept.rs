//! What is kept in the state directory.

use super::{
    blobs::{BlobError, DiskSpace},
    code::{self, Codes},
    images::{self, Images},
    key::Key,
    state::{State, StateError},
    tenants::Tenants,
};
use std::{io, path::Path, sync::Arc};

/// Name of the file with the operator's key.
pub const KEY: &str = "key";

/// The state directory, locked for this process, with what its actions are made from.
pub struct Kept {
    /// The namespaces and their keys.
    pub tenants: Arc<Tenants>,
    /// The actions.
    pub state: State,
    /// Their images.
    pub images: Arc<Images>,
    /// Their code.
    pub codes: Codes,
    /// How much of the disk their images and their code may take.
    pub space: Arc<DiskSpace>,
}

/// The operator's key in this state directory, which is made if there is none.
pub fn operators_key(directory: &Path) -> Result<Key, StateError> {
    let path = directory.join(KEY);
    Key::read_or_make(&path).map_err(|error| StateError::File { path, error })
}

impl Kept {
    /// Creates the directory if necessary, and locks it. Images and code may take `actions_disk_bytes` of the disk.
    pub fn open(directory: &Path, actions_disk_bytes: u64) -> Result<Self, StateError> {
        let state = State::open(directory)?;
        let tenants = Arc::new(Tenants::open(directory, operators_key(directory)?)?);
        let space = DiskSpace::new(actions_disk_bytes);
        let failed = |name: &str, error| match error {
            BlobError::File { path, error } => StateError::File { path, error },
            other => {
                StateError::File { path: directory.join(name), error: io::Error::other(other) }
            }
        };
        let images = Images::open(directory, space.clone());
        let images = images.map_err(|error| failed(images::DIRECTORY, error))?;
        // Should the program not be there any more, no drives are made.
        let codes = Codes::open(directory, space.clone(), std::env::current_exe().ok());
        let codes = codes.map_err(|error| failed(code::DIRECTORY, error))?;
        Ok(Self { tenants, state, images, codes, space })
    }
}
