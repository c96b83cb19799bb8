//! Rigs, which experiments measure with: VMs of `memhog`, of programs that end or of both, functions on a node, a
//! daemon, pods of containerd, plain processes.

pub(crate) mod azure_trace;
pub(crate) mod compile_vm;
pub(crate) mod containerd;
pub(crate) mod daemon;
pub(crate) mod faultbench;
pub(crate) mod load;
pub(crate) mod memhog_vm;
pub(crate) mod node_rig;
pub(crate) mod prepare;
pub(crate) mod process;
pub(crate) mod program_vm;
pub(crate) mod resized_vm;
