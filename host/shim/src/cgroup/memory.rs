//! What a control group has of memory, and the most that it may have.

use super::{Group, Setting, Version, named};
use squeezy_vmm::memory_stat_bytes;
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
};

impl Group {
    /// Has the kernel see to it that no more memory is in use than this, in bytes. It takes back what it can for that.
    ///
    /// # Errors
    /// The kernel refuses it. It is `NotFound` if memory cannot be bounded any more.
    pub(super) fn bound_memory(&self, bytes: u64) -> io::Result<()> {
        let (name, text) = most_memory(self.version, Some(bytes));
        let path = self.directory().join(name);
        // It is not made if it is not there.
        let opened = OpenOptions::new().write(true).truncate(true).open(&path);
        opened
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| named(&path, error))
    }

    /// How much memory is in use that Linux cannot take back without writing anything, in bytes: all but clean page
    /// cache.
    ///
    /// # Errors
    /// As [`Group::bound_memory`].
    pub(super) fn kept_memory_bytes(&self) -> io::Result<u64> {
        let read = |name: &str| {
            let path = self.directory().join(name);
            fs::read_to_string(&path).map_err(|error| named(&path, error))
        };
        let used = match self.version {
            Version::One => read("memory.usage_in_bytes")?,
            Version::Two => read("memory.current")?,
        };
        let used_bytes: u64 = used.trim().parse().map_err(io::Error::other)?;
        Ok(used_bytes.saturating_sub(clean_cache_bytes(self.version, &read("memory.stat")?)))
    }
}

/// The most memory, in bytes, if there is a most.
pub(super) fn most_memory(version: Version, bytes: Option<u64>) -> Setting {
    let text = |none: &str| bytes.map_or(none.to_owned(), |bytes| bytes.to_string());
    match version {
        Version::One => ("memory.limit_in_bytes", text("-1")),
        Version::Two => ("memory.max", text("max")),
    }
}

/// How much of a `memory.stat` is page cache that is on a drive as it is, in bytes. What is in files in memory counts as
/// page cache there, and is none.
fn clean_cache_bytes(version: Version, stat: &str) -> u64 {
    let (cache, others) = match version {
        Version::One => ("total_cache", ["total_shmem", "total_dirty", "total_writeback"]),
        Version::Two => ("file", ["shmem", "file_dirty", "file_writeback"]),
    };
    let bytes = |name| memory_stat_bytes(stat, name);
    others.into_iter().map(bytes).fold(bytes(cache), u64::saturating_sub)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_page_cache_that_is_on_a_drive_is_clean() {
        let two = "anon 500\nfile 100\nshmem 30\nfile_mapped 60\nfile_dirty 8\nfile_writeback 2\n";
        assert_eq!(clean_cache_bytes(Version::Two, two), 60);
        let one = "cache 1\nshmem 1\ndirty 1\ntotal_cache 100\ntotal_shmem 30\ntotal_dirty 8\ntotal_writeback 2\n";
        assert_eq!(clean_cache_bytes(Version::One, one), 60);
        assert_eq!(clean_cache_bytes(Version::Two, "file 10\nshmem 30\n"), 0);
        assert_eq!(clean_cache_bytes(Version::One, ""), 0);
    }
}
