//! Gives up everything that user 0 can do beyond accessing its own files.

use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, clear_ambient_capability_set,
        remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
    },
};
use std::io;

/// More capabilities than any kernel has.
const MAX_CAPABILITIES: u32 = 64;

/// Drops every capability for good.
pub fn drop_all() -> io::Result<()> {
    gain_none()?;
    drop_own()
}

/// From now on no execve gives a capability: the bounding set is empty.
pub fn gain_none() -> io::Result<()> {
    set_no_new_privs(true)?;
    for number in 0..MAX_CAPABILITIES {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // The first number the kernel does not have.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Drops every capability that this process has.
pub fn drop_own() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}
