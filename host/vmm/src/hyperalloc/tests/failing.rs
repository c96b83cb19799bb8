//! Memory of the host that fails, with a part of the state in it.

use super::{GIB, Guest, MIB, USABLE_BYTES};
use crate::{
    VmError,
    hyperalloc::{Grain, Reclaimer},
};
use squeezy_llfree::PageFailed;
use std::{io, mem::zeroed, ptr};

impl Reclaimer {
    /// The kernel's word that the memory at an offset of the state has failed, to a thread that is about to read it.
    pub(crate) fn fail(&self, offset: u64) {
        assert!(offset < self.state.bytes());
        // SAFETY: zeros are a valid `siginfo_t`.
        let mut information: libc::siginfo_t = unsafe { zeroed() };
        information.si_signo = libc::SIGBUS;
        information.si_code = libc::BUS_MCEERR_AR;
        let address = self.state.base().as_ptr().wrapping_add(offset as usize);
        // SAFETY: three numbers and padding are before the address, which is aligned as a pointer is.
        unsafe { (&raw mut information).cast::<*mut u8>().add(2).write(address) };
        // SAFETY: the handler of that signal does what it does when memory fails. The state is mapped, and all who
        // access it do so with atomic operations.
        let result = unsafe {
            libc::syscall(
                libc::SYS_rt_tgsigqueueinfo,
                libc::getpid(),
                libc::gettid(),
                libc::SIGBUS,
                ptr::from_ref(&information),
            )
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
}

const FAILED: VmError = VmError::MemoryFailed(PageFailed);

#[test]
fn of_a_guest_whose_state_has_failed_nothing_more_is_discarded() {
    let [broken, other] = [Guest::new(), Guest::new()];
    let [reclaimer, others] = [&broken, &other].map(|guest| {
        guest.boot();
        guest.reclaimer()
    });
    reclaimer.check().unwrap();
    // Nothing but the header: what says that all pages are free is still there.
    assert_ne!(reclaimer.state.header()[..8], [0; 8]);
    reclaimer.fail(0);
    assert_eq!(reclaimer.state.header()[..8], [0; 8]);
    assert_eq!(reclaimer.check(), Err(FAILED));
    for grain in [Grain::Area, Grain::Page] {
        assert_eq!(reclaimer.take(&(0..2 * GIB), grain).unwrap_err(), FAILED);
    }
    assert_eq!(reclaimer.hold(USABLE_BYTES).unwrap_err(), FAILED);
    assert_eq!(reclaimer.held_bytes(), 0);
    assert_eq!(broken.lost(|_| true), None);

    others.hold(USABLE_BYTES).unwrap();
    assert_eq!((others.check(), others.held_bytes()), (Ok(()), USABLE_BYTES));
}

/// The page that it hears it from may be the one that has failed.
#[test]
fn a_partition_is_not_discarded_if_its_guest_may_not_have_heard_of_it() {
    let guest = Guest::new();
    guest.boot();
    let reclaimer = guest.reclaimer();
    guest.write(guest.layouts[1].live + 64 + 12, &7_u32.to_le_bytes());
    reclaimer.fail(0);
    let partition = guest.memory.at(&(GIB..GIB + 32 * MIB)).unwrap();
    assert_eq!(reclaimer.condemn(&partition).unwrap_err(), FAILED);
    assert_eq!(guest.lost(|_| true), None);
}
