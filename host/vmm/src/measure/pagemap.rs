//! Counts resident pages from a process's page tables.

use super::{Pages, Resident};
use std::{
    fs::File,
    io,
    ops::Range,
    os::{fd::AsRawFd, unix::fs::FileExt},
};

/// `PAGEMAP_SCAN` of `linux/fs.h`: `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;
/// The page is present.
const PAGE_IS_PRESENT: u64 = 1 << 3;
/// It is swapped out.
const PAGE_IS_SWAPPED: u64 = 1 << 4;
/// It is the shared zero page, which occupies no memory.
const PAGE_IS_PFNZERO: u64 = 1 << 5;
/// It is part of a huge page.
const PAGE_IS_HUGE: u64 = 1 << 6;
/// The maximum number of regions that one call returns.
const REGIONS: usize = 512;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// Size of a page, and of its entry in the file.
const PAGE_BYTES: u64 = 4096;
const ENTRY_BYTES: u64 = 8;
/// The bits of an entry that say that the page is present, and that it is swapped out.
const ENTRY_IS_PRESENT: u64 = 1 << 63;
const ENTRY_IS_SWAPPED: u64 = 1 << 62;

/// Such pages in each of `ranges`. Fails if the kernel has no `PAGEMAP_SCAN`.
pub(super) fn scan(process: u32, ranges: &[Range<u64>], pages: Pages) -> io::Result<Vec<Resident>> {
    let pagemap = File::open(format!("/proc/{process}/pagemap"))?;
    ranges.iter().map(|range| scan_range(&pagemap, range, pages)).collect()
}

fn scan_range(pagemap: &File, range: &Range<u64>, pages: Pages) -> io::Result<Resident> {
    let any_of = match pages {
        Pages::Resident => PAGE_IS_PRESENT,
        Pages::Occupied => PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
    };
    let mut regions = [PageRegion::default(); REGIONS];
    let mut sum = Resident::default();
    let mut start = range.start;
    while start < range.end {
        let mut arguments = ScanArguments {
            size: size_of::<ScanArguments>() as u64,
            start,
            end: range.end,
            vec: regions.as_mut_ptr() as u64,
            vec_len: REGIONS as u64,
            category_inverted: PAGE_IS_PFNZERO,
            category_mask: PAGE_IS_PFNZERO,
            category_anyof_mask: any_of,
            return_mask: PAGE_IS_HUGE,
            ..Default::default()
        };
        // SAFETY: the kernel writes to `arguments` and to at most `vec_len` elements of `regions`;
        // both outlive the call.
        let count = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for region in regions.iter().take(count) {
            let bytes = region.end.saturating_sub(region.start);
            sum.resident_bytes += bytes;
            if region.categories & PAGE_IS_HUGE != 0 {
                sum.huge_bytes += bytes;
            }
        }
        if arguments.walk_end <= start {
            return Err(io::ErrorKind::InvalidData.into());
        }
        start = arguments.walk_end;
    }
    sum.proportional_bytes = sum.resident_bytes;
    Ok(sum)
}

/// Such pages in a range of whole ones, page by page: for kernels without `PAGEMAP_SCAN`.
pub(super) fn count(process: u32, range: &Range<u64>, pages: Pages) -> io::Result<Resident> {
    let any_of = match pages {
        Pages::Resident => ENTRY_IS_PRESENT,
        Pages::Occupied => ENTRY_IS_PRESENT | ENTRY_IS_SWAPPED,
    };
    let pagemap = File::open(format!("/proc/{process}/pagemap"))?;
    let end = range.end / PAGE_BYTES * ENTRY_BYTES;
    let mut at = range.start / PAGE_BYTES * ENTRY_BYTES;
    let mut chunk = vec![0; 1 << 16];
    let mut counted = 0;
    while at < end {
        let most = chunk.len().min((end - at) as usize);
        pagemap.read_exact_at(&mut chunk[..most], at)?;
        let entries = chunk[..most].chunks_exact(ENTRY_BYTES as usize);
        let is_such = |entry: &&[u8]| {
            let entry: [u8; 8] = (*entry).try_into().unwrap_or_default();
            u64::from_ne_bytes(entry) & any_of != 0
        };
        counted += entries.filter(is_such).count() as u64;
        at += most as u64;
    }
    let bytes = counted * PAGE_BYTES;
    Ok(Resident { resident_bytes: bytes, proportional_bytes: bytes, huge_bytes: 0 })
}
