//! Builds what plain processes need, if it is missing.

use super::function::Language;
use crate::{
    error::{BenchError, Result},
    harness::Progress,
};
use std::path::Path;
use tokio::process::Command;

/// The script that builds it, in the checkout that contains the build directory.
const SCRIPT: &str = "bench/src/rigs/process/build.sh";

/// Builds everything in `build` that instances in these languages need.
pub(super) async fn prepare(
    build: &Path,
    languages: impl Iterator<Item = Language>,
    progress: &Progress,
) -> Result {
    let files = languages.flat_map(|language| language.built().iter().map(|file| build.join(file)));
    let Some(missing) = files.into_iter().find(|file| !file.exists()) else { return Ok(()) };
    let script = build.with_file_name(SCRIPT);
    if !script.exists() {
        let remedy = format!("it is missing: build it with {SCRIPT} in a checkout");
        return Err(BenchError::file(missing, remedy));
    }
    progress.note(&format!("{} is missing: {SCRIPT} builds it", missing.display()));
    // Its output is progress, not a result.
    let mut command = Command::new(&script);
    command.stdin(std::process::Stdio::null()).stdout(std::io::stderr()).kill_on_drop(true);
    let status = command.status().await.map_err(|e| BenchError::file(&script, e))?;
    match status.success() {
        true => Ok(()),
        false => Err(BenchError::file(&script, format!("it failed ({status}), see above"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    /// A checkout with this build script.
    fn checkout(script: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(SCRIPT);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::create_dir(root.path().join("build")).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        root
    }

    async fn prepare_in(root: &Path) -> Result<(), String> {
        let languages = [Language::JavaScript].into_iter();
        let done = prepare(&root.join("build"), languages, &Progress::new()).await;
        done.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn what_is_missing_is_built_once() {
        let root = checkout(
            "cd \"${0%/bench/*}\" && echo >>ran && mkdir -p build/squeezers/v8 && : >build/squeezers/v8/preload.js",
        );
        prepare_in(root.path()).await.unwrap();
        prepare_in(root.path()).await.unwrap();
        assert_eq!(fs::read_to_string(root.path().join("ran")).unwrap(), "\n");
    }

    #[tokio::test]
    async fn what_cannot_be_built_is_said_in_a_line() {
        let failed = prepare_in(checkout("exit 3").path()).await.unwrap_err();
        assert!(failed.contains("exit status: 3") && !failed.contains('\n'), "{failed}");
        let root = tempfile::tempdir().unwrap();
        let missing = prepare_in(root.path()).await.unwrap_err();
        assert!(missing.contains("preload.js") && missing.contains(SCRIPT), "{missing}");
    }
}
