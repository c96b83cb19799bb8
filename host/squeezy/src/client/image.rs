//! The image that a function is made of, built first if it has to be.

use super::ClientError;
use crate::output::complain;
use squeezy_node::{oci_function, read_function};
use squeezy_vmm::Artifacts;
use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Turns OCI images into images of functions, relative to the checkout or its like.
const SCRIPT: &str = "guest/image/build.sh";

/// Where the packages put it.
const INSTALLED: &str = "/usr/lib/squeezy";

/// The name of the image that a function is made of: of a directory with a function.toml, of an OCI
/// image, which is made into one first, or as it was given.
pub fn image_name(function: &Path) -> Result<String, ClientError> {
    let definition = function.join("function.toml");
    if definition.is_file() {
        return match oci_function(&definition)? {
            Some(_) => build(function),
            None => Ok(read_function(&definition)?.name),
        };
    }
    // An image of ours stands in the build directory under its name.
    let ours = function.extension().is_some_and(|extension| extension == "erofs");
    if ours && let Some(name) = function.file_stem() {
        return Ok(name.to_string_lossy().into_owned());
    }
    if function.is_file() || function.join("oci-layout").is_file() {
        return build(function);
    }
    Ok(function.to_string_lossy().into_owned())
}

/// Makes the image, and shows how far that is.
fn build(function: &Path) -> Result<String, ClientError> {
    let script = script().ok_or(ClientError::NoScript)?;
    let failed = |reason: String| ClientError::Build { path: function.to_owned(), reason };
    let mut command = Command::new(&script);
    command.arg("--image").arg(function).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().map_err(|error| failed(format!("{}: {error}", script.display())))?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let errors = std::thread::spawn(move || errors.map_or(String::new(), pass_on));
    let image = output.map_or(String::new(), pass_on);
    let problem = errors.join().unwrap_or_default();
    let status = child.wait().map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(if problem.is_empty() { status.to_string() } else { problem }));
    }
    if !problem.is_empty() {
        complain(problem);
    }
    match Path::new(&image).file_stem() {
        Some(name) => Ok(name.to_string_lossy().into_owned()),
        None => Err(failed(format!("{} names no image", script.display()))),
    }
}

/// Shows all lines on standard error but the last, which is returned.
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
    fn names_stay_what_they_are() {
        assert_eq!(image_name(Path::new("html")).unwrap(), "html");
        assert_eq!(image_name(Path::new("build/images/html.erofs")).unwrap(), "html");
    }
}
