//! Bytes that are on the disk for as long as a request.

use super::{BlobError, Blobs, TakenSpace, failed};
use std::{
    fs::File,
    io::Write,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::PathBuf,
    sync::Arc,
};

/// A file without a name, which is gone with this, or with the daemon.
pub struct Spool {
    file: File,
    /// Where it is, for errors.
    directory: PathBuf,
    taken: TakenSpace,
}

impl Spool {
    /// An empty one, beside these blobs.
    pub fn new(blobs: &Arc<Blobs>) -> Result<Self, BlobError> {
        // The name goes at the end of this.
        let aside = blobs.aside();
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&aside.0);
        let file = file.map_err(failed(&aside.0))?;
        Ok(Self { file, directory: blobs.directory.clone(), taken: blobs.space.take_none() })
    }

    /// Writes more of it.
    pub fn write(&mut self, part: &[u8]) -> Result<(), BlobError> {
        self.taken.grow(part.len() as u64)?;
        self.file.write_all(part).map_err(failed(&self.directory))
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.taken.bytes()
    }

    /// Reads as many as there is room for, from there on.
    pub fn read(&self, part: &mut [u8], at: u64) -> Result<(), BlobError> {
        self.file.read_exact_at(part, at).map_err(failed(&self.directory))
    }
}
