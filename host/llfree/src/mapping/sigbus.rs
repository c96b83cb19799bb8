//! Memory that fails under a mapping.
//!
//! The kernel says so with SIGBUS to the thread that accesses the page. Unhandled, it would end the process, with all
//! VMs that have nothing to do with that memory. So the handler puts a page of zeros in its place, and marks the
//! mapping.
//!
//! It may interrupt its thread anywhere, so all that it uses is atomic numbers and two system calls.

use crate::layout::PAGE_BYTES;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::{
    ffi::{c_int, c_void},
    mem::zeroed,
    ptr::{self, NonNull},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

/// How many mappings there can be, of which a VM has one.
pub(super) const MOST_LISTED: usize = 4096;

/// In an entry of [`LIST`]: that a page of the mapping has failed. Below are how many pages it has, 0 in an entry of
/// nobody's.
const FAILED: u64 = 1 << 27;
/// Above is the first page's number.
const FIRST_SHIFT: u32 = 28;

/// What the handler knows of each mapping. An entry is one word, so it is never seen half changed. A mapping is in the
/// list before anybody can access it, and until nobody can any more; so a thread that is interrupted in the middle of
/// an access finds the entry, and nobody takes it away before that access has ended.
static LIST: [AtomicU64; MOST_LISTED] = [const { AtomicU64::new(0) }; MOST_LISTED];

/// What SIGBUS did before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping's entry in the list.
#[derive(Debug)]
pub(super) struct Listed(&'static AtomicU64);

impl Listed {
    /// Lists a mapping. Fails if the list is full, or the mapping larger than 512 GiB.
    pub(super) fn new(base: NonNull<u8>, bytes: usize) -> Option<Self> {
        BEFORE.get_or_init(install);
        let first = base.addr().get() as u64 / PAGE_BYTES;
        let pages = (bytes as u64).div_ceil(PAGE_BYTES);
        if pages >= FAILED || first >= 1 << (u64::BITS - FIRST_SHIFT) {
            return None;
        }
        let entry = (first << FIRST_SHIFT) | pages;
        let is_ours = |slot: &&AtomicU64| slot.compare_exchange(0, entry, SeqCst, SeqCst).is_ok();
        LIST.iter().find(is_ours).map(Self)
    }

    /// Whether a page of the mapping has failed. Says so to whoever has read zeros because of it: the mark is older
    /// than the zeros, which no thread reads before the kernel has given it that page.
    pub(super) fn has_failed(&self) -> bool {
        self.0.load(SeqCst) & FAILED != 0
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.store(0, SeqCst);
    }
}

/// Makes [`on_sigbus`] the handler; returns what was there.
fn install() -> libc::sigaction {
    // SAFETY: zeros are a valid `sigaction`, with no mask and no flags.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) =
        unsafe { (zeroed(), zeroed()) };
    action.sa_sigaction = on_sigbus as *const () as libc::sighandler_t;
    // A thread that has a stack of its own for signals may have no other left.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler has the signature that SA_SIGINFO stands for, and does nothing that a handler may not do.
    let result = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) };
    assert_eq!(result, 0, "SIGBUS can be handled");
    before
}

extern "C" fn on_sigbus(signal: c_int, information: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes it, and each SIGBUS with one of the codes below has an address.
    let (code, address) = unsafe { ((*information).si_code, (*information).si_addr()) };
    let is_mended = match code {
        libc::BUS_ADRERR | libc::BUS_MCEERR_AR => replace_page(address),
        // It has failed, whosever it is, and nobody has read it yet. Whoever reads it hears of it again.
        libc::BUS_MCEERR_AO => true,
        // Somebody has sent it, or the kernel does not know the page. No access would bring it back, and what has been
        // interrupted may not go on.
        _ => {
            // SAFETY: a handler may call both. The signal comes when this one returns, and ends the process.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
            return;
        }
    };
    if !is_mended {
        // The access is done again, and is the business of whoever had the signal before. Until it is known who that
        // is, for a moment, this does nothing, and comes back.
        let before = BEFORE.get().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: it is what the kernel said that it was.
        unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
    }
}

/// The entry of the mapping that has this address.
fn find(address: *mut c_void) -> Option<&'static AtomicU64> {
    let page = address.addr() as u64 / PAGE_BYTES;
    LIST.iter().find(|slot| {
        let entry = slot.load(SeqCst);
        // One that is below the first page is far above the last.
        page.wrapping_sub(entry >> FIRST_SHIFT) < entry & (FAILED - 1)
    })
}

/// Marks the mapping that has this address, and has zeros read there from now on; whether there is one and that has
/// been done.
fn replace_page(address: *mut c_void) -> bool {
    let Some(slot) = find(address) else { return false };
    slot.fetch_or(FAILED, SeqCst);
    let page = address.map_addr(|address| address & !(PAGE_BYTES as usize - 1));
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
    // SAFETY: the page is a mapping's whose user is in the middle of an access to it, so it stays where it is, and all
    // uses of it are atomic operations, for which zeros are as good as anything that a guest may write.
    unsafe { mmap_anonymous(page, PAGE_BYTES as usize, access, flags) }.is_ok()
}
