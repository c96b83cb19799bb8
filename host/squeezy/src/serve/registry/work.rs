//! Directories in which images are pulled and made.

use super::{
    PullError,
    disk::{PullSpace, failed},
};
use crate::serve::{blobs::DiskSpace, log::log_warning, watched_directory::usage};
use squeezy_sandbox::{Sandbox, output};
use std::{
    fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Name of their directory in the state directory.
const DIRECTORY: &str = "pulls";

/// How often it is tried to remove one: a tool that was killed may go on writing for a moment.
const TRIES: u32 = 50;

/// All of them.
pub struct Work {
    state: PathBuf,
    space: Arc<DiskSpace>,
    numbers: Arc<AtomicU64>,
}

impl Work {
    /// In this state directory, within this space. What an earlier daemon has left is removed meanwhile.
    pub fn new(state: &Path, space: &Arc<DiskSpace>) -> Self {
        let entries = fs::read_dir(state.join(DIRECTORY)).into_iter().flatten().flatten();
        let left: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u64>().ok();
        let next = left.iter().filter_map(number).max().map_or(0, |last| last.wrapping_add(1));
        if !left.is_empty() {
            let space = space.clone();
            tokio::spawn(async move {
                for path in left {
                    // Until it is gone, nobody else can have its space.
                    let bytes = usage(&path).await.map_or(0, |usage| usage.bytes);
                    let _taken = space.take_anyway(bytes);
                    remove(&path).await;
                }
            });
        }
        Self { state: state.to_owned(), space: space.clone(), numbers: Arc::new(next.into()) }
    }

    /// The state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// An empty one, for the operator's namespace or for another one.
    pub fn directory(&self, is_guest: bool) -> Result<WorkDirectory, PullError> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let path = self.state.join(DIRECTORY).join(number.to_string());
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(failed)?;
        Ok(WorkDirectory { path, space: PullSpace::new(&self.space, is_guest) })
    }
}

/// One of them. It has its space until it is removed.
pub struct WorkDirectory {
    path: PathBuf,
    space: Arc<PullSpace>,
}

impl WorkDirectory {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its space on the disk.
    pub fn space(&self) -> &Arc<PullSpace> {
        &self.space
    }

    /// The length of a file in it, in bytes; 0 if it is not there.
    pub fn size_of(&self, name: &str) -> u64 {
        fs::symlink_metadata(self.path.join(name)).map_or(0, |metadata| metadata.len())
    }

    /// Writes a file in it that nobody else can read.
    pub fn write(&self, name: &str, text: &str) -> Result<(), PullError> {
        let mut options = fs::File::options();
        let file =
            options.write(true).create(true).truncate(true).mode(0o600).open(self.path.join(name));
        file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)
    }

    /// Removes a file in it, if it is there.
    pub fn forget(&self, name: &str) -> Result<(), PullError> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }

    /// Removes it, with all that is in it.
    pub async fn remove(self) {
        remove(&self.path).await;
    }
}

/// Removes a directory, whatever an image has made of it: one that is closed, or deeper than a path can be long.
async fn remove(path: &Path) {
    for _ in 0..TRIES {
        // Nobody but root can see into what an image has closed; in the sandbox, everybody is root.
        let sandbox = Sandbox { work: path, files: Vec::new(), most_file_bytes: 0 };
        let command = sandbox.command(["find", ".", "-mindepth", "1", "-delete"]);
        let emptied = output(command, 0).await.is_ok();
        match fs::remove_dir(path) {
            Ok(()) => return,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            // Without the sandbox there cannot be much.
            Err(_) if !emptied && fs::remove_dir_all(path).is_ok() => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    log_warning(&format!("{} cannot be removed", path.display()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn what_an_earlier_daemon_has_left_goes_however_it_looks() {
        let state = tempfile::tempdir().unwrap();
        let left = state.path().join(DIRECTORY).join("7");
        let mut deep = left.join("root");
        for _ in 0..100 {
            deep.push("d".repeat(30));
        }
        fs::create_dir_all(&deep).unwrap();
        fs::set_permissions(left.join("root"), fs::Permissions::from_mode(0o000)).unwrap();
        std::os::unix::fs::symlink("/", left.join("link")).unwrap();
        let space = DiskSpace::new(1 << 30);
        let work = Work::new(state.path(), &space);
        let mine = work.directory(false).unwrap();
        assert!(mine.path().ends_with("8"));
        mine.write("file", "text").unwrap();
        let gone = async {
            while left.exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap();
        assert!(mine.path().join("file").exists());
        let path = mine.path().to_owned();
        mine.remove().await;
        assert!(!path.exists());
    }
}
