//! Finds the image of a function, and builds it first if necessary.

use super::ClientError;
use crate::output::complain;
use squeezy_node::{oci_function, read_function};
use squeezy_vmm::Artifacts;
use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The script that converts OCI images to images of functions, relative to the checkout.
const SCRIPT: &str = "guest/image/build.sh";

/// Where packages install it.
const INSTALLED: &str = "/usr/lib/squeezy";

/// What a function is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The most recent image with this name.
    Image(String),
    /// An OCI image, or a directory whose function.toml names one. An image is built from it first.
    Oci {
        /// Path of the OCI image or the directory.
        path: PathBuf,
        /// The name of the resulting image.
        name: String,
    },
}

/// A reference to an image that the daemon can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageReference {
    /// Its name.
    pub name: String,
    /// Which image with this name; if absent, the most recent one.
    pub digest: Option<String>,
}

impl Source {
    /// Classifies the argument: a directory with a function.toml, an OCI image, or an image of
    /// ours.
    pub fn find(function: &Path) -> Result<Self, ClientError> {
        let definition = function.join("function.toml");
        if definition.is_file() {
            return match oci_function(&definition)? {
                Some(name) => Ok(Self::Oci { path: function.to_owned(), name }),
                None => {
                    let name = read_function(&definition)?.name;
                    check_built(&name, &definition, function)?;
                    Ok(Self::Image(name))
                }
            };
        }
        // One of our images is named after its file in the build directory.
        let ours = function.extension().is_some_and(|extension| extension == "erofs");
        if ours && let Some(name) = function.file_stem() {
            return Ok(Self::Image(name.to_string_lossy().into_owned()));
        }
        if function.is_file() || function.join("oci-layout").is_file() {
            let name = function.file_name().unwrap_or_default().to_string_lossy();
            let name = name.strip_suffix(".tar").unwrap_or(&name).to_owned();
            return Ok(Self::Oci { path: function.to_owned(), name });
        }
        let name = function.to_string_lossy().into_owned();
        if function.is_dir() || name.contains('/') || name.ends_with(".tar") {
            return Err(match function.metadata() {
                Ok(_) => ClientError::NoFunction { path: function.to_owned() },
                Err(error) => ClientError::file(function, &error),
            });
        }
        Ok(Self::Image(name))
    }

    /// The function's default name.
    pub fn name(&self) -> &str {
        match self {
            Self::Image(name) | Self::Oci { name, .. } => name,
        }
    }

    /// The image, built first if necessary.
    pub fn image(&self) -> Result<ImageReference, ClientError> {
        match self {
            Self::Image(name) => Ok(ImageReference { name: name.clone(), digest: None }),
            Self::Oci { path, .. } => build(path),
        }
    }
}

/// Checks that the image with this name was built from this function.toml, as far as can be told on
/// this machine.
fn check_built(name: &str, definition: &Path, function: &Path) -> Result<(), ClientError> {
    let Ok(files) = Artifacts::find(None) else { return Ok(()) };
    let built = std::fs::read(files.image(name).with_extension("toml"));
    match (built, std::fs::read(definition)) {
        (Ok(built), Ok(given)) if built != given => {
            Err(ClientError::OtherImage { name: name.to_owned(), directory: function.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Builds the image and shows progress.
fn build(function: &Path) -> Result<ImageReference, ClientError> {
    let script = script().ok_or(ClientError::NoScript)?;
    let failed = |reason: String| ClientError::Build { path: function.to_owned(), reason };
    let mut command = Command::new(&script);
    command.arg("--reference").arg(function).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().map_err(|error| failed(format!("{}: {error}", script.display())))?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let errors = std::thread::spawn(move || errors.map_or(String::new(), pass_on));
    let made = output.map_or(String::new(), pass_on);
    let problem = errors.join().unwrap_or_default();
    let status = child.wait().map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(if problem.is_empty() { status.to_string() } else { problem }));
    }
    if !problem.is_empty() {
        complain(problem);
    }
    match made.split_once('@') {
        Some((name, digest)) => {
            Ok(ImageReference { name: name.to_owned(), digest: Some(digest.to_owned()) })
        }
        None => Err(failed(format!("{} did not print the name of an image", script.display()))),
    }
}

/// Copies all lines but the last to standard error; returns the last line.
fn pass_on(output: impl Read) -> String {
    let mut last = String::new();
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        if !last.is_empty() {
            complain(&last);
        }
        last = String::from_utf8_lossy(&line).into_owned();
    }
    last
}

fn script() -> Option<PathBuf> {
    let files = Artifacts::find(None).ok();
    let beside = files.as_ref().and_then(|files| files.path().parent());
    let places = beside.into_iter().chain([Path::new(INSTALLED)]);
    places.map(|place| place.join(SCRIPT)).find(|script| script.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_what_counts() {
        assert_eq!(pass_on(&b"one\ntwo\n"[..]), "two");
        assert_eq!(pass_on(&b"one\n\xff"[..]), "\u{fffd}");
        assert_eq!(pass_on(&b""[..]), "");
    }

    #[test]
    fn what_a_function_is_made_of_is_seen_before_anything_is_made() {
        let find = |path: &Path| Source::find(path);
        let html = Source::Image("html".to_owned());
        assert_eq!(find(Path::new("html")).unwrap(), html);
        assert_eq!(find(Path::new("build/images/html.erofs")).unwrap(), html);
        let directory = tempfile::tempdir().unwrap();
        let archive = directory.path().join("f-1.tar");
        std::fs::write(&archive, "").unwrap();
        assert_eq!(find(&archive).unwrap().name(), "f-1");
        let missing = directory.path().join("missing");
        for (path, part) in [
            (directory.path(), "not a function: "),
            (missing.as_path(), "No such file"),
            (Path::new("missing.tar"), "No such file"),
        ] {
            let error = find(path).unwrap_err().to_string();
            assert!(error.contains(&*path.to_string_lossy()) && error.contains(part), "{error}");
        }
    }
}
