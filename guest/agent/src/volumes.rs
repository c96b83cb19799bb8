//! Volumes: file systems in memory, each of its own size, that instances have parts of in their roots.
//!
//! What the host puts into one, only the host changes: an instance can read it, or write into single files that are
//! there, and names in it are what the host has said. Into a volume that instances write to, the agent never looks; the
//! sandbox finds parts of it, and follows no link there.

use crate::{
    detached::{detach, leave},
    error::ApiError,
    init::mount_filesystem,
};
use rustix::{
    io::Errno,
    mount::{MountFlags, mount_remount},
};
use squeezy_protocol::{
    ErrorCode, FileContent, FileOwner, MAX_BODY_BYTES, Volume, VolumeMount, is_name,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashSet},
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown, lchown, symlink},
    },
    path::{Path, PathBuf},
};

/// Where volumes are mounted, each in a directory named after its number.
const DIRECTORY: &str = "/run/squeezy/volumes";

/// The volumes of the VM.
#[derive(Debug, Default)]
pub struct Volumes {
    /// By their numbers.
    known: RefCell<BTreeMap<u32, Known>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// Whether instances write to it.
    writable: bool,
    limit_bytes: u64,
    limit_files: u32,
}

impl Volumes {
    /// Makes a volume.
    pub fn add(&self, number: u32, volume: &Volume) -> Result<(), ApiError> {
        check(number, volume)?;
        let mut known = self.known.borrow_mut();
        if known.contains_key(&number) {
            let message = format!("there is already a volume {number}");
            return Err(ApiError::new(ErrorCode::Exists, message));
        }
        if known.len() >= Volume::MAX_COUNT {
            let message = format!("there are already {} volumes", Volume::MAX_COUNT);
            return Err(ApiError::new(ErrorCode::Unavailable, message));
        }
        let directory = directory(number);
        let made = make(&directory, volume).and_then(|()| write_files(&directory, volume));
        if let Err(error) = made {
            let _ = unmake(&directory);
            return Err(failed(number, error));
        }
        let Volume { limit_bytes, limit_files, writable, .. } = *volume;
        known.insert(number, Known { writable, limit_bytes, limit_files });
        Ok(())
    }

    /// Changes the files of a volume that is the host's, and its limits. Those are the larger ones until the old files
    /// are gone; if somebody has them open, and they do not fit, this fails after the files have changed.
    pub fn change(&self, number: u32, volume: &Volume) -> Result<(), ApiError> {
        check(number, volume)?;
        let mut known = self.known.borrow_mut();
        let known = known.get_mut(&number).filter(|known| !known.writable);
        let known = known.ok_or_else(|| no_volume(number))?;
        let directory = directory(number);
        let before = *known;
        let mut limit = |bytes: u64, files: u32| {
            limit(&directory, bytes, files)?;
            (known.limit_bytes, known.limit_files) = (bytes, files);
            Ok(())
        };
        let (bytes, files) = (volume.limit_bytes, volume.limit_files);
        limit(bytes.max(before.limit_bytes), files.max(before.limit_files))
            .and_then(|()| {
                write_files(&directory, volume).inspect_err(|_| {
                    let _ = remove(&directory.join(Volume::NEW_NAME));
                })
            })
            .and_then(|()| limit(bytes, files))
            .map_err(|error| failed(number, error))
    }

    /// The beginning of a file that the host has put into a volume, and instances may have written to.
    pub fn read(&self, number: u32, name: &str) -> Result<Vec<u8>, ApiError> {
        let absent = || {
            let name = name.escape_debug();
            ApiError::new(ErrorCode::NotFound, format!("volume {number} has no file {name}"))
        };
        let is_ours = self.known.borrow().get(&number).is_some_and(|known| !known.writable);
        if !is_ours || !is_name(name) {
            return Err(absent());
        }
        let path = directory(number).join(name);
        if !is_file(&path) {
            return Err(absent());
        }
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MAX_BODY_BYTES as u64).read_to_end(&mut bytes))
            .map_err(|error| failed(number, error))?;
        Ok(bytes)
    }

    /// Removes a volume. Instances that have it keep it to their end; without any, its files are gone when this returns.
    pub async fn remove(&self, number: u32) -> Result<(), ApiError> {
        if !self.known.borrow().contains_key(&number) {
            return Err(no_volume(number));
        }
        let files = unmake(&directory(number)).map_err(|error| failed(number, error))?;
        self.known.borrow_mut().remove(&number);
        leave(files).await;
        Ok(())
    }

    /// What an instance has where it wants this, or a part of, as the agent sees it.
    pub fn source(&self, mount: &VolumeMount) -> Result<String, ApiError> {
        let number = mount.volume;
        let known = self.known.borrow().get(&number).copied();
        let writable = known.ok_or_else(|| no_volume(number))?.writable;
        let whole = directory(number);
        let path = match (&mount.file, &mount.part) {
            (Some(name), _) if !writable && is_file(&whole.join(name)) => whole.join(name),
            (Some(_), _) => return Err(no_volume(number)),
            // The sandbox finds the part.
            (None, _) if writable => whole,
            (None, None) if mount.read_only => whole,
            // They could put links there that lead the agent anywhere.
            (None, _) => {
                let message = format!("volumes: the files of volume {number} are the host's");
                return Err(ApiError::invalid(message));
            }
        };
        Ok(path.to_string_lossy().into_owned())
    }
}

fn directory(number: u32) -> PathBuf {
    Path::new(DIRECTORY).join(number.to_string())
}

fn no_volume(number: u32) -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("there is no such volume {number}"))
}

fn failed(number: u32, error: io::Error) -> ApiError {
    ApiError::internal(&format!("volume {number}"), error)
}

fn check(number: u32, volume: &Volume) -> Result<(), ApiError> {
    volume.check().map_err(|error| ApiError::invalid(format!("volume {number}: {error}")))
}

fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

fn make(directory: &Path, volume: &Volume) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let safe = MountFlags::NOSUID | MountFlags::NODEV;
    let FileOwner { user, group, mode } = volume.owner;
    let limits = limits(volume.limit_bytes, volume.limit_files);
    let options = format!("{limits},mode={:o},uid={user},gid={group}", mode & 0o7777);
    mount_filesystem("tmpfs", "tmpfs", &directory.to_string_lossy(), safe, &options)
}

/// Mount options of a volume with these limits.
fn limits(bytes: u64, files: u32) -> String {
    // One more for its own directory.
    format!("size={bytes},nr_inodes={}", files.saturating_add(1))
}

fn limit(directory: &Path, bytes: u64, files: u32) -> io::Result<()> {
    let safe = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(mount_remount(directory, safe, limits(bytes, files).as_str())?)
}

/// Removes where a volume is, and returns what has its files still.
fn unmake(directory: &Path) -> io::Result<Option<OwnedFd>> {
    let files = match detach(directory) {
        // It was not mounted.
        Err(Errno::INVAL) => None,
        detached => Some(detached?),
    };
    fs::remove_dir(directory)?;
    Ok(files)
}

/// Makes the files of a volume those that the host wants. Whoever reads one sees the old or the new one; links change
/// after what they lead to is there, as Kubernetes has it.
fn write_files(root: &Path, volume: &Volume) -> io::Result<()> {
    let new = root.join(Volume::NEW_NAME);
    let mut wanted = HashSet::new();
    for file in &volume.files {
        let path = root.join(&file.path);
        wanted.insert(path.clone());
        match &file.content {
            FileContent::Directory => {
                if !fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
                    remove(&path)?;
                    fs::DirBuilder::new().mode(0o700).create(&path)?;
                }
                give(&path, file.owner)?;
            }
            FileContent::File(content) => {
                write(&new, content, file.owner)?;
                replace(&new, &path)?;
            }
            FileContent::Link(_) => {}
        }
    }
    for file in &volume.files {
        if let FileContent::Link(to) = &file.content {
            remove(&new)?;
            symlink(to, &new)?;
            lchown(&new, Some(file.owner.user.into()), Some(file.owner.group.into()))?;
            replace(&new, &root.join(&file.path))?;
        }
    }
    remove_others(root, &wanted)
}

fn write(path: &Path, content: &[u8], owner: FileOwner) -> io::Result<()> {
    remove(path)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    give(path, owner)
}

fn give(path: &Path, owner: FileOwner) -> io::Result<()> {
    chown(path, Some(owner.user.into()), Some(owner.group.into()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(u32::from(owner.mode) & 0o7777))
}

fn replace(new: &Path, path: &Path) -> io::Result<()> {
    // Nothing but a directory takes the place of a directory.
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        remove(path)?;
    }
    fs::rename(new, path)
}

/// Removes whatever is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes what is below a directory and not wanted. It is no deeper than volumes are.
fn remove_others(directory: &Path, wanted: &HashSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if !wanted.contains(&path) {
            remove(&path)?;
        } else if fs::symlink_metadata(&path)?.is_dir() {
            remove_others(&path, wanted)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use squeezy_protocol::VolumeFile;

    /// Whoever runs the tests.
    fn owner(mode: u16) -> FileOwner {
        let number = |id: u32| u16::try_from(id).expect("it is a usual user");
        FileOwner {
            user: number(rustix::process::getuid().as_raw()),
            group: number(rustix::process::getgid().as_raw()),
            mode,
        }
    }

    fn volume(files: &[(&str, FileContent)]) -> Volume {
        let file = |(path, content): &(&str, FileContent)| VolumeFile {
            path: (*path).to_owned(),
            owner: owner(if *content == FileContent::Directory { 0o755 } else { 0o640 }),
            content: content.clone(),
        };
        let files = files.iter().map(file).collect();
        Volume {
            limit_bytes: 1 << 20,
            limit_files: 100,
            writable: false,
            owner: owner(0o755),
            files,
        }
    }

    fn data(text: &str) -> FileContent {
        FileContent::File(text.into())
    }

    fn link(to: &str) -> FileContent {
        FileContent::Link(to.to_owned())
    }

    #[test]
    fn what_kubelet_swaps_is_swapped() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let version = |name: &str, text: &str, more: &[(&str, FileContent)]| {
            let inside = format!("{name}/key");
            let mut files = vec![(name, FileContent::Directory), (&inside, data(text))];
            files.extend([("..data", link(name)), ("key", link("..data/key"))]);
            files.extend(more.iter().cloned());
            volume(&files)
        };
        let first = version("..1", "one", &[("old", link("..data/old"))]);
        first.check().unwrap();
        write_files(root, &first).unwrap();
        assert_eq!(fs::read_to_string(root.join("key")).unwrap(), "one");
        let mode = fs::metadata(root.join("key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
        write_files(root, &version("..2", "two", &[])).unwrap();
        assert_eq!(fs::read_to_string(root.join("key")).unwrap(), "two");
        let mut names: Vec<_> =
            fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["..2", "..data", "key"]);
    }

    #[test]
    fn a_file_becomes_a_directory_and_a_link_and_nothing_outside_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let (root, outside) = (directory.path().join("volume"), directory.path().join("outside"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        let out = outside.to_str().unwrap();
        write_files(&root, &volume(&[("a", link(out)), ("b", data("x"))])).unwrap();
        let swapped = volume(&[
            ("a", FileContent::Directory),
            ("a/inside", data("y")),
            ("b", FileContent::Directory),
        ]);
        write_files(&root, &swapped).unwrap();
        assert_eq!(fs::read_to_string(root.join("a/inside")).unwrap(), "y");
        write_files(&root, &volume(&[("a", link(out)), ("b", data("z"))])).unwrap();
        assert_eq!(fs::read_to_string(root.join("b")).unwrap(), "z");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }
}
