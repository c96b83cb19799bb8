//! The least time that a reclaim can take: the host discards the same amount and kind of memory,
//! without a guest. A separate process does so the way the VMM would.

use crate::{MemoryBackend, Result, VmError};
use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::{Duration, Instant},
};

/// Size of a huge page, to which a VMM aligns its memory.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Bytes of a page.
const PAGE_BYTES: usize = 4096;

/// A process that holds memory as a VMM does, and discards it on command.
pub struct Floor {
    child: libc::pid_t,
    commands: File,
    answers: File,
}

impl Floor {
    /// Starts the process, with `bytes` of untouched memory.
    pub fn start(bytes: u64, backend: MemoryBackend) -> Result<Self> {
        let fail = |e: std::io::Error| {
            VmError::system("the process that measures the floor cannot be started", e)
        };
        let bytes =
            usize::try_from(bytes).map_err(|e| VmError::Config(format!("{bytes} bytes: {e}")))?;
        let pipe = || {
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| fail(e.into()))
        };
        let (command_reader, command_writer) = pipe()?;
        let (answer_reader, answer_writer) = pipe()?;
        // SAFETY: the child makes only system calls on what it owns, allocates nothing, and leaves
        // with _exit.
        let child = unsafe { libc::fork() };
        match child {
            -1 => Err(fail(std::io::Error::last_os_error())),
            0 => {
                // Otherwise the child's copies would keep the pipes open when the parent dies.
                drop((command_writer, answer_reader));
                serve(bytes, backend, command_reader.as_raw_fd(), answer_writer.as_raw_fd());
                // SAFETY: ends the child without running the parent's destructors.
                unsafe { libc::_exit(0) }
            }
            child => {
                Ok(Self { child, commands: command_writer.into(), answers: answer_reader.into() })
            }
        }
    }

    /// Touches every page, as a guest that uses all its memory does.
    pub fn populate(&mut self) -> Result<Duration> {
        self.order(b'p')
    }

    /// Gives everything back to the host; returns how long that took.
    pub fn discard(&mut self) -> Result<Duration> {
        self.order(b'd')
    }

    /// Bytes of host memory that the process occupies.
    pub fn resident_bytes(&self) -> Result<u64> {
        let fail = |e| VmError::system("the memory of the floor's process cannot be read", e);
        let path = format!("/proc/{}/smaps_rollup", self.child);
        let text = std::fs::read_to_string(path).map_err(fail)?;
        let kilobytes = text.lines().find_map(|line| line.strip_prefix("Rss:")?.strip_suffix("kB"));
        kilobytes
            .and_then(|number| number.trim().parse::<u64>().ok())
            .map(|number| number << 10)
            .ok_or_else(|| fail(std::io::ErrorKind::InvalidData.into()))
    }

    fn order(&mut self, order: u8) -> Result<Duration> {
        let mut answer = [0; 8];
        self.commands
            .write_all(&[order])
            .and_then(|()| self.answers.read_exact(&mut answer))
            .map_err(|e| {
                VmError::system(
                    "the process that measures the floor has died (is there enough memory?)",
                    e,
                )
            })?;
        Ok(Duration::from_nanos(u64::from_ne_bytes(answer)))
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        // SAFETY: the child has not been waited for, so its pid cannot have been reused.
        unsafe {
            libc::kill(self.child, libc::SIGKILL);
            libc::waitpid(self.child, std::ptr::null_mut(), 0);
        }
    }
}

/// The child: executes commands until the pipe closes. It allocates nothing.
fn serve(bytes: usize, backend: MemoryBackend, commands: RawFd, answers: RawFd) {
    let Some((memory, fd)) = map(bytes, backend) else { return };
    let mut order = 0u8;
    loop {
        // SAFETY: reads one byte into a local variable.
        if unsafe { libc::read(commands, (&raw mut order).cast(), 1) } != 1 {
            return;
        }
        let start = Instant::now();
        match order {
            b'p' => {
                for offset in (0..bytes).step_by(PAGE_BYTES) {
                    // SAFETY: the offset is within the mapping.
                    unsafe { memory.add(offset).write_volatile(1) };
                }
            }
            _ => discard(memory, bytes, &fd),
        }
        let ns = (start.elapsed().as_nanos() as u64).to_ne_bytes();
        // SAFETY: writes eight bytes of a local variable.
        if unsafe { libc::write(answers, ns.as_ptr().cast(), ns.len()) } != 8 {
            return;
        }
    }
}

/// Maps memory as a VMM does for guest memory of this kind.
fn map(bytes: usize, backend: MemoryBackend) -> Option<(*mut u8, Option<OwnedFd>)> {
    let fd = match backend {
        MemoryBackend::Ram => None,
        MemoryBackend::Memfd => {
            // SAFETY: a constant name; nothing else owns the new descriptor.
            let fd = unsafe {
                let fd = libc::memfd_create(c"squeezy-floor".as_ptr(), libc::MFD_CLOEXEC);
                if fd < 0 {
                    return None;
                }
                OwnedFd::from_raw_fd(fd)
            };
            // SAFETY: the descriptor is open.
            if unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as libc::off_t) } != 0 {
                return None;
            }
            Some(fd)
        }
    };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: only new mappings; the second one replaces part of the first, which is not in use.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let hole = libc::mmap(
            std::ptr::null_mut(),
            bytes + HUGE_PAGE_BYTES,
            libc::PROT_NONE,
            flags,
            -1,
            0,
        );
        if hole == libc::MAP_FAILED {
            return None;
        }
        let aligned = hole.cast::<u8>().add(hole.cast::<u8>().align_offset(HUGE_PAGE_BYTES));
        let (flags, number) = match &fd {
            None => (flags, -1),
            Some(fd) => (libc::MAP_SHARED | libc::MAP_NORESERVE, fd.as_raw_fd()),
        };
        let memory =
            libc::mmap(aligned.cast(), bytes, protection, flags | libc::MAP_FIXED, number, 0);
        if memory == libc::MAP_FAILED {
            return None;
        }
        libc::madvise(memory, bytes, libc::MADV_HUGEPAGE);
        Some((memory.cast(), fd))
    }
}

/// Gives memory back the way a VMM's device does.
fn discard(memory: *mut u8, bytes: usize, fd: &Option<OwnedFd>) {
    // SAFETY: the child's own mapping, which nothing refers to.
    unsafe {
        if let Some(fd) = fd {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            libc::fallocate(fd.as_raw_fd(), mode, 0, bytes as libc::off_t);
        }
        libc::madvise(memory.cast(), bytes, libc::MADV_DONTNEED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_touched_and_given_back() {
        for backend in [MemoryBackend::Ram, MemoryBackend::Memfd] {
            let bytes = 64 << 20;
            let mut floor = Floor::start(bytes, backend).unwrap();
            let before = floor.resident_bytes().unwrap();
            floor.populate().unwrap();
            let full = floor.resident_bytes().unwrap();
            assert!(full >= before + bytes, "{backend}: {before} {full}");
            assert!(floor.discard().unwrap() > Duration::ZERO);
            let after = floor.resident_bytes().unwrap();
            assert!(after < before + (4 << 20), "{backend}: {before} {after}");
        }
    }
}
