//! Unpacks zip archives that nobody vouches for.

use crate::{BLOCK_BYTES, PutError, make_directory};
use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read, Seek},
    os::unix::fs::OpenOptionsExt,
    path::{Component, Path, PathBuf},
};
use zip::{ZipArchive, read::ZipFile, result::ZipError};

/// The most that an archive may unpack to, in bytes, and in files and directories. What an instance may
/// have in files, half of its memory, may be less.
const MOST_BYTES: u64 = 256 << 20;
const MOST_ENTRIES: usize = 65_536;

/// How much of a file's name is said, in characters.
const MOST_SAID: usize = 100;

/// Of a file's mode: what kind of file it is, and a plain one.
const KIND: u32 = 0o170_000;
const PLAIN: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;

/// An archive whose list of files has been looked at. Files that lead out of it, links and devices are refused; so is
/// what is larger than an action can be.
pub struct Archive<R> {
    archive: ZipArchive<R>,
    /// What its files have according to the list, in bytes. It is not unpacked to more.
    content_bytes: u64,
    /// What they take on a disk, with their directories, in bytes.
    disk_bytes: u64,
}

impl<R: Read + Seek> Archive<R> {
    /// Looks at an archive.
    pub(crate) fn open(archive: R) -> Result<Self, PutError> {
        Self::open_within(MOST_BYTES, MOST_ENTRIES, archive)
    }

    fn open_within(most_bytes: u64, most_entries: usize, archive: R) -> Result<Self, PutError> {
        let mut archive = ZipArchive::new(archive).map_err(broken)?;
        let too_many = || {
            PutError::Wrong(format!(
                "The archive has more than {most_entries} files and directories."
            ))
        };
        if archive.len() > most_entries {
            return Err(too_many());
        }
        let (mut content_bytes, mut disk_bytes, mut files) = (0_u64, BLOCK_BYTES, 0);
        // An entry may be the only one in a hundred directories.
        let mut directories = BTreeSet::new();
        for number in 0..archive.len() {
            let file = archive.by_index_raw(number).map_err(broken)?;
            let name = file.name().map_err(broken)?.into_owned();
            let place = inside(&name, file.unix_mode())?;
            let parents = if file.is_dir() { Some(&*place) } else { place.parent() };
            for directory in parents.into_iter().flat_map(Path::ancestors) {
                if !directories.insert(directory.to_owned()) {
                    break;
                }
            }
            if !file.is_dir() {
                files += 1;
                content_bytes = content_bytes.saturating_add(file.size());
                disk_bytes = disk_bytes.saturating_add(file.size()).saturating_add(2 * BLOCK_BYTES);
            }
            if files + directories.len() > most_entries {
                return Err(too_many());
            }
        }
        if content_bytes > most_bytes {
            return Err(too_large(most_bytes));
        }
        disk_bytes += BLOCK_BYTES * directories.len() as u64;
        Ok(Self { archive, content_bytes, disk_bytes })
    }

    /// What it takes on a disk, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// Unpacks it into a directory that is empty.
    pub(crate) fn unpack(mut self, directory: &Path) -> Result<(), PutError> {
        let mut left = self.content_bytes;
        for number in 0..self.archive.len() {
            let mut file = self.archive.by_index(number).map_err(broken)?;
            let name = file.name().map_err(broken)?.into_owned();
            let place = directory.join(inside(&name, file.unix_mode())?);
            let parent = if file.is_dir() { Some(&*place) } else { place.parent() };
            make_directory(parent.unwrap_or(directory)).map_err(|error| failed(&name, &error))?;
            if !file.is_dir() {
                left -= write(&mut file, &name, &place, left)?;
            }
        }
        Ok(())
    }
}

fn broken(error: ZipError) -> PutError {
    PutError::Wrong(format!("The archive cannot be read: {error}."))
}

fn too_large(most_bytes: u64) -> PutError {
    PutError::Wrong(format!(
        "The archive unpacks to more than the {} MiB that an action may have in files.",
        most_bytes >> 20
    ))
}

/// Where an entry with this name and mode belongs in the directory.
fn inside(name: &str, mode: Option<u32>) -> Result<PathBuf, PutError> {
    let path = Path::new(name);
    let is_inside = !name.contains(['\0', '\\'])
        && path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if name.is_empty() || !is_inside {
        return Err(PutError::Wrong(format!(
            "The archive has the file {}, which is not inside it: use paths without \"..\" that do not begin with \"/\".",
            shown(name)
        )));
    }
    match mode.map(|mode| mode & KIND) {
        None | Some(0 | PLAIN | DIRECTORY) => Ok(path.to_owned()),
        _ => Err(PutError::Wrong(format!(
            "The archive has {}, which is a link or a device: pack files only (zip without -y).",
            shown(name)
        ))),
    }
}

/// Writes a file of at most `most` bytes; returns how many it has.
fn write<R: Read>(
    file: &mut ZipFile<'_, R>,
    name: &str,
    place: &Path,
    most: u64,
) -> Result<u64, PutError> {
    let is_program = file.unix_mode().is_some_and(|mode| mode & 0o111 != 0);
    let mode = if is_program { 0o755 } else { 0o644 };
    let made = File::options().write(true).create_new(true).mode(mode).open(place);
    let mut made = made.map_err(|error| failed(name, &error))?;
    // Not as much as it says: as much as there is.
    let written =
        io::copy(&mut file.take(most + 1), &mut made).map_err(|error| failed(name, &error))?;
    if written > most {
        return Err(PutError::Wrong(format!(
            "The archive cannot be read: {} unpacks to more than the archive says.",
            shown(name)
        )));
    }
    Ok(written)
}

fn failed(name: &str, error: &io::Error) -> PutError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => PutError::Full,
        io::ErrorKind::AlreadyExists => {
            PutError::Wrong(format!("The archive has {} more than once.", shown(name)))
        }
        _ => PutError::Wrong(format!("The archive's {} cannot be unpacked: {error}.", shown(name))),
    }
}

/// A name as messages have it: in one line, and not so long that the reason is lost.
fn shown(name: &str) -> String {
    match name.char_indices().nth(MOST_SAID) {
        Some((end, _)) => format!("{:?}...", &name[..end]),
        None => format!("{name:?}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::{
        fs,
        io::{Cursor, Write},
    };
    use zip::{ZipWriter, write::SimpleFileOptions};

    /// An archive with these files.
    pub(crate) fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in files {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    /// Unpacks an archive within limits; returns what it said that it takes, in bytes.
    fn unpack_within(
        most_bytes: u64,
        most_entries: usize,
        archive: &[u8],
        directory: &Path,
    ) -> Result<u64, String> {
        let opened = Archive::open_within(most_bytes, most_entries, Cursor::new(archive));
        let opened = opened.map_err(|error| error.to_string())?;
        let bytes = opened.bytes();
        make_directory(directory).unwrap();
        opened.unpack(directory).map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    fn unpacked(archive: &[u8]) -> (tempfile::TempDir, Result<u64, String>) {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("action");
        let outcome = unpack_within(MOST_BYTES, MOST_ENTRIES, archive, &place);
        (directory, outcome)
    }

    #[test]
    fn files_are_where_they_belong() {
        let (directory, outcome) =
            unpacked(&archive(&[("a.py", b"a"), ("b/c/d.py", b"d"), ("./e", b"e")]));
        // Three files, their own directory and two more.
        assert!((6 * BLOCK_BYTES..12 * BLOCK_BYTES).contains(&outcome.unwrap()));
        for (name, content) in [("a.py", "a"), ("b/c/d.py", "d"), ("e", "e")] {
            assert_eq!(
                fs::read_to_string(directory.path().join("action").join(name)).unwrap(),
                content
            );
        }
    }

    /// Puts another text of the same length into an archive's bytes, wherever a text is.
    fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
        assert_eq!(from.len(), to.len());
        while let Some(at) = bytes.windows(from.len()).position(|part| part == from) {
            bytes[at..at + to.len()].copy_from_slice(to);
        }
    }

    #[test]
    fn what_leads_out_is_refused() {
        for name in ["../a", "a/../../b", "/etc/a", "a\\..\\..\\b"] {
            // The writer would correct the name.
            let stand_in = "x".repeat(name.len());
            let mut bytes = archive(&[(&stand_in, b"")]);
            replace(&mut bytes, stand_in.as_bytes(), name.as_bytes());
            let (directory, outcome) = unpacked(&bytes);
            let error = outcome.unwrap_err();
            assert!(error.contains("not inside it"), "{name}: {error}");
            assert!(!directory.path().join("a").exists() && !directory.path().join("b").exists());
        }
    }

    #[test]
    fn of_a_long_name_the_beginning_is_said() {
        // The file system has no such name.
        let (_directory, outcome) = unpacked(&archive(&[(&"x".repeat(5000), b"a")]));
        let error = outcome.unwrap_err();
        let right = format!("The archive's \"{}\"... cannot be unpacked: ", "x".repeat(MOST_SAID));
        assert!(error.starts_with(&right) && error.len() < 300, "{error}");
        assert_eq!(shown(&"é".repeat(MOST_SAID)), format!("{:?}", "é".repeat(MOST_SAID)));
    }

    #[test]
    fn links_are_refused() {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        writer.add_symlink("a", "/etc/passwd", SimpleFileOptions::default()).unwrap();
        let (directory, outcome) = unpacked(&writer.finish().unwrap().into_inner());
        assert!(outcome.unwrap_err().contains("is a link"));
        assert!(!directory.path().join("action/a").exists());
    }

    #[test]
    fn a_bomb_does_not_go_off() {
        let bytes = archive(&[("zeros", &[0; 1 << 20]), ("more", &[0; 1 << 20])]);
        assert!(bytes.len() < 8 << 10, "{}", bytes.len());
        let directory = tempfile::tempdir().unwrap();
        let unpack = |most_bytes| unpack_within(most_bytes, 3, &bytes, directory.path());
        assert!(unpack(2 << 20).is_ok_and(|bytes| bytes > 2 << 20));
        fs::remove_dir_all(directory.path()).unwrap();
        let error = unpack((2 << 20) - 1).unwrap_err();
        assert!(error.contains("unpacks to more than the 1 MiB"), "{error}");
    }

    #[test]
    fn what_unpacks_to_more_than_it_says_is_refused() {
        let mut bytes = archive(&[("zeros", &[0; 0x12345])]);
        // In both lists of files.
        replace(&mut bytes, &0x12345_u32.to_le_bytes(), &1_u32.to_le_bytes());
        let (directory, outcome) = unpacked(&bytes);
        let error = outcome.unwrap_err();
        assert!(error.starts_with("The archive"), "{error}");
        let there =
            fs::metadata(directory.path().join("action/zeros")).map_or(0, |file| file.len());
        assert!(there <= 2, "{there}");
    }

    #[test]
    fn directories_that_nobody_names_count() {
        let name = format!("{}file", "d/".repeat(100));
        let bytes = archive(&[(&name, b""), ("other", b"")]);
        let directory = tempfile::tempdir().unwrap();
        let unpack = |most_entries| unpack_within(1 << 20, most_entries, &bytes, directory.path());
        let error = unpack(102).unwrap_err();
        assert!(error.contains("more than 102 files and directories"), "{error}");
        // The directory of all is one, too.
        assert!(unpack(103).is_ok_and(|bytes| bytes > 100 * BLOCK_BYTES));
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        let whole = archive(&[("a", &[7; 1000])]);
        let mut flipped = whole.clone();
        flipped[40] ^= 1;
        for bytes in [&b"PK\x03\x04"[..], b"", &whole[..whole.len() / 2], &flipped] {
            let error = unpacked(bytes).1.unwrap_err();
            assert!(error.starts_with("The archive") && error.lines().count() == 1, "{error}");
        }
    }
}
