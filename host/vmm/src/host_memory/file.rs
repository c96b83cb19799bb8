//! A guest's memory as a file.

use crate::measure::Pages;
use rustix::{
    fs::{
        FallocateFlags, MemfdFlags, SealFlags, SeekFrom, fallocate, fcntl_add_seals, fstat,
        ftruncate, memfd_create, seek,
    },
    io::Errno,
};
use squeezy_llfree::PAGE_BYTES;
use std::{
    io,
    iter::Sum,
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

/// The number of the system call `cachestat`, on every architecture.
const CACHESTAT: libc::c_long = 451;

/// A memfd that is a guest's memory, or a part of it. The VMM maps it; so does this process where it works on the state
/// of the guest's allocator.
///
/// Its size is sealed. So whoever else has the file, a VMM that has been taken over included, cannot cut off what this
/// process has mapped, which would kill it.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    file: OwnedFd,
    /// What happens before each discard.
    #[cfg(test)]
    pub(crate) before_discard: BeforeDiscard,
}

/// A test's part in each discard of a file.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct BeforeDiscard(std::sync::OnceLock<Box<dyn Fn() + Send + Sync>>);

#[cfg(test)]
impl BeforeDiscard {
    /// Calls this from now on.
    pub(crate) fn set(&self, act: impl Fn() + Send + Sync + 'static) {
        assert!(self.0.set(Box::new(act)).is_ok(), "a test acts once");
    }
}

#[cfg(test)]
impl std::fmt::Debug for BeforeDiscard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeforeDiscard")
    }
}

/// `struct cachestat_range` of `linux/mman.h`.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    bytes: u64,
}

/// `struct cachestat` of `linux/mman.h`, in pages.
#[repr(C)]
#[derive(Debug, Default)]
struct Cachestat {
    cache: u64,
    dirty: u64,
    writeback: u64,
    /// Of a file in memory: what is swapped out.
    evicted: u64,
    recently_evicted: u64,
}

/// What has been discarded where there should have been nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strays {
    /// In how many pieces of memory there was something. Each costs the host the same, however small its pages are.
    pub(crate) pieces: u64,
    /// How much host memory that was, in bytes.
    pub(crate) bytes: u64,
}

impl Sum for Strays {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, more| Self {
            pieces: sum.pieces + more.pieces,
            bytes: sum.bytes + more.bytes,
        })
    }
}

impl MemoryFile {
    /// A new file. It is empty: pages appear when they are touched.
    pub(crate) fn new(name: &str, bytes: u64) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Hosts may refuse memfds that could be executed. Linux has the flag since 6.3.
        let file = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create(name, flags)?,
            created => created?,
        };
        ftruncate(&file, bytes)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self::from(file))
    }

    /// Another descriptor of it, for a program to inherit.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.file.try_clone()
    }

    /// The same file, of which nothing can be discarded.
    #[cfg(test)]
    pub(crate) fn read_only(&self) -> io::Result<Self> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(Self::from(OwnedFd::from(std::fs::File::open(path)?)))
    }

    /// Gives the memory behind a range of whole pages back to the host. Whoever touches it next finds zeros.
    pub(crate) fn discard(&self, range: Range<u64>) -> io::Result<()> {
        #[cfg(test)]
        if let Some(act) = self.before_discard.0.get() {
            act();
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fallocate(&self.file, flags, range.start, range.end - range.start) {
                Err(Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }

    /// The same for a range that may well have nothing behind it.
    pub(crate) fn discard_if_any(&self, range: Range<u64>) -> io::Result<()> {
        // To ask where there is memory next is much faster than to discard nothing.
        match self.first_data(&range)? {
            Some(start) => self.discard(start..range.end),
            None => Ok(()),
        }
    }

    /// The same for a range with next to nothing behind it: only those of its pieces of so many bytes in which there is
    /// something. To discard the rest, too, Linux would look at all that it is mapped to.
    pub(crate) fn discard_strays(&self, range: Range<u64>, piece_bytes: u64) -> io::Result<Strays> {
        let (mut left, mut sum) = (range.clone(), Strays::default());
        while let Some(data) = self.first_data(&left)? {
            let start = data - (data - range.start) % piece_bytes;
            left.start = (start + piece_bytes).min(range.end);
            let (bytes, _) = self.discard_counted(start..left.start)?;
            sum.pieces += 1;
            sum.bytes += bytes;
        }
        Ok(sum)
    }

    /// As [`Self::discard`]; returns how many bytes of host memory that were, with those that were swapped out, and how
    /// long the discard itself took. Whatever others do to the rest of the file meanwhile does not count.
    ///
    /// Without `cachestat` it does. To look for holes instead takes as long as there is memory without any, while the
    /// guest waits for what is in hand.
    pub(crate) fn discard_counted(&self, range: Range<u64>) -> io::Result<(u64, Duration)> {
        let Some(start) = self.first_data(&range)? else { return Ok((0, Duration::ZERO)) };
        let most = range.end - range.start;
        let counted = self.cachestat(&(start..range.end)).ok();
        let before = if counted.is_some() { 0 } else { self.allocated()? };
        let begin = Instant::now();
        self.discard(range)?;
        let took = begin.elapsed();
        let bytes = match counted {
            Some(counts) => (counts.cache + counts.evicted) * PAGE_BYTES,
            // There was something.
            None => before.saturating_sub(self.allocated()?).clamp(PAGE_BYTES.min(most), most),
        };
        Ok((bytes, took))
    }

    /// Bytes of host memory behind all of it, and of what is swapped out.
    fn allocated(&self) -> io::Result<u64> {
        // In units of 512 bytes, whatever the size of a block.
        Ok(u64::try_from(fstat(&self.file)?.st_blocks).unwrap_or(0) * 512)
    }

    /// Whether there is anything in a range, be it swapped out.
    pub(crate) fn has_data(&self, range: &Range<u64>) -> io::Result<bool> {
        Ok(self.first_data(range)?.is_some())
    }

    /// Bytes of host memory behind a range.
    pub(crate) fn resident(&self, range: Range<u64>) -> io::Result<u64> {
        self.count(range, Pages::Resident)
    }

    /// Bytes in such pages of a range.
    pub(crate) fn count(&self, range: Range<u64>, pages: Pages) -> io::Result<u64> {
        match self.cachestat(&range) {
            Ok(Cachestat { cache, evicted, .. }) => match pages {
                Pages::Resident => Ok(cache * PAGE_BYTES),
                Pages::Occupied => Ok((cache + evicted) * PAGE_BYTES),
            },
            // Linux 6.5 has it, and filters of system calls that do not know it yet refuse it with any error. Without it,
            // what was swapped out counts in any case.
            Err(_) => {
                self.data(range).map(|part| Ok(part.map(|part| part.end - part.start)?)).sum()
            }
        }
    }

    fn cachestat(&self, range: &Range<u64>) -> io::Result<Cachestat> {
        if range.is_empty() {
            // The system call would take it for the rest of the file.
            return Ok(Cachestat::default());
        }
        let asked = CachestatRange { offset: range.start, bytes: range.end - range.start };
        let mut counts = Cachestat::default();
        // SAFETY: both structures are as the kernel has them and outlive the call.
        let result = unsafe {
            libc::syscall(CACHESTAT, self.file.as_raw_fd(), &raw const asked, &raw mut counts, 0)
        };
        if result == 0 { Ok(counts) } else { Err(io::Error::last_os_error()) }
    }

    /// The parts of a range that have memory behind them, from the start on.
    fn data(&self, range: Range<u64>) -> impl Iterator<Item = Result<Range<u64>, Errno>> {
        let mut next = range.start;
        std::iter::from_fn(move || {
            let found = self.next_data(next..range.end).transpose()?;
            next = found.as_ref().map_or(range.end, |part| part.end);
            Some(found)
        })
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, Errno> {
        let Some(start) = self.first_data(&range)? else { return Ok(None) };
        // Takes as long as there is memory without a hole, beyond the range, too.
        let end = seek(&self.file, SeekFrom::Hole(start))?;
        Ok(Some(start..end.min(range.end)))
    }

    /// Where in a range there is memory first.
    fn first_data(&self, range: &Range<u64>) -> Result<Option<u64>, Errno> {
        if range.is_empty() {
            return Ok(None);
        }
        match seek(&self.file, SeekFrom::Data(range.start)) {
            Ok(start) if start < range.end => Ok(Some(start)),
            // There is nothing up to the end of the file.
            Ok(_) | Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl From<OwnedFd> for MemoryFile {
    fn from(file: OwnedFd) -> Self {
        Self {
            file,
            #[cfg(test)]
            before_discard: BeforeDiscard::default(),
        }
    }
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, fchmod};
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
    use std::{collections::BTreeMap, os::unix::fs::FileExt};

    const MIB: u64 = 1 << 20;

    fn written(pages: &[u64]) -> MemoryFile {
        let memory = MemoryFile::new("test", 4 * MIB).unwrap();
        let file = std::fs::File::from(memory.descriptor().unwrap());
        pages.iter().for_each(|page| file.write_all_at(&[1; 4096], page * PAGE_BYTES).unwrap());
        memory
    }

    #[test]
    fn what_is_written_is_resident_until_it_is_discarded() {
        let memory = written(&[0, 1, 5, 700]);
        assert_eq!(memory.resident(0..4 * MIB).unwrap(), 4 * PAGE_BYTES);
        assert_eq!(memory.resident(PAGE_BYTES..MIB).unwrap(), 2 * PAGE_BYTES);
        assert_eq!(memory.resident(MIB..MIB).unwrap(), 0);
        memory.discard(PAGE_BYTES..2 * PAGE_BYTES).unwrap();
        assert_eq!(memory.resident(0..4 * MIB).unwrap(), 3 * PAGE_BYTES);
        assert_eq!(memory.discard_counted(2 * MIB..3 * MIB).unwrap().0, PAGE_BYTES);
        assert_eq!(memory.discard_counted(2 * MIB..3 * MIB).unwrap().0, 0);
        assert_eq!(memory.discard_counted(0..4 * MIB).unwrap().0, 2 * PAGE_BYTES);
        assert_eq!(memory.resident(0..4 * MIB).unwrap(), 0);
    }

    /// Where there is no swap, all of it stays resident.
    #[test]
    fn what_is_swapped_out_is_still_occupied() {
        let pages = [0, 1, 5, 700];
        let memory = written(&pages);
        let (file, bytes) = (memory.descriptor().unwrap(), 4 << 20);
        // SAFETY: a new mapping, which nobody has but this test.
        let mapped = unsafe {
            let start = std::ptr::null_mut();
            libc::mmap(start, bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(mapped, libc::MAP_FAILED);
        for page in pages {
            // SAFETY: it is in that mapping, and there in the file.
            let byte = unsafe { mapped.cast::<u8>().add(page as usize * 4096).read_volatile() };
            assert_eq!(byte, 1);
        }
        // SAFETY: it is that mapping, and nobody has a reference into it.
        let advised = unsafe {
            let advised = libc::madvise(mapped, bytes, libc::MADV_PAGEOUT);
            libc::munmap(mapped, bytes);
            advised
        };
        assert_eq!(advised, 0);
        assert_eq!(memory.count(0..4 * MIB, Pages::Occupied).unwrap(), 4 * PAGE_BYTES);
        assert!(memory.resident(0..4 * MIB).unwrap() <= 4 * PAGE_BYTES);
        assert_eq!(memory.count(MIB..2 * MIB, Pages::Occupied).unwrap(), 0);
    }

    #[test]
    fn what_strays_into_a_range_is_discarded_by_pieces() {
        let memory = written(&[3, 100, 515, 1023]);
        let discards = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counter = discards.clone();
        memory.before_discard.set(move || {
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        let strays = memory.discard_strays(3 * PAGE_BYTES..1023 * PAGE_BYTES, MIB).unwrap();
        assert_eq!(strays.pieces, 2, "{strays:?}");
        assert_eq!(memory.resident(0..4 * MIB).unwrap(), PAGE_BYTES, "the last one is not in it");
        assert_eq!(discards.load(std::sync::atomic::Ordering::Relaxed), 2);
    }

    /// Two partitions' memory goes at the same moment, say.
    #[test]
    fn what_others_discard_meanwhile_is_not_counted() {
        let memory = written(&[0, 1, 5, 600, 700]);
        let file = memory.descriptor().unwrap();
        memory.before_discard.set(move || {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, flags, 2 * MIB, 2 * MIB).unwrap();
        });
        assert_eq!(memory.discard_counted(0..2 * MIB).unwrap().0, 3 * PAGE_BYTES);
        assert_eq!(memory.resident(0..4 * MIB).unwrap(), 0);
    }

    /// Those of systemd's services, which do not know `cachestat`, have the answer EPERM, and those of containers ENOSYS.
    #[test]
    fn a_filter_of_system_calls_does_not_keep_it_from_being_measured() {
        for refusal in [libc::EPERM, libc::ENOSYS, libc::EACCES] {
            let measured = std::thread::spawn(move || {
                let memory = written(&[0, 1, 5, 700]);
                refuse_cachestat(refusal);
                let refused = memory.cachestat(&(0..MIB)).unwrap_err();
                assert_eq!(refused.raw_os_error(), Some(refusal));
                let resident = |range| memory.resident(range).unwrap();
                let before = (resident(0..4 * MIB), resident(PAGE_BYTES..MIB));
                (before, memory.discard_counted(0..2 * MIB).unwrap().0)
            });
            let right = ((4 * PAGE_BYTES, 2 * PAGE_BYTES), 3 * PAGE_BYTES);
            assert_eq!(measured.join().unwrap(), right, "{refusal}");
        }
    }

    /// Has the kernel refuse it to this thread from now on.
    fn refuse_cachestat(errno: i32) {
        let errno = SeccompAction::Errno(errno.unsigned_abs());
        let rules = BTreeMap::from([(CACHESTAT, Vec::new())]);
        let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, errno, arch).unwrap();
        let program = BpfProgram::try_from(filter).unwrap();
        seccompiler::apply_filter(&program).unwrap();
    }

    #[test]
    fn data_is_found_where_it_is() {
        let memory = written(&[0, 1, 5, 1023]);
        let parts = |range| -> Vec<_> {
            let pages = |part: Range<u64>| part.start / PAGE_BYTES..part.end / PAGE_BYTES;
            memory.data(range).map(|part| pages(part.unwrap())).collect()
        };
        assert_eq!(parts(0..4 * MIB), [0..2, 5..6, 1023..1024]);
        assert_eq!(parts(PAGE_BYTES..6 * PAGE_BYTES), [1..2, 5..6]);
        assert_eq!(parts(6 * PAGE_BYTES..MIB), []);
    }

    #[test]
    fn nobody_can_execute_it_where_the_kernel_knows_how_to_prevent_it() {
        let knows = memfd_create("probe", MemfdFlags::NOEXEC_SEAL).is_ok();
        let memory = MemoryFile::new("data", MIB).unwrap();
        let may_be_executed = || fstat(&memory).unwrap().st_mode & 0o111 != 0;
        assert_eq!(may_be_executed(), !knows);
        let changed = fchmod(&memory, Mode::from_raw_mode(0o777));
        assert_eq!((changed.is_err(), may_be_executed()), (knows, !knows));
    }

    #[test]
    fn nobody_can_change_its_size() {
        let memory = MemoryFile::new("sealed", MIB).unwrap();
        for bytes in [0, 2 * MIB] {
            assert_eq!(ftruncate(&memory, bytes), Err(Errno::PERM));
        }
    }
}
