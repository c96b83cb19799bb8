//! What decides when instances of functions start and stop, and what they are asked to do.
//!
//! Nothing in here reads a clock, a file or a socket. Time is a [`Moment`] that the caller passes
//! in, what happened is an [`Event`], and what has to be done is a [`Command`] that somebody with
//! a VM at hand carries out. So the same code serves `squeezy run`, a daemon, a simulation of a
//! whole day and the property tests.
//!
//! - [`Scaler`] is the heart: events in, commands out. It holds a queue of requests for each
//!   function, the VMs with their instances, and the host's memory [`Budget`] for all of them.
//! - [`SqueezePolicy`] is when frozen instances give their garbage back.

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
pub use id::{FunctionIndex, InstanceNumber, RequestNumber, VmIndex};
pub use instance::{InstanceState, VmState};
pub use moment::Moment;
pub use scaler::{Counts, FunctionPolicy, PolicyError, Scaler, VmPolicy};
pub use squeeze::SqueezePolicy;
