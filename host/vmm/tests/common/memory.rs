//! A guest's memory, as whoever has its files sees it.

use rustix::fs::{SeekFrom, seek};
use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
};

pub const AREA_BYTES: u64 = 2 << 20;

/// The files of this process that are the memory of the VM with this name.
pub fn files(name: &str) -> Vec<File> {
    let link = format!("/memfd:{name} (deleted)");
    let entries = fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path());
    let ours = entries.filter(|path| fs::read_link(path).is_ok_and(|to| to.as_os_str() == &*link));
    let open = |path| File::options().read(true).write(true).open(path).unwrap();
    let mut files: Vec<_> = ours.map(open).collect();
    // The lock is on a second descriptor of one of them.
    let number = |file: &File| file.metadata().unwrap().ino();
    files.sort_by_key(number);
    files.dedup_by_key(|file| number(file));
    files
}

/// Bytes of the host's memory behind them.
pub fn resident(files: &[File]) -> u64 {
    files.iter().map(|file| file.metadata().unwrap().blocks() * 512).sum()
}

/// Where areas begin that have nothing behind them.
pub fn empty_areas(file: &File) -> Vec<u64> {
    let areas = (0..file.metadata().unwrap().len() / AREA_BYTES).map(|area| area * AREA_BYTES);
    let is_empty = |start: &u64| {
        seek(file, SeekFrom::Data(*start)).is_ok_and(|data| data >= *start + AREA_BYTES)
    };
    areas.filter(is_empty).collect()
}

/// Writes so many bytes to each of these areas, as a guest could that breaks the rules. To one that keeps them it changes
/// nothing: these are zeros.
pub fn touch(file: &File, areas: &[u64], bytes: usize) {
    let zeros = vec![0; bytes];
    areas.iter().for_each(|start| file.write_all_at(&zeros, *start).unwrap());
}
