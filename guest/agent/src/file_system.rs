//! The file system with the files of an instance: the writable layer of its root, /tmp and /dev/shm. An instance that
//! reaches its limits gets ENOSPC; at its memory limits it would be killed.
//!
//! The sandbox of the instance mounts it, and it is gone with the instance's mounts. One whose limit is to change is
//! made by the agent, which keeps it until the instance has ended: volumes may cover all that leads to it in the root.
//! Beside what the instance writes to, there can be a file in it from which it reads the limit of its memory.

use crate::{detached, init::mount_filesystem};
use rustix::{
    fs::{Mode, OFlags, fstatvfs, openat},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MountFlags, fsconfig_create,
        fsconfig_reconfigure, fsconfig_set_string, fsmount, fsopen, fspick,
    },
};
use squeezy_protocol::InstanceSpec;
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    sync::Arc,
};

/// The file in it that says how much memory its instance may have. The instance sees nothing of it but where its sandbox
/// mounts it, for reading.
pub const MEMORY_LIMIT: &str = "memory.max";
/// Its kind.
const KIND: &str = "tmpfs";
/// The option that says the most that it may hold, in bytes.
const SIZE: &str = "size";
/// Memory that an empty file takes outside its partition, in bytes: its inode and dentry, and those of the
/// overlay.
const FILE_BYTES: u64 = 2 << 10;

/// The file system of an instance, which is there for as long as this is, or a copy of it.
#[derive(Clone, Debug)]
pub struct FileSystem {
    mount: Arc<OwnedFd>,
    /// The size of its instance's partition, in bytes, if [`MEMORY_LIMIT`] is in it.
    partition_bytes: Option<u64>,
}

impl FileSystem {
    /// Makes it, with [`MEMORY_LIMIT`] for an instance in a partition of this size. It is mounted nowhere yet.
    pub fn create(spec: &InstanceSpec, partition_bytes: Option<u64>) -> io::Result<Self> {
        let context = fsopen(KIND, FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (name, value) in options(spec) {
            fsconfig_set_string(&context, name, value)?;
        }
        fsconfig_create(&context)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let mount = Arc::new(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?);
        let made = Self { mount, partition_bytes };
        made.show_limit(spec.private_limit_bytes)?;
        Ok(made)
    }

    /// Has its instance read how much memory it may have, if it reads that here: what its limit of private memory says,
    /// in bytes, and no more than its partition has.
    pub fn show_limit(&self, private_bytes: Option<u64>) -> io::Result<()> {
        let Some(partition_bytes) = self.partition_bytes else { return Ok(()) };
        write_limit(&self.mount, private_bytes.unwrap_or(u64::MAX).min(partition_bytes))
    }

    /// Changes the most that it may hold, in bytes. If it holds more, that is [`io::ErrorKind::StorageFull`], and
    /// nothing has changed.
    pub async fn limit(self, bytes: u64) -> io::Result<()> {
        // The kernel waits for its lock of the file system. And this copy may be the last one then.
        tokio::task::spawn_blocking(move || limit(&self.mount, bytes))
            .await
            .map_err(io::Error::other)?
    }

    /// Leaves it. If that was the last that had it, its files are gone when this returns.
    pub async fn leave(self) {
        detached::leave(self).await;
    }
}

impl AsFd for FileSystem {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }
}

/// Writes how much memory an instance may have, in bytes. Always to the same file, which is mounted. Its first write takes
/// the only page that it ever has, so that no later one fails because the file system is full.
fn write_limit(directory: impl AsFd, bytes: u64) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(directory, MEMORY_LIMIT, flags, Mode::from_raw_mode(0o644))?);
    let line = format!("{bytes}\n");
    // What is left of a longer one is after the end of the line, until it is cut off.
    file.write_all_at(line.as_bytes(), 0)?;
    file.set_len(line.len() as u64)
}

/// Mounts a file system for an instance, which nobody keeps, at `target`.
pub fn mount(spec: &InstanceSpec, target: &str) -> io::Result<()> {
    let options: Vec<String> =
        options(spec).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount_filesystem(KIND, KIND, target, flags, &options.join(","))
}

/// Its mount options.
fn options(spec: &InstanceSpec) -> Vec<(&'static str, String)> {
    let mut options = vec![("mode", "755".to_owned())];
    // Linux's default, half of memory, if absent.
    if let Some(bytes) = spec.files_limit_bytes {
        options.push((SIZE, bytes.to_string()));
    }
    // Inodes are outside of the partition.
    if let Some(bytes) = spec.memory_limit_bytes {
        options.push(("nr_inodes", (bytes / 2 / FILE_BYTES).to_string()));
    }
    options
}

fn limit(mount: &OwnedFd, bytes: u64) -> io::Result<()> {
    // A new one for each change: after one that was refused, it takes nothing more.
    let context = fspick(mount, "", FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH)?;
    fsconfig_set_string(&context, SIZE, bytes.to_string())?;
    match fsconfig_reconfigure(&context) {
        // The size is in order, and there was a limit before: so it holds more.
        Err(Errno::INVAL) => {
            let message = format!(
                "its files hold {} MiB, not {} MiB: remove some of them first",
                held_bytes(mount)?.div_ceil(1 << 20),
                bytes >> 20
            );
            Err(io::Error::new(io::ErrorKind::StorageFull, message))
        }
        changed => Ok(changed?),
    }
}

/// What its files hold, in bytes.
fn held_bytes(mount: &OwnedFd) -> io::Result<u64> {
    let all = fstatvfs(mount)?;
    Ok(all.f_blocks.saturating_sub(all.f_bfree) * all.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::MetadataExt};

    #[test]
    fn a_limit_is_written_to_the_same_file_again() {
        let directory = tempfile::tempdir().unwrap();
        let (handle, path) =
            (File::open(directory.path()).unwrap(), directory.path().join(MEMORY_LIMIT));
        let mut numbers = Vec::new();
        for bytes in [64 << 20, 128 << 20, 1 << 40, 2 << 20] {
            write_limit(&handle, bytes).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), format!("{bytes}\n"));
            numbers.push(fs::metadata(&path).unwrap().ino());
        }
        assert!(numbers.iter().all(|number| *number == numbers[0]), "{numbers:?}");
    }

    #[test]
    fn a_limit_of_memory_is_one_of_inodes() {
        let mut spec = InstanceSpec::new("a".parse().unwrap(), vec!["a".to_owned()]);
        assert_eq!(options(&spec), [("mode", "755".to_owned())]);
        spec.files_limit_bytes = Some(1 << 20);
        spec.memory_limit_bytes = Some(8 << 20);
        let expected = [("mode", "755"), ("size", "1048576"), ("nr_inodes", "2048")];
        assert_eq!(options(&spec), expected.map(|(name, value)| (name, value.to_owned())));
    }
}
