//! Functions, their VMs and instances on one machine.
//!
//! `squeezy-scaler` decides and does nothing; `squeezy-vmm` runs a VM and decides nothing. This crate
//! connects them.
//!
//! - [`Node`] takes calls of functions, reports to the scaler what happens, and carries out what it decides.
//!   An [`Observer`] is told about all of it.
//! - [`Machine`] is where instances run and how their memory is resized: one VM for all, or one for each.
//!   [`Guest`] is the interface to the guest in it, and `instance` runs one instance from start to end.
//! - [`FunctionImage`], [`PolicyName`] and [`VmPlan`] say how machines and instances are made.
//! - [`function`] is a function's definition, `function.toml`; [`settings`] overrides parts of it.
//! - A [`Contract`] says how to talk to an instance's server.
//! - [`series`] summarizes measurements: percentiles, and integrals over time.

mod byte_rate;
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
mod trace;
mod vm_end;

pub use byte_rate::ByteRate;
pub use call::{Answer, Call, CallError, WaitedFor};
pub use contract::Contract;
pub use guest::{GoesOn, Guest};
pub use image::{FunctionImage, ImageError, oci_function, read_function};
pub use instance::{InstanceError, Reply, SqueezeReport, StartTimes};
pub use machine::{Blueprint, Machine, MachineDetails, ResizeOutcome};
pub use node::{FunctionLimits, Node, NodeError, NodeStatus, Prewarmed};
pub use observe::{NodeEvent, Observer};
pub use plan::VmPlan;
pub use policy::{PolicyName, UnknownPolicy};
pub use response::quote;
pub use settings::FunctionSettings;
pub use toml_file::{TomlError, parse_toml};
pub use trace::{CallTrace, SpanId, TraceContext, TraceId};
pub use vm_end::VmEnd;
