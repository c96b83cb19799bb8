//! A disk that runs full at any moment of a pull.

use super::{PROGRAM, Place, Registry, pull, refused};
use crate::{
    common::{Daemon, NO_VM, skip, until},
    disk::Disk,
};
use std::fs;

/// The disk, in KiB: several times what the pull takes.
const DISK_KIB: usize = 32 << 10;

/// How many pages more are left at each attempt.
const STEP_PAGES: usize = 128;

#[test]
fn a_pull_on_a_full_disk_is_refused_and_leaves_nothing() {
    let Some(disk) = Disk::mounted(DISK_KIB) else {
        return skip("a small disk cannot be mounted: run this as root");
    };
    let (registry, place) = (Registry::start(), Place::new());
    // Each step takes more than the one before: gzip halves it, and the packed image does not.
    let data = "entry('data', os.urandom(1_000_000).hex().encode())";
    let image = registry.push("thing:1", &format!("[layer({PROGRAM}, {data})]"), "Cmd=['serve']");
    let configuration = format!("{NO_VM}{}", registry.configuration());
    let daemon = Daemon::start_in(disk.path(), &place.path("build"), &configuration, &[]);
    let count = |directory: &str| {
        fs::read_dir(disk.path().join("state").join(directory)).map_or(0, Iterator::count)
    };
    let mut refusals = 0;
    loop {
        disk.fill(refusals * STEP_PAGES);
        let answer = pull(&daemon, &image);
        disk.free();
        assert_eq!(count("pulls"), 0);
        if answer.0 == 200 {
            break;
        }
        refused(answer, 507, "the disk of the state directory is full");
        until("nothing to be kept", || (count("pinned") == 0).then_some(()));
        refusals += 1;
        assert!(refusals * STEP_PAGES * 4 < DISK_KIB, "it is refused with room, too");
    }
    println!("refused {refusals} times, with {} KiB more each time", STEP_PAGES * 4);
    assert!(refusals > 5, "{refusals}");
    assert_eq!(count("pinned"), 1);
}
