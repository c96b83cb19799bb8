//! Builds what a rig or an experiment needs, if it is missing.

use crate::{
    error::{BenchError, Result},
    harness::Progress,
};
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// Has `script`, a path in the checkout that contains the build directory, make what of `files` is missing.
pub(crate) async fn prepare(
    build: &Path,
    files: impl IntoIterator<Item = PathBuf>,
    script: &'static str,
    progress: &Progress,
) -> Result {
    let Some(missing) = files.into_iter().find(|file| !file.exists()) else { return Ok(()) };
    let path = build.with_file_name(script);
    if !path.exists() {
        let remedy = format!("it is missing: build it with {script} in a checkout");
        return Err(BenchError::file(missing, remedy));
    }
    progress.note(&format!("{} is missing: {script} builds it", missing.display()));
    // Its output is progress, not a result.
    let mut command = Command::new(&path);
    command.stdin(std::process::Stdio::null()).stdout(std::io::stderr()).kill_on_drop(true);
    let status = command.status().await.map_err(|e| BenchError::file(&path, e))?;
    match status.success() {
        true => Ok(()),
        false => Err(BenchError::file(&path, format!("it failed ({status}), see above"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executable::write_script;
    use std::fs;

    const SCRIPT: &str = "bench/build.sh";

    /// A checkout with this build script.
    fn checkout(script: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(SCRIPT);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::create_dir(root.path().join("build")).unwrap();
        write_script(&path, script);
        root
    }

    async fn prepare_in(root: &Path) -> Result<(), String> {
        let build = root.join("build");
        let done = prepare(&build, [build.join("made")], SCRIPT, &Progress::new()).await;
        done.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn what_is_missing_is_built_once() {
        let root = checkout("cd \"${0%/bench/*}\" && echo >>ran && : >build/made");
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
        assert!(missing.contains("made") && missing.contains(SCRIPT), "{missing}");
    }
}
