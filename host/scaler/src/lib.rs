//! Decides when function instances start and stop, and what they do in between.
//!
//! This crate reads no clock, file or socket. The caller passes the time in as a [`Moment`], reports what
//! happened as an [`Event`], and carries out each [`Command`] on its VMs. The same code therefore serves
//! `squeezy run`, the daemon, a simulation of a whole day, and the property tests.
//!
//! - [`Scaler`] turns events into commands. It holds a request queue per function, the VMs with their
//!   instances, and the host's memory [`Budget`] for all of them, which tenants share.
//! - [`SqueezePolicy`] says when frozen instances collect their garbage and give the memory back.

mod budget;
mod command;
mod event;
mod id;
mod instance;
mod moment;
mod scaler;
mod squeeze;

pub use budget::Budget;
pub use command::{Command, RejectReason, StopReason, WaitingFor};
pub use event::{Event, Unexpected};
pub use id::{FunctionIndex, InstanceNumber, RequestNumber, TenantIndex, VmIndex};
pub use instance::{InstanceState, VmState};
pub use moment::Moment;
pub use scaler::{
    Counts, FunctionPolicy, PolicyError, Scaler, TenantCounts, TenantPolicy, VmPolicy,
};
pub use squeeze::SqueezePolicy;
