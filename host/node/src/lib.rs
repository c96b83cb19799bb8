//! Functions, their VMs and instances on one machine.
//!
//! `squeezy-scaler` decides and does nothing; `squeezy-vmm` runs a VM and decides nothing. This
//! crate is what is between them.
//!
//! - [`Node`] is all of it at work: it takes calls of functions, tells the scaler what happens and
//!   carries out what it decides. Whoever wants to know what goes on is an [`Observer`].
//! - [`Machine`] is where instances run and how their memory is changed: one VM for all, or one for
//!   each. [`Guest`] is what is asked of the guest in it, and `instance` has the life of one of them.
//! - [`FunctionImage`], [`PolicyName`] and [`VmPlan`] are where they come from.
//! - [`function`] is what is known of a function, its `function.toml`; [`settings`] is what may override
//!   that.
//! - A [`Contract`] is what an instance's server is asked.
//! - [`series`] sums up what was measured: percentiles, and integrals over time.

mod call;
mod contract;
pub mod function;
mod guest;
mod image;
mod instance;
mod machine;
mod node;
mod observe;
mod plan;
mod policy;
mod response;
pub mod series;
pub mod settings;
mod toml_file;
mod vm_end;

pub use call::{Answer, Call, CallError, WaitedFor};
pub use contract::Contract;
pub use guest::Guest;
pub use image::{FunctionImage, ImageError, oci_function, read_function};
pub use instance::{InstanceError, Reply, SqueezeReport, StartTimes};
pub use machine::{Blueprint, Machine, MachineDetails, ResizeOutcome};
pub use node::{FunctionLimits, Node, NodeError, NodeStatus};
pub use observe::{NodeEvent, Observer};
pub use plan::VmPlan;
pub use policy::{PolicyName, UnknownPolicy};
pub use response::quote;
pub use settings::FunctionSettings;
pub use toml_file::{TomlError, parse_toml};
pub use vm_end::VmEnd;
