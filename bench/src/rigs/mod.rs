//! Rigs, which experiments measure with: VMs of `memhog`, functions on a node, plain processes.

pub(crate) mod fleet;
pub(crate) mod load;
pub(crate) mod memhog_vm;
pub(crate) mod process;
