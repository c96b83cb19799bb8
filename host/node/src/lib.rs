//! Functions, their VMs and instances on one machine.
//!
//! `squeezy-runtime` decides and does nothing; `squeezy-vmm` runs a VM and decides nothing. This
//! crate is what is between them.
//!
//! - [`Node`] is all of it at work: it takes calls of functions, tells the scaler what happens and
//!   carries out what it decides. Whoever wants to know what goes on is an [`Observer`].
//! - [`Machine`] is where instances run and how their memory is changed: one VM for all, or one for
//!   each. `instance` has the life of one of them.
//! - [`FunctionImage`], [`PolicyName`] and [`VmPlan`] are where they come from.
//! - [`openwhisk`] is what an instance is asked.

mod image;
mod instance;
mod machine;
mod node;
mod observe;
pub mod openwhisk;
mod plan;
mod policy;

pub use image::{FunctionImage, ImageError, oci_function, read_function};
pub use instance::{Reply, SqueezeReport, StartTimes};
pub use machine::{Machine, MachineDetails, Tried};
pub use node::{Answer, Call, CallError, FunctionLimits, Node, NodeError, NodeStatus, WaitedFor};
pub use observe::{Happening, Observer};
pub use plan::VmPlan;
pub use policy::{PolicyName, UnknownPolicy};
