use super::*;
use crate::{AreaSet, Free, PAGE_BYTES, SharedMemory, TreeIndex, Zone, ZoneLayout};
use rustix::{
    fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create},
    process::{Resource, Rlimit, setrlimit},
};
use std::{
    fs::File,
    os::unix::{fs::FileExt, process::ExitStatusExt},
    process::Command,
    sync::Arc,
};

const BYTES: u64 = 65536;
/// Set for the process that a test has killed.
const IS_CHILD: &str = "SQUEEZY_LLFREE_SIGBUS";

/// A file of ones, not sealed.
fn ones() -> File {
    let file = File::from(memfd_create("state", MemfdFlags::ALLOW_SEALING).unwrap());
    file.write_all_at(&[1; BYTES as usize], 0).unwrap();
    file
}

#[test]
fn only_what_cannot_be_cut_off_is_mapped() {
    let file = memfd_create("state", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, 1 << 20).unwrap();
    let error = Mapping::new(&file, 0, 1 << 20).unwrap_err().to_string();
    assert!(error.contains("sealed"), "{error}");
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    assert_eq!(Mapping::new(&file, 4096, BYTES).unwrap().header()[..], [0; HEADER_BYTES]);
    for (offset, bytes) in [(4096, 1 << 20), (u64::MAX - 4095, BYTES), (0, 4096)] {
        let error = Mapping::new(&file, offset, bytes).unwrap_err().to_string();
        assert!(error.contains("too small"), "{error}");
    }
}

/// Where a file has been cut off, an access is the same signal as where memory has failed, with another code.
#[test]
fn a_page_that_fails_is_zeros_and_breaks_its_own_mapping_only() {
    let file = ones();
    let [broken, other] = [&file, &ones()].map(|file| Mapping::map(file, 0, BYTES).unwrap());
    ftruncate(&file, PAGE_BYTES).unwrap();
    assert_eq!(broken.check(), Ok(()), "nobody has read it yet");
    let header = broken.header();
    let (there, gone) = header.split_at(PAGE_BYTES as usize);
    assert!(there.iter().all(|&byte| byte == 1) && gone.iter().all(|&byte| byte == 0));
    assert_eq!((broken.check(), other.check()), (Err(PageFailed), Ok(())));
    assert_eq!(other.header()[..], [1; HEADER_BYTES]);

    // What is mapped next has its entry in the list, and perhaps its addresses.
    drop(broken);
    let next = Mapping::map(ones(), 0, BYTES).unwrap();
    assert_eq!(next.header()[..], [1; HEADER_BYTES]);
    assert_eq!(next.check(), Ok(()));
}

/// Whoever has read zeros hears of it before anything is discarded, and would not find anything to discard either.
#[test]
fn nothing_in_a_page_of_zeros_is_free() {
    let layout = ZoneLayout::new(12288, 16).unwrap();
    let file = ones();
    file.write_all_at(&[0; BYTES as usize], 0).unwrap();
    // The bits of an area say that all of its pages are free, and its entry knows better.
    file.write_all_at(&511_u16.to_le_bytes(), layout.area).unwrap();
    let mapping = Arc::new(Mapping::map(&file, 0, BYTES).unwrap());
    let (mut zone, held) = Zone::adopt(SharedMemory::new(mapping, layout));
    assert!(held.is_empty() && !zone.condemn() && zone.spare_areas() == 0);
    let hand = zone.hand();
    for tree in [0, 1].map(TreeIndex) {
        assert_eq!(hand.free_areas(tree), Free::default());
        let all = Free { areas: AreaSet::first(8), evicted: AreaSet::EMPTY };
        assert_eq!(hand.take(tree, all), AreaSet::EMPTY);
        assert!((0..8).all(|area| hand.isolate(tree, area).is_none()));
    }
}

#[test]
#[ignore = "the process that another test has killed"]
fn child() {
    if std::env::var_os(IS_CHILD).is_none() {
        return;
    }
    // It leaves no core file.
    let none = Rlimit { current: Some(1), maximum: Some(1) };
    setrlimit(Resource::Core, none).unwrap();
    let other = Mapping::map(ones(), 0, BYTES).unwrap();
    let file = ones();
    let Mapping { listed, pages } = Mapping::map(&file, 0, BYTES).unwrap();
    drop(listed);
    ftruncate(&file, 0).unwrap();
    // SAFETY: it is mapped, and no page is behind it: this process ends.
    let byte = unsafe { pages.base.as_ptr().read_volatile() };
    println!("{byte} {:?}", other.check());
}

#[test]
fn a_fault_of_other_memory_ends_the_process_as_before() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mapping::tests::child", "--ignored", "--nocapture"])
        .env(IS_CHILD, "1")
        .output()
        .unwrap();
    assert_eq!(child.status.signal(), Some(libc::SIGBUS), "{child:?}");
}
