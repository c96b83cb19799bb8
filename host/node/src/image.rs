//! A function's definition, and where its image is.

use squeezy_runtime::function::{Function, FunctionError};
use squeezy_vmm::Artifacts;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Largest function.toml, in bytes.
const MAX_DEFINITION_BYTES: u64 = 1 << 20;

/// A function and where its image is.
#[derive(Clone, Debug)]
pub struct FunctionImage {
    /// What is known of it.
    pub function: Function,
    /// The read-only root of its instances.
    pub image: PathBuf,
}

/// Why a function cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Its definition cannot be read.
    #[error("{}: {error}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Its definition makes no sense.
    #[error("{}: {error}", path.display())]
    Function {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        error: FunctionError,
    },
    /// It is given by something that is neither a directory nor an image.
    #[error("{}: neither a directory with a function.toml nor an image NAME.erofs with NAME.toml beside it", .0.display())]
    Neither(PathBuf),
}

impl FunctionImage {
    /// Finds a function by a directory with a function.toml, whose image has been built, or by an
    /// image NAME.erofs with NAME.toml beside it.
    pub fn find(path: &Path, files: &Artifacts) -> Result<Self, ImageError> {
        if path.extension().is_some_and(|extension| extension == "erofs") && path.is_file() {
            let function = read(&path.with_extension("toml"))?;
            return Ok(Self { function, image: path.to_owned() });
        }
        let definition = path.join("function.toml");
        if !definition.is_file() {
            return Err(ImageError::Neither(path.to_owned()));
        }
        let function = read(&definition)?;
        let image = files.image(&function.name);
        Ok(Self { function, image })
    }
}

fn read(path: &Path) -> Result<Function, ImageError> {
    let file = |error| ImageError::File { path: path.to_owned(), error };
    let length = path.metadata().map_err(file)?.len();
    if length > MAX_DEFINITION_BYTES {
        return Err(file(io::Error::other(format!("longer than {MAX_DEFINITION_BYTES} bytes"))));
    }
    let text = std::fs::read_to_string(path).map_err(file)?;
    Function::parse(&text).map_err(|error| ImageError::Function { path: path.to_owned(), error })
}
