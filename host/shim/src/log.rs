//! A server's log: a file of bounded size, because it is in memory and its server may run for months.

use std::{
    fs::{File, OpenOptions, rename},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Mutex,
};
use tracing::level_filters::LevelFilter;

/// How long the file may get, in bytes; the one before it is kept beside it, as `.1`.
const MAX_BYTES: u64 = 1 << 20;

/// Has everything that is logged from now on written to this file.
///
/// # Errors
/// It cannot be opened.
pub fn to_file(path: &Path) -> io::Result<()> {
    let file = Mutex::new(BoundedFile::open(path, MAX_BYTES)?);
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::INFO)
        .with_ansi(false)
        .with_target(false)
        .with_writer(file)
        .init();
    Ok(())
}

struct BoundedFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    max_bytes: u64,
}

impl BoundedFile {
    fn open(path: &Path, max_bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, bytes, max_bytes })
    }
}

impl Write for BoundedFile {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.bytes >= self.max_bytes {
            rename(&self.path, self.path.with_extension("log.1"))?;
            *self = Self::open(&self.path, self.max_bytes)?;
        }
        let written = self.file.write(text)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_takes_no_more_than_two_files_of_bounded_size() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server.log");
        let mut log = BoundedFile::open(&path, 1000).unwrap();
        for number in 0..1000 {
            writeln!(log, "line {number}").unwrap();
        }
        drop(log);
        let mut log = BoundedFile::open(&path, 1000).unwrap();
        writeln!(log, "after a restart").unwrap();
        let sizes: Vec<u64> = directory
            .path()
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        assert_eq!(sizes.len(), 2);
        assert!(sizes.iter().sum::<u64>() < 2100, "{sizes:?}");
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("after a restart\n"));
    }
}
