//! Watches what a pull takes of the disk while tools work on it.

use super::{BlobError, PullError, WorkDirectory};
use crate::mutex::lock;
use crate::serve::{
    blobs::{DiskSpace, TakenSpace, blocking},
    watched_directory::{self, Usage},
};
use squeezy_sandbox::ToolError;
use std::sync::{Arc, Mutex, MutexGuard};

/// How many files a pull may have: a million of the image, as guest/image/oci/layers.py has it, and a few more.
const MOST_FILES: u64 = 1_010_000;

/// Does something that writes to a directory. It ends with an error, and what it has started is killed, as soon as
/// there is more than the space that is left, or that one pull may take.
pub async fn watched<T>(
    directory: &WorkDirectory,
    work: impl Future<Output = Result<T, PullError>>,
) -> Result<T, PullError> {
    watched_directory::watched(directory.path(), work, |found| judge(directory, found)).await
}

async fn judge(
    directory: &WorkDirectory,
    found: Result<Usage, ToolError>,
) -> Result<(), PullError> {
    let found = found.map_err(|error| PullError::of_tool(error, PullError::Internal));
    match found? {
        Usage { files, .. } if files > MOST_FILES => {
            Err(PullError::Image(format!("it has more than {MOST_FILES} files")))
        }
        Usage { bytes, .. } => take(directory, bytes).await,
    }
}

/// The disk space of one pull.
pub struct PullSpace {
    all: Arc<DiskSpace>,
    is_guest: bool,
    taken: Mutex<TakenSpace>,
}

impl PullSpace {
    /// Nothing yet, for the operator's namespace or for another one.
    pub fn new(all: &Arc<DiskSpace>, is_guest: bool) -> Arc<Self> {
        Arc::new(Self { all: all.clone(), is_guest, taken: Mutex::new(all.take_none()) })
    }

    /// The most that it may take, in bytes: with more, one pull would drive out what all others have. Those of other
    /// namespaces, two at a time, leave half to the operator, and to code.
    pub fn share(&self) -> u64 {
        self.all.most_bytes() / if self.is_guest { 2 } else { 4 }
    }

    /// Whether it may take so many bytes, if they are left.
    pub fn check(&self, bytes: u64) -> Result<(), PullError> {
        if bytes > self.share() { Err(self.too_much()) } else { Ok(()) }
    }

    /// The error for more than it may take.
    pub fn too_much(&self) -> PullError {
        let share = if self.is_guest { "half" } else { "a quarter" };
        PullError::NoDisk(format!(
            "the image takes more than {} MiB while it is made, {share} of actions_disk, which is the most that one may take",
            self.share() >> 20
        ))
    }

    /// Takes more, until it has so many bytes.
    pub fn take(&self, bytes: u64) -> Result<(), PullError> {
        self.check(bytes)?;
        Ok(self.taken().grow_to(bytes)?)
    }

    /// Leaves so many bytes to somebody else, who takes over a file.
    pub fn leave(&self, bytes: u64) {
        self.taken().shrink(bytes);
    }

    fn taken(&self) -> MutexGuard<'_, TakenSpace> {
        lock(&self.taken)
    }
}

/// Takes the space for what has been found in a directory. Others' files may have to go for it.
pub async fn take(directory: &WorkDirectory, bytes: u64) -> Result<(), PullError> {
    let space = directory.space().clone();
    blocking(move || space.take(bytes)).await
}

/// The error of a directory that cannot be written.
pub fn failed(error: std::io::Error) -> PullError {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            BlobError::DiskFull.into()
        }
        _ => PullError::Internal(format!("the state directory cannot be written: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::work::Work, *};
    use squeezy_sandbox::{Sandbox, output};
    use std::time::Duration;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_two_namespaces_pull_leaves_half_of_the_disk() {
        let all = DiskSpace::new(64 * MIB);
        let pulls = [PullSpace::new(&all, false), PullSpace::new(&all, false)];
        for pull in &pulls {
            pull.take(16 * MIB).unwrap();
            let more = pull.take(16 * MIB + 1).unwrap_err().to_string();
            assert!(more.contains("more than 16 MiB") && more.contains("a quarter"), "{more}");
        }
        PullSpace::new(&all, true).take(32 * MIB).unwrap();
        all.take_none().grow(32 * MIB).unwrap();
    }

    #[tokio::test]
    async fn a_tool_that_fills_the_disk_is_killed() {
        let state = tempfile::tempdir().unwrap();
        let space = DiskSpace::new(64 * MIB);
        let work = Work::new(state.path(), &space);
        let directory = work.directory(true).unwrap();
        // 8 MiB in one file after the other, hidden in a directory that is closed.
        let fill = "mkdir -m 0 in; i=0; while true; do head -c 8388608 /dev/zero > in/$i; i=$((i+1)); sleep 0.2; done";
        let path = directory.path().to_owned();
        let sandbox =
            Sandbox { work: &path, files: Vec::new(), most_file_bytes: directory.space().share() };
        let filling = output(sandbox.command(["sh", "-c", fill]), 0);
        let filling = async {
            filling.await.map(drop).map_err(|error| PullError::of_tool(error, PullError::Image))
        };
        let filled = tokio::time::timeout(Duration::from_secs(60), watched(&directory, filling));
        let error = filled.await.unwrap().unwrap_err();
        assert!(
            matches!(&error, PullError::NoDisk(text) if text.contains("more than 32 MiB")),
            "{error}"
        );
        assert!(space.taken_bytes() <= 32 * MIB);
        directory.remove().await;
        assert_eq!((space.taken_bytes(), path.exists()), (0, false));
    }
}
