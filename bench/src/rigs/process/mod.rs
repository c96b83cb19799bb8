//! Instances as plain processes on this machine, without a VM: runtimes with their squeezers,
//! frozen between requests as a FaaS platform does.
//!
//! [`Functions`] has the command-line options of an experiment; [`Instance`] is one process.

mod function;
mod functions;
mod group;
mod instance;
mod port;
mod subject;
mod trial;

#[cfg(test)]
pub(crate) use function::find;
pub(crate) use function::{Language, NativeFunction};
pub(crate) use functions::{FunctionChoice, Functions, ProcessOptions, parse_share, percent};
pub(crate) use instance::{Call, Instance, Setup};
#[cfg(test)]
pub(crate) use subject::example;
pub(crate) use subject::{OfProcess, Subject, functions_in, of_size, sizes_of};
pub(crate) use trial::{Trial, header, trials};
