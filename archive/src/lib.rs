//! Puts the code of an action where its process finds it: archives, which nobody vouches for, are unpacked.
//!
//! The server of runtimes does that in an instance, and the daemon in a sandbox, when it makes a drive of the code.

mod unpack;

use squeezy_protocol::is_archive;
use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Seek},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};
use unpack::Archive;

/// A block of a file system, in bytes: what the smallest file and each directory take.
const BLOCK_BYTES: u64 = 4096;

/// Why code cannot be put into its place.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// It is not what an action can be made of: a sentence.
    #[error("{0}")]
    Wrong(String),
    /// There is no more space where it is to be put.
    #[error("No space left on device.")]
    Full,
    /// It cannot be read or written.
    #[error("The code cannot be stored: {0}.")]
    Failed(io::Error),
}

impl From<io::Error> for PutError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Failed(error),
        }
    }
}

/// The code of an action, which has not been put anywhere yet.
pub enum Code<R> {
    /// It is put into a file as it is: a text, a program, or an archive that its runtime reads.
    File {
        /// What is read.
        code: R,
        /// The file's name.
        name: String,
        /// Its length, in bytes.
        bytes: u64,
    },
    /// It is unpacked.
    Archive(Archive<R>),
}

impl<R: Read + Seek> Code<R> {
    /// Looks at code. What is not unpacked, as archives are not if they stay `packed`, becomes the file `name`.
    ///
    /// # Errors
    /// It cannot be read, or is an archive of what an action cannot be made of.
    pub fn of(mut code: R, name: &str, packed: bool) -> Result<Self, PutError> {
        let mut begins = Vec::new();
        code.by_ref().take(4).read_to_end(&mut begins)?;
        if is_archive(&begins) && !packed {
            return Archive::open(code).map(Self::Archive);
        }
        let bytes = code.seek(io::SeekFrom::End(0))?;
        code.rewind()?;
        Ok(Self::File { code, name: name.to_owned(), bytes })
    }

    /// What it will take on a disk at most, in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::File { bytes, .. } => bytes.next_multiple_of(BLOCK_BYTES) + 2 * BLOCK_BYTES,
            Self::Archive(archive) => archive.bytes(),
        }
    }

    /// Puts it into a directory, which is emptied before.
    ///
    /// # Errors
    /// It is not what it seemed to be, or there is no space for it.
    pub fn put(self, directory: &Path) -> Result<(), PutError> {
        empty(directory)?;
        match self {
            Self::Archive(archive) => archive.unpack(directory),
            Self::File { mut code, name, .. } => {
                let mut options = File::options();
                let place = directory.join(name);
                let mut file = options.write(true).create_new(true).mode(0o755).open(place)?;
                io::copy(&mut code, &mut file)?;
                Ok(())
            }
        }
    }
}

/// Removes everything below a directory, and makes it if there is none.
fn empty(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    make_directory(directory)
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Cursor, os::unix::fs::PermissionsExt};

    #[test]
    fn what_is_not_unpacked_becomes_a_file_that_can_be_executed() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("action");
        let archive = unpack::tests::archive(&[("a", b"a")]);
        for (code, packed) in [(&b"#!/bin/sh\n"[..], false), (&archive[..], true)] {
            let looked = Code::of(Cursor::new(code), "exec", packed).unwrap();
            assert!(looked.bytes() >= code.len() as u64);
            looked.put(&place).unwrap();
            assert_eq!(fs::read(place.join("exec")).unwrap(), code);
            let mode = fs::metadata(place.join("exec")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o755);
        }
        Code::of(Cursor::new(&archive), "exec", false).unwrap().put(&place).unwrap();
        assert!(place.join("a").exists() && !place.join("exec").exists());
    }
}
