//! Instances that are plain processes of this machine, without a VM: runtimes with their squeezers,
//! frozen between requests as a platform for functions does it.
//!
//! [`Functions`] is what an experiment is told on its command line, [`Instance`] is one process.

mod function;
mod functions;
mod group;
mod instance;
mod port;
mod prepare;
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
