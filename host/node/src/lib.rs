//! Functions, their VMs and instances on one machine.
//!
//! `squeezy-runtime` decides and does nothing; `squeezy-vmm` runs a VM and decides nothing. This
//! crate is what is between them.
//!
//! - [`Node`] is all of it at work: it takes calls of functions, tells the scaler what happens and
//!   carries out what it decides. Whoever wants to know what goes on is an [`Observer`].
//! - [`Machine`] is a VM with the way its memory is changed: one instance's plug, start, call,
//!   stop and reclaim.
//! - [`FunctionImage`] and [`VmPlan`] are where both come from.
//! - [`openwhisk`] is what an instance is asked.

mod image;
mod machine;
mod node;
mod observe;
pub mod openwhisk;
mod plan;

pub use image::{FunctionImage, ImageError};
pub use machine::{Machine, Reply, StartTimes, Tried};
pub use node::{Answer, Call, CallError, FunctionLimits, Node, NodeError, NodeStatus, VmLimits};
pub use observe::{Happening, Observer};
pub use plan::VmPlan;
