//! Gives up what user 0 can do beyond accessing its own files.

use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
        remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
    },
};
use squeezy_protocol::{Capability, Privileges};
use std::io;

/// More capabilities than any kernel has.
const MAX_CAPABILITIES: u32 = 64;

/// Drops every capability for good.
pub fn drop_all() -> io::Result<()> {
    let nothing = Privileges::default();
    gain_only(&nothing)?;
    keep_only(&nothing)
}

/// From now on an execve gives these at most: the bounding set has no other capabilities.
pub fn gain_only(privileges: &Privileges) -> io::Result<()> {
    if !privileges.gained {
        set_no_new_privs(true)?;
    }
    let kept = set(privileges);
    for number in 0..MAX_CAPABILITIES {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The first number the kernel does not have.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Drops every capability that this process has, except these.
pub fn keep_only(privileges: &Privileges) -> io::Result<()> {
    clear_ambient_capability_set()?;
    let kept = capabilities(None)?.permitted & set(privileges);
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
    Ok(())
}

fn set(privileges: &Privileges) -> CapabilitySet {
    let bits = privileges.capabilities.iter().copied().map(Capability::bit);
    CapabilitySet::from_bits_retain(bits.fold(0, |all, bit| all | bit))
}
