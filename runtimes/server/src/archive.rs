//! Unpacks zip archives that nobody vouches for.

use crate::refused::Refused;
use std::{
    fs::{self, DirBuilder, File},
    io::{self, Cursor, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Component, Path, PathBuf},
};
use zip::{ZipArchive, read::ZipFile, result::ZipError};

/// The most that an archive may unpack to, in bytes, and in files and directories. What an instance may
/// have in files, half of its memory, is usually less.
const MOST_BYTES: u64 = 256 << 20;
const MOST_ENTRIES: usize = 65_536;

/// Of a file's mode: what kind of file it is, and a plain one.
const KIND: u32 = 0o170_000;
const PLAIN: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;

/// Unpacks an archive into a directory. Files that lead out of it, links and devices are refused; so is
/// what is larger than an action can be, whatever the archive itself says about that.
pub fn unpack(archive: &[u8], directory: &Path) -> Result<(), Refused> {
    unpack_within(MOST_BYTES, archive, directory)
}

fn unpack_within(most_bytes: u64, archive: &[u8], directory: &Path) -> Result<(), Refused> {
    let mut archive = ZipArchive::new(Cursor::new(archive)).map_err(broken)?;
    if archive.len() > MOST_ENTRIES {
        let text = format!("The archive has {} entries, more than {MOST_ENTRIES}.", archive.len());
        return Err(Refused::action(text));
    }
    let mut left = most_bytes;
    for number in 0..archive.len() {
        let mut file = archive.by_index(number).map_err(broken)?;
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

fn broken(error: ZipError) -> Refused {
    Refused::action(format!("The archive cannot be read: {error}."))
}

/// Where an entry with this name and mode belongs in the directory.
fn inside(name: &str, mode: Option<u32>) -> Result<PathBuf, Refused> {
    let path = Path::new(name);
    let is_inside = !name.contains(['\0', '\\'])
        && path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if name.is_empty() || !is_inside {
        return Err(Refused::action(format!(
            "The archive has the file {name:?}, which is not inside it: use paths without \"..\" that do not begin with \"/\"."
        )));
    }
    match mode.map(|mode| mode & KIND) {
        None | Some(0 | PLAIN | DIRECTORY) => Ok(path.to_owned()),
        _ => Err(Refused::action(format!(
            "The archive has {name:?}, which is a link or a device: pack files only (zip without -y)."
        ))),
    }
}

/// Writes a file of at most `most` bytes; returns how many it has.
fn write<R: Read>(
    file: &mut ZipFile<'_, R>,
    name: &str,
    place: &Path,
    most: u64,
) -> Result<u64, Refused> {
    let is_program = file.unix_mode().is_some_and(|mode| mode & 0o111 != 0);
    let mode = if is_program { 0o755 } else { 0o644 };
    let made = File::options().write(true).create_new(true).mode(mode).open(place);
    let mut made = made.map_err(|error| failed(name, &error))?;
    // Not as much as it says: as much as there is.
    let written =
        io::copy(&mut file.take(most + 1), &mut made).map_err(|error| failed(name, &error))?;
    if written > most {
        return Err(Refused::action(
            "The archive unpacks to more than an action may have in files.",
        ));
    }
    Ok(written)
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

fn failed(name: &str, error: &io::Error) -> Refused {
    let text = match error.kind() {
        io::ErrorKind::StorageFull => {
            "The archive does not fit into the instance's files, which may take half of its memory: raise the action's memory limit.".to_owned()
        }
        io::ErrorKind::AlreadyExists => format!("The archive has {name:?} more than once."),
        _ => format!("The archive's {name:?} cannot be unpacked: {error}."),
    };
    Refused::action(text)
}

/// Removes everything below a directory, and makes it if there is none.
pub fn empty(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    make_directory(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use zip::{ZipWriter, write::SimpleFileOptions};

    /// An archive with these files.
    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in files {
            writer.start_file(*name, SimpleFileOptions::default()).unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    fn unpacked(archive: &[u8]) -> (tempfile::TempDir, Result<(), String>) {
        let directory = tempfile::tempdir().unwrap();
        let outcome = unpack(archive, &directory.path().join("action"));
        (directory, outcome.map_err(|refused| refused.text))
    }

    #[test]
    fn files_are_where_they_belong() {
        let (directory, outcome) =
            unpacked(&archive(&[("a.py", b"a"), ("b/c/d.py", b"d"), ("./e", b"e")]));
        assert_eq!(outcome, Ok(()));
        for (name, content) in [("a.py", "a"), ("b/c/d.py", "d"), ("e", "e")] {
            assert_eq!(
                fs::read_to_string(directory.path().join("action").join(name)).unwrap(),
                content
            );
        }
    }

    #[test]
    fn what_leads_out_is_refused() {
        for name in ["../a", "a/../../b", "/etc/a", "a\\..\\..\\b"] {
            // The writer would correct the name.
            let stand_in = "x".repeat(name.len());
            let mut bytes = archive(&[(&stand_in, b"")]);
            while let Some(at) =
                bytes.windows(name.len()).position(|part| part == stand_in.as_bytes())
            {
                bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
            }
            let (directory, outcome) = unpacked(&bytes);
            let error = outcome.unwrap_err();
            assert!(error.contains("not inside it"), "{name}: {error}");
            assert!(!directory.path().join("a").exists() && !directory.path().join("b").exists());
        }
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
        assert_eq!(unpack_within(2 << 20, &bytes, directory.path()), Ok(()));
        fs::remove_dir_all(directory.path()).unwrap();
        let error = unpack_within((2 << 20) - 1, &bytes, directory.path()).unwrap_err();
        assert!(error.text.contains("unpacks to more"), "{error:?}");
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
