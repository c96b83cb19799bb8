//! Directories that programs fill which read what nobody vouches for: what is there is looked at meanwhile.

use squeezy_sandbox::{Sandbox, ToolError, output};
use std::{
    path::Path,
    time::{Duration, Instant},
};
use tokio::time::{sleep, timeout};

/// How often it is looked at, at most: as much time is left between two looks as one of them takes.
const LOOK: Duration = Duration::from_millis(500);

/// The longest that one may take.
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// What is below a directory.
#[derive(Debug, PartialEq, Eq)]
pub struct Usage {
    /// What it takes on the disk, in bytes.
    pub bytes: u64,
    /// How many files and directories there are.
    pub files: u64,
}

/// Does something that writes to a directory. It ends with an error, and what it has started is killed, as soon as
/// `judge` has one about what is there.
pub async fn watched<T, E, J: Future<Output = Result<(), E>>>(
    directory: &Path,
    work: impl Future<Output = Result<T, E>>,
    judge: impl FnMut(Result<Usage, ToolError>) -> J,
) -> Result<T, E> {
    tokio::select! {
        // So that it has heard what may be there before that is judged.
        biased;
        done = work => done,
        error = first_error(directory, judge) => Err(error),
    }
}

async fn first_error<E, J: Future<Output = Result<(), E>>>(
    directory: &Path,
    mut judge: impl FnMut(Result<Usage, ToolError>) -> J,
) -> E {
    let mut pause = LOOK;
    loop {
        sleep(pause).await;
        let begun = Instant::now();
        if let Err(error) = judge(usage(directory).await).await {
            return error;
        }
        pause = LOOK.max(begun.elapsed());
    }
}

/// What is below a directory. It is looked at in a sandbox, where nothing is closed to it.
pub async fn usage(path: &Path) -> Result<Usage, ToolError> {
    let sandbox = Sandbox { work: path, files: Vec::new(), most_file_bytes: 0 };
    // Files that go away meanwhile are no error.
    let look = "du -s --block-size=1 . 2>/dev/null; du -s --inodes . 2>/dev/null; true";
    let said = output(sandbox.command(["sh", "-c", look]), 4096);
    let failed = || ToolError::Said("what it takes on the disk cannot be measured".to_owned());
    let said = match timeout(LONGEST_LOOK, said).await {
        Ok(Err(error @ ToolError::Missing(_))) => return Err(error),
        Ok(said) => said.map_err(|_| failed())?,
        Err(_) => return Err(failed()),
    };
    let said = String::from_utf8_lossy(&said);
    let mut numbers = said.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
    let (Some(bytes), Some(files)) = (numbers.next(), numbers.next()) else { return Err(failed()) };
    Ok(Usage { bytes, files })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    const MIB: u64 = 1 << 20;

    #[tokio::test]
    async fn what_an_image_has_closed_counts() {
        let directory = tempfile::tempdir().unwrap();
        let closed = directory.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::write(closed.join("file"), vec![1; 3 << 20]).unwrap();
        fs::write(directory.path().join("empty"), "").unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        let Usage { bytes, files } = usage(directory.path()).await.unwrap();
        assert!((3 * MIB..4 * MIB).contains(&bytes), "{bytes}");
        assert_eq!(files, 4);
    }
}
