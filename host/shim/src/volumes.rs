//! What is on the host of volumes: files and directories that are copied into VMs, and files that are written back.
//!
//! Whoever may write there is not trusted to leave it as it is, or to have put there what a volume can be.

mod part;

pub use part::{Part, part};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, fstatfs, openat, readlinkat, statat,
    },
    io::Errno,
};
use squeezy_protocol::{FileContent, FileOwner, Volume, VolumeFile};
use std::{
    ffi::CStr,
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

/// The name in its volume of a file that is copied alone.
pub const FILE: &str = "file";
/// How much a container may add to the files that it can write to, in bytes, and how much is written back of one.
pub const ADDED_BYTES: u64 = 64 << 10;
/// A page, in bytes: less than one is one.
const PAGE_BYTES: u64 = 4096;
/// How much a container may keep of what was in a directory before, in bytes, with files that it has open.
const OLD_BYTES: u64 = 16 << 10;
/// How many files are there beside those that were copied, while they are changed.
const ADDED_FILES: u32 = 2;
/// What a file takes of the guest's memory beside its content, in bytes, and from which length on a link takes a page.
const FILE_BYTES: u64 = 1024;
const SHORT_LINK_BYTES: usize = 128;
/// The link that kubelet changes when the files of a volume do, and how often it may while they are read.
const DATA: &CStr = c"..data";
const ATTEMPTS: usize = 5;
/// From linux/magic.h.
pub(crate) const TMPFS: i64 = 0x0102_1994;
const HUGETLBFS: i64 = 0x9584_58f6;
/// What the kernel says of itself: some of it never ends, and is nobody's any more who reads it later.
const PROC: i64 = 0x9fa0;
const DEBUGFS: i64 = 0x6462_6720;
const TRACEFS: i64 = 0x7472_6163;

/// What is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The volume that it is.
    pub volume: Volume,
    /// Whether it is a single file, [`FILE`], in it.
    pub is_file: bool,
}

impl Copied {
    /// A copy of these files, with room for what a container adds to a single one, or for others that replace them.
    fn new(files: Vec<VolumeFile>, owner: FileOwner, is_file: bool) -> io::Result<Self> {
        let bytes: u64 = files.iter().map(bytes_of).sum();
        let limit_bytes = if is_file { bytes + ADDED_BYTES } else { 2 * bytes + OLD_BYTES };
        let limit_files = 2 * files.len() as u32 + ADDED_FILES;
        let volume = Volume { limit_bytes, limit_files, writable: false, owner, files };
        volume.check().map_err(|error| wrong(&error.to_string()))?;
        Ok(Self { volume, is_file })
    }

    /// The most memory of the guest that it can take, in bytes. What a container adds is its own.
    pub fn most_bytes(&self) -> u64 {
        let volume = &self.volume;
        let bytes = match self.is_file {
            true => volume.files.iter().map(bytes_of).sum(),
            false => volume.limit_bytes,
        };
        bytes + u64::from(volume.limit_files) * FILE_BYTES
    }
}

/// What the content of a file takes, in bytes. Short links are with the file.
fn bytes_of(file: &VolumeFile) -> u64 {
    let bytes = match &file.content {
        FileContent::File(content) => content.len(),
        FileContent::Link(to) if to.len() >= SHORT_LINK_BYTES => to.len(),
        FileContent::Directory | FileContent::Link(_) => 0,
    };
    (bytes as u64).next_multiple_of(PAGE_BYTES)
}

/// Reads a file or directory of the host.
///
/// # Errors
/// It cannot be read, has something in it that is no file, directory or link, or more than a volume may have, or somebody
/// whom no container has owns something of it.
pub fn copy(source: &Path) -> io::Result<Copied> {
    // Opening a device to read it may do something.
    let place = openat(CWD, source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let open = || {
        let path = format!("/proc/self/fd/{}", place.as_raw_fd());
        openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    };
    let found = fstat(&place)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => copy_directory(&open()?, &found),
        FileType::RegularFile => {
            let content = FileContent::File(content(open()?, 0)?);
            let file = VolumeFile { path: FILE.to_owned(), owner: owner(&found)?, content };
            let directory = FileOwner { user: 0, group: 0, mode: 0o755 };
            Copied::new(vec![file], directory, true)
        }
        _ => Err(wrong("it is neither a file nor a directory")),
    }
}

/// An empty volume in place of a directory of the host, with at most so many bytes and files.
///
/// # Errors
/// It is no directory, or one of huge pages, or somebody whom no container has owns it.
pub fn instead_of(source: &Path, most_bytes: u64, most_files: u32) -> io::Result<Volume> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, source, flags, Mode::empty())?;
    let found = fstatfs(&opened)?;
    // One in memory has a limit of its own, if Kubernetes has set one.
    let limit_bytes = match found.f_type {
        HUGETLBFS => return Err(wrong("it has huge pages")),
        TMPFS => found.f_blocks.saturating_mul(found.f_bsize.unsigned_abs()).min(most_bytes),
        _ => most_bytes,
    };
    Ok(Volume {
        limit_bytes: limit_bytes.max(PAGE_BYTES),
        limit_files: most_files,
        writable: true,
        owner: owner(&fstat(&opened)?)?,
        files: Vec::new(),
    })
}

/// Writes what a container has left in a file to where it is on the host.
///
/// # Errors
/// That is no file, or cannot be written.
pub fn write_back(source: &Path, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat(CWD, source, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&opened)?.st_mode) != FileType::RegularFile {
        return Err(wrong("it is no file"));
    }
    let mut file = File::from(opened);
    file.set_len(0)?;
    file.write_all(&bytes[..bytes.len().min(ADDED_BYTES as usize)])
}

fn copy_directory(directory: &OwnedFd, found: &Stat) -> io::Result<Copied> {
    let version = || readlinkat(directory, DATA, Vec::new()).ok();
    for _ in 0..ATTEMPTS {
        let before = version();
        let mut reading = Reading::default();
        match reading.directory(directory.as_fd(), "", 1) {
            Ok(()) if version() == before => {
                return Copied::new(reading.files, owner(found)?, false);
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            // It has changed in the meantime.
            _ => {}
        }
    }
    Err(wrong("it changes all the time"))
}

/// What was read of a directory.
#[derive(Default)]
struct Reading {
    files: Vec<VolumeFile>,
    bytes: usize,
}

impl Reading {
    fn directory(&mut self, directory: BorrowedFd<'_>, path: &str, depth: usize) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = entry?.file_name().to_owned();
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.push(name);
            }
            if self.files.len() + names.len() > Volume::MAX_FILES {
                return Err(wrong(&format!("it has more than {} files", Volume::MAX_FILES)));
            }
        }
        if depth > Volume::MAX_DEPTH && !names.is_empty() {
            return Err(wrong(&format!("it is deeper than {} directories", Volume::MAX_DEPTH)));
        }
        names.sort();
        for name in names {
            let text = name.to_str().map_err(|_| wrong("a name in it is no UTF-8"))?;
            let path = if path.is_empty() { text.to_owned() } else { format!("{path}/{text}") };
            self.file(directory, &name, path, depth)?;
        }
        Ok(())
    }

    /// Reads what is there, and follows no link.
    fn file(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        path: String,
        depth: usize,
    ) -> io::Result<()> {
        let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let owner = owner(&found)?;
        let mut push = |path: String, content| {
            self.files.push(VolumeFile { path, owner, content });
        };
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                push(path.clone(), FileContent::Directory);
                let inside = openat(directory, name, flags | OFlags::DIRECTORY, Mode::empty())?;
                self.directory(inside.as_fd(), &path, depth + 1)
            }
            FileType::RegularFile => {
                let opened = openat(directory, name, flags, Mode::empty())?;
                let content = content(opened, self.bytes)?;
                self.bytes += content.len();
                push(path, FileContent::File(content));
                Ok(())
            }
            FileType::Symlink => {
                let to = readlinkat(directory, name, Vec::new())?;
                let to = to.into_string().map_err(|_| wrong("a link in it is no UTF-8"))?;
                push(path, FileContent::Link(to));
                Ok(())
            }
            _ => {
                Err(wrong(&format!("{path:?} in it is neither a file nor a directory nor a link")))
            }
        }
    }
}

/// What is in a file, if a volume may have that beside what was read of it.
fn content(opened: OwnedFd, read: usize) -> io::Result<Vec<u8>> {
    if FileType::from_raw_mode(fstat(&opened)?.st_mode) != FileType::RegularFile {
        return Err(Errno::NOENT.into());
    }
    if [PROC, DEBUGFS, TRACEFS].contains(&fstatfs(&opened)?.f_type) {
        return Err(wrong("it has a file in which the host's kernel tells of itself"));
    }
    let room = Volume::MAX_BYTES - read;
    let mut content = Vec::new();
    File::from(opened).take(room as u64 + 1).read_to_end(&mut content)?;
    if content.len() > room {
        return Err(wrong(&format!("it has more than {} MiB", Volume::MAX_BYTES >> 20)));
    }
    Ok(content)
}

/// Whose a file is. A container has 65,536 users of its own.
fn owner(found: &Stat) -> io::Result<FileOwner> {
    let number = |number: u32| {
        u16::try_from(number).map_err(|_| {
            wrong(&format!(
                "it, or something in it, is of a user or a group above {}, {number}, which is not supported by this \
                 runtime",
                u16::MAX
            ))
        })
    };
    Ok(FileOwner {
        user: number(found.st_uid)?,
        group: number(found.st_gid)?,
        mode: (found.st_mode & 0o7777) as u16,
    })
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests;
