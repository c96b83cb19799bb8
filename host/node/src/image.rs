//! A function's definition and the location of its image.

use crate::{
    function::{Function, FunctionError, check_name},
    parse_toml,
};
use serde::Deserialize;
use squeezy_vmm::Artifacts;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Maximum size of a function.toml, in bytes.
const MAX_DEFINITION_BYTES: u64 = 1 << 20;

/// A function and the location of its image.
#[derive(Clone, Debug)]
pub struct FunctionImage {
    /// Its definition.
    pub function: Function,
    /// The read-only root file system of its instances.
    pub image: PathBuf,
    /// What its code is, if that is not in the image: a file system whose files are over those of the image.
    pub code: Option<PathBuf>,
}

/// Why a function cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Its definition cannot be read.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Its definition is not valid.
    #[error("{}: {error}", path.display())]
    Function {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        error: FunctionError,
    },
    /// Its image is made from an OCI image, but has not been built yet.
    #[error("{} does not exist: build it with `guest/image/build.sh {}`", image.display(), directory.display())]
    NotBuilt {
        /// The definition that the build would write.
        image: PathBuf,
        /// The function's directory.
        directory: PathBuf,
    },
    /// The path is neither a function's directory nor an image.
    #[error("{}: neither a directory with a function.toml nor an image NAME.erofs with NAME.toml beside it", .0.display())]
    Neither(PathBuf),
}

impl FunctionImage {
    /// A function given by an image NAME.erofs with NAME.toml beside it.
    pub fn at(path: &Path) -> Result<Self, ImageError> {
        let function = read_function(&path.with_extension("toml"))?;
        Ok(Self { function, image: path.to_owned(), code: None })
    }

    /// Finds a function by a directory with a function.toml whose image has been built, or by an image
    /// NAME.erofs with NAME.toml beside it. For a function from an OCI image the definition is the one beside
    /// its image, because function.toml may leave out what the OCI image says.
    pub fn find(path: &Path, files: &Artifacts) -> Result<Self, ImageError> {
        if path.extension().is_some_and(|extension| extension == "erofs") && path.is_file() {
            return Self::at(path);
        }
        let definition = path.join("function.toml");
        if !definition.is_file() {
            return Err(ImageError::Neither(path.to_owned()));
        }
        let function = match oci_function(&definition)? {
            None => read_function(&definition)?,
            Some(name) => {
                let whole = files.image(&name).with_extension("toml");
                if !whole.is_file() {
                    let directory = path.to_owned();
                    return Err(ImageError::NotBuilt { image: whole, directory });
                }
                read_function(&whole)?
            }
        };
        let image = files.image(&function.name);
        Ok(Self { function, image, code: None })
    }
}

/// The part of a function.toml that says where the image comes from.
#[derive(Deserialize)]
struct Head {
    name: String,
    #[serde(default)]
    image: Origin,
}

#[derive(Default, Deserialize)]
struct Origin {
    oci: Option<String>,
}

/// The name of the function that a function.toml defines, if its image is made from an OCI image.
pub fn oci_function(definition: &Path) -> Result<Option<String>, ImageError> {
    let wrong = |error| ImageError::Function { path: definition.to_owned(), error };
    let head: Head = parse_toml(&read(definition)?).map_err(|error| wrong(error.into()))?;
    if head.image.oci.is_none() {
        return Ok(None);
    }
    // It becomes a file name.
    check_name(&head.name).map_err(wrong)?;
    Ok(Some(head.name))
}

/// Reads a function's definition.
pub fn read_function(path: &Path) -> Result<Function, ImageError> {
    Function::parse(&read(path)?)
        .map_err(|error| ImageError::Function { path: path.to_owned(), error })
}

fn read(path: &Path) -> Result<String, ImageError> {
    let file = |error| ImageError::File { path: path.to_owned(), error };
    let length = path.metadata().map_err(file)?.len();
    if length > MAX_DEFINITION_BYTES {
        let problem = format!("longer than {} MiB", MAX_DEFINITION_BYTES >> 20);
        return Err(file(io::Error::other(problem)));
    }
    std::fs::read_to_string(path).map_err(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_a_function_from_an_oci_image_is_stands_beside_its_image() {
        let directory = tempfile::tempdir().unwrap();
        let files = Artifacts::find(Some(directory.path())).unwrap();
        let function = directory.path().join("function");
        let write = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let definition = function.join("function.toml");
        write(&definition, "name = \"f\"\n[image]\noci = \"f.tar\"");
        let missing = FunctionImage::find(&function, &files).unwrap_err().to_string();
        assert!(missing.contains("build.sh") && missing.lines().count() == 1, "{missing}");

        let html = include_str!("../../../functions/html/function.toml");
        let whole = html.replace("name = \"html\"", "name = \"f\"");
        write(&files.image("f").with_extension("toml"), &whole);
        let found = FunctionImage::find(&function, &files).unwrap();
        assert_eq!((found.function.name.as_str(), found.image), ("f", files.image("f")));

        write(&definition, "name = \"../f\"\n[image]\noci = \"f.tar\"");
        let wrong = FunctionImage::find(&function, &files).unwrap_err().to_string();
        assert!(wrong.contains("name: must be"), "{wrong}");
    }
}
