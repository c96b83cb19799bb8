//! What is kept in the state directory.

use super::{
    code::{CodeError, Codes},
    images::Images,
    state::{State, StateError},
};
use std::{path::Path, sync::Arc};

/// The state directory, locked for this process, with what its actions are made from.
#[derive(Debug)]
pub struct Kept {
    /// The actions.
    pub state: State,
    /// Their images.
    pub images: Arc<Images>,
    /// Their code.
    pub codes: Arc<Codes>,
}

impl Kept {
    /// Creates the directory if necessary, and locks it.
    pub fn open(directory: &Path) -> Result<Self, StateError> {
        let state = State::open(directory)?;
        let images = Images::open(directory)
            .map_err(|error| StateError::File { path: directory.join("pinned"), error })?;
        let codes = Codes::open(directory).map_err(|error| match error {
            CodeError::File { path, error } => StateError::File { path, error },
            other => {
                StateError::Damaged { path: directory.join("code"), problem: other.to_string() }
            }
        })?;
        Ok(Self { state, images: Arc::new(images), codes: Arc::new(codes) })
    }
}
