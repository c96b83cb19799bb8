//! Swaps out memory of a frozen process, as a system without knowledge of its heap does.

use squeezer::Process;
use std::{
    fs, io,
    ops::Range,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// Bytes per request, which is also how far the target may be exceeded.
const STEP_BYTES: u64 = 1 << 20;

/// Whether this machine has swap.
pub(super) fn is_possible() -> bool {
    // A header, and a line for each file or device.
    fs::read_to_string("/proc/swaps").is_ok_and(|swaps| swaps.lines().nth(1).is_some())
}

/// Swaps out about `wanted_bytes` of private anonymous memory, from the mappings that have the
/// most; returns how many bytes were swapped out.
pub(super) fn page_out(process: &Process, wanted_bytes: u64) -> io::Result<u64> {
    let smaps = fs::read_to_string(format!("/proc/{}/smaps", process.pid()))?;
    let pidfd = open(process)?;
    let before = swapped_bytes(process)?;
    for Range { mut start, end } in anonymous(&smaps) {
        while start < end {
            let gone = swapped_bytes(process)?.saturating_sub(before);
            if gone >= wanted_bytes {
                return Ok(gone);
            }
            let length = STEP_BYTES.min(end - start);
            advise(&pidfd, start, length)?;
            start += length;
        }
    }
    Ok(swapped_bytes(process)?.saturating_sub(before))
}

/// Mappings with resident anonymous memory, largest amount first.
fn anonymous(smaps: &str) -> Vec<Range<u64>> {
    let mut mappings: Vec<(u64, Range<u64>)> = Vec::new();
    let mut current = None;
    for line in smaps.lines() {
        if let Some(range) = range(line) {
            current = Some(range);
        } else if let Some(kilobytes) = figure(line, "Anonymous:")
            && kilobytes > 0
        {
            mappings.extend(current.take().map(|range| (kilobytes, range)));
        }
    }
    mappings.sort_by_key(|(kilobytes, _)| std::cmp::Reverse(*kilobytes));
    mappings.into_iter().map(|(_, range)| range).collect()
}

/// `7f..-7f.. rw-p 00000000 00:00 0`
fn range(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

fn swapped_bytes(process: &Process) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
    let kilobytes = status.lines().find_map(|line| figure(line, "VmSwap:"));
    Ok(kilobytes.ok_or_else(|| io::Error::other("no VmSwap in its status"))? << 10)
}

/// The number in a line such as `VmSwap:   12 kB`.
fn figure(line: &str, name: &str) -> Option<u64> {
    line.strip_prefix(name)?.strip_suffix("kB")?.trim().parse().ok()
}

fn open(process: &Process) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open(2) takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process.pid(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn advise(pidfd: &OwnedFd, start: u64, length: u64) -> io::Result<()> {
    let range = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: length as usize };
    // SAFETY: the kernel only reads `range`, which outlives the call. The address in it is the
    // other process's, and this advice does not change the contents of memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            &raw const range,
            1,
            libc::MADV_PAGEOUT,
            0,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        process::{Command, Stdio},
    };

    #[test]
    fn the_largest_comes_first() {
        let smaps = "1000-3000 rw-p 00000000 00:00 0\nRss: 8 kB\nAnonymous:   4 kB\n\
            3000-9000 r--p 00000000 fe:00 7 /lib/a\nAnonymous:   0 kB\n\
            a000-f000 rw-p 00000000 00:00 0 [heap]\nAnonymous:   12 kB\n";
        assert_eq!(anonymous(smaps), [0xa000..0xf000, 0x1000..0x3000]);
    }

    /// Without swap nothing is swapped out. With swap, what was requested is, and the process still
    /// works.
    #[test]
    fn a_process_goes_on() {
        let mut cat =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut stdout) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
        let mut echo = || {
            stdin.write_all(b"x").unwrap();
            let mut byte = [0];
            stdout.read_exact(&mut byte).unwrap();
            assert_eq!(&byte, b"x");
        };
        echo();
        let process = Process::open(cat.id()).unwrap();
        let gone = page_out(&process, 16 << 10);
        echo();
        drop(stdin);
        cat.wait().unwrap();
        match gone {
            Ok(gone) => assert!(is_possible() || gone == 0, "{gone} bytes"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}"),
        }
    }
}
