//! Clean pages of files that only one process maps: its libraries and programs.
//!
//! Nothing is lost with them: the process reads them again when it needs them, which takes time. So
//! it is worth it for a process that is stopped or frozen, and does no harm to another one.

use crate::{
    Deadline, Error, Process, Result,
    smaps::{self, Mapping},
};
use rustix::{io::Errno, param::page_size};
use serde::Serialize;
use std::{
    fs::File,
    io::{self, BufReader},
    ops::Range,
    os::{fd::AsRawFd, unix::fs::FileExt},
};

/// What was evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Evicted {
    /// Pages that the kernel was told to evict. It keeps what others are using just then.
    pub advised_bytes: u64,
    /// How many mappings they are of.
    pub mappings: u64,
    /// Pages of files that were left alone, because another process maps the same part of the file.
    pub shared_bytes: u64,
}

/// Evicts the clean pages of the files that a process maps, and no other process does.
///
/// Needs the right to trace the process, CAP_SYS_NICE, and to own the files or be root: of files
/// that the caller neither owns nor may write, the kernel keeps the pages.
pub fn evict(process: &Process, deadline: Deadline) -> Result<Evicted> {
    let process = process.clone();
    deadline.bound("evicting libraries", move || evict_now(&process))
}

fn evict_now(process: &Process) -> Result<Evicted> {
    let mut evicted = Evicted::default();
    let mut mappings = Vec::new();
    smaps::read(BufReader::new(process.file("smaps")?), |mapping| {
        if !mapping.private || !mapping.file {
            return;
        }
        evicted.shared_bytes += mapping.shared_bytes;
        if mapping.shared_bytes == 0 && mapping.private_clean_bytes > 0 {
            mappings.push(mapping);
        }
    })
    .map_err(|error| process.error("smaps", error))?;
    // All of them before the first is evicted: with a page goes the large folio that it is in, and
    // that may reach into the next mapping.
    let pagemap = process.file("pagemap")?;
    let mut ranges = Vec::new();
    for mapping in mappings {
        let own =
            own_file_pages(&pagemap, &mapping).map_err(|error| process.error("pagemap", error))?;
        evicted.mappings += u64::from(!own.is_empty());
        ranges.extend(own);
    }
    evicted.advised_bytes = page_out(process, &ranges)?;
    Ok(evicted)
}

/// Bits of an entry of pagemap: it is in memory, of a file, and mapped once.
const PRESENT: u64 = 1 << 63;
const FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;

/// The pages of a mapping that are still the file's own. Others, which the process has written to,
/// would go to swap where there is some.
fn own_file_pages(pagemap: &File, mapping: &Mapping) -> io::Result<Vec<Range<u64>>> {
    const WANTED: u64 = PRESENT | FILE | EXCLUSIVE;
    const ENTRY_BYTES: u64 = size_of::<u64>() as u64;
    let page = page_size() as u64;
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut buffer = [0; 4096];
    let mut address = mapping.start;
    while address < mapping.end {
        let left = ((mapping.end - address) / page * ENTRY_BYTES) as usize;
        let chunk = &mut buffer[..left.min(4096)];
        pagemap.read_exact_at(chunk, address / page * ENTRY_BYTES)?;
        for entry in chunk.chunks_exact(ENTRY_BYTES as usize) {
            let entry = u64::from_ne_bytes(entry.try_into().expect("eight bytes"));
            if entry & WANTED == WANTED {
                match ranges.last_mut() {
                    Some(last) if last.end == address => last.end += page,
                    _ => ranges.push(address..address + page),
                }
            }
            address += page;
        }
    }
    Ok(ranges)
}

/// Tells the kernel to evict these addresses of the process; returns how many bytes it took.
fn page_out(process: &Process, mut ranges: &[Range<u64>]) -> Result<u64> {
    let mut taken = 0;
    while !ranges.is_empty() {
        let done = match page_out_once(process, ranges) {
            Ok(bytes) => {
                taken += bytes;
                ranges_in(ranges, bytes)
            }
            // Not there any more, or locked: the process is not stopped, or wants to keep them.
            Err(Errno::NOMEM | Errno::INVAL) => 1,
            Err(Errno::SRCH) => return Err(Error::NoProcess(process.pid())),
            Err(Errno::PERM) => return Err(Error::NotPermitted),
            Err(error) => return Err(Error::system("process_madvise(2)", error)),
        };
        ranges = &ranges[done..];
    }
    Ok(taken)
}

/// How many of `ranges` these first bytes are of; a call ends before the first one that fails.
fn ranges_in(ranges: &[Range<u64>], bytes: u64) -> usize {
    let ends = ranges.iter().scan(0, |end, range| {
        *end += range.end - range.start;
        Some(*end)
    });
    ends.take_while(|&end| end <= bytes).count().max(1)
}

fn page_out_once(process: &Process, ranges: &[Range<u64>]) -> rustix::io::Result<u64> {
    /// Most ranges of one call (`UIO_MAXIOV`).
    const MOST_RANGES: usize = 1024;
    let vector: Vec<libc::iovec> = ranges
        .iter()
        .take(MOST_RANGES)
        .map(|range| libc::iovec {
            iov_base: range.start as *mut libc::c_void,
            iov_len: (range.end - range.start) as usize,
        })
        .collect();
    // SAFETY: the kernel only reads `vector`, which lives until the call returns. The addresses in
    // it are the other process's, and this advice changes no contents.
    let result = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.pidfd().as_raw_fd(),
            vector.as_ptr(),
            vector.len(),
            libc::MADV_PAGEOUT,
            0,
        )
    };
    u64::try_from(result).map_err(|_| {
        let error = io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Signal;
    use std::{
        io::{Read, Write},
        path::Path,
        process::{Child, Command, Stdio},
        time::Duration,
    };

    /// A process of a program file of its own, that has told us that it has started.
    struct Cat(Child);

    impl Cat {
        fn start(file: &Path) -> Self {
            let child = Command::new(file).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
            let mut cat = Self(child.unwrap());
            cat.echo();
            cat
        }

        fn echo(&mut self) {
            self.0.stdin.as_mut().unwrap().write_all(b"x").unwrap();
            let mut echo = [0];
            self.0.stdout.as_mut().unwrap().read_exact(&mut echo).unwrap();
            assert_eq!(&echo, b"x");
        }
    }

    impl Drop for Cat {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// The pages of the program's own file that the process maps, and whether others map them too.
    fn of_file(process: &Process, file: &Path) -> (u64, u64) {
        let name = file.to_str().unwrap();
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", process.pid())).unwrap();
        let ranges: Vec<&str> = maps
            .lines()
            .filter(|line| line.ends_with(name))
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert!(!ranges.is_empty(), "{maps}");
        let mut sum = (0, 0);
        smaps::read(BufReader::new(process.file("smaps").unwrap()), |mapping| {
            if ranges.contains(&&*format!("{:x}-{:x}", mapping.start, mapping.end)) {
                sum.0 += mapping.private_clean_bytes;
                sum.1 += mapping.shared_bytes;
            }
        })
        .unwrap();
        sum
    }

    #[test]
    fn a_call_that_ends_early_goes_on_after_what_it_did() {
        let ranges = [0..4096, 8192..16384, 20480..24576];
        for (bytes, expected) in [(0, 1), (4096, 1), (8192, 1), (12288, 2), (16384, 3)] {
            assert_eq!(ranges_in(&ranges, bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn only_what_nobody_else_maps_is_evicted_and_the_process_goes_on() {
        // Not /tmp, which may be in memory: no page of a file there is clean.
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = directory.path().join("cat");
        // By another process: what another test starts just then would have it open for writing, too.
        assert!(Command::new("cp").arg("/bin/cat").arg(&file).status().unwrap().success());
        File::open(&file).unwrap().sync_all().unwrap();
        let deadline = Deadline::after(Duration::from_secs(60));

        let mut cat = Cat::start(&file);
        let process = Process::open(cat.0.id()).unwrap();
        let other = Cat::start(&file);
        let (_, shared) = of_file(&process, &file);
        assert!(shared > 0);
        let first = evict(&process, deadline);
        assert!(of_file(&process, &file).1 > 0, "pages of another process were evicted");

        drop(other);
        process.signal(Signal::STOP).unwrap();
        while process.run().unwrap() == crate::Run::Running {
            std::thread::yield_now();
        }
        let (before, shared) = of_file(&process, &file);
        assert!(before > 0 && shared == 0);
        let evicted = evict(&process, deadline);
        if !rustix::process::geteuid().is_root() {
            assert!(matches!(evicted, Err(Error::NotPermitted)), "{evicted:?}");
            return;
        }
        let (_, evicted) = (first.unwrap(), evicted.unwrap());
        assert!(evicted.mappings > 0 && evicted.advised_bytes >= before, "{evicted:?}");
        let (after, _) = of_file(&process, &file);
        assert!(after < before, "{before} bytes before, {after} after");

        process.signal(Signal::CONT).unwrap();
        cat.echo();
    }
}
