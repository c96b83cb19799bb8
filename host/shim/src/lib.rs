//! A containerd shim whose pods are partitions of a VM.
//!
//! containerd executes the program for each task (`start`), and is told the address of a server: one for each VM, which
//! all pods of a group share. [`start`](mod@start) finds or makes it, with a [`registry`] of files under a lock; the server
//! ([`serve`]) answers the task API ([`service`]) for all tasks of its VM ([`tasks`]), and ends with the last.
//! [`vm::Vm`] is what it needs of the VM, and [`machine::Machine`] is one.

pub mod bootstrap;
pub mod cgroup;
pub mod delete;
pub mod error;
pub mod events;
#[cfg(test)]
#[path = "../../../scripts/executable.rs"]
mod executable;
pub mod fifo;
pub mod flags;
mod found;
mod freezer;
pub mod group;
pub mod holder;
pub mod host;
mod id;
pub mod layers;
pub mod log;
pub mod machine;
mod mutex;
mod network;
pub mod owner;
pub mod program;
pub mod registry;
mod requests;
pub mod serve;
pub mod service;
pub mod settings;
#[cfg(test)]
#[path = "../../../scripts/skip.rs"]
mod skip;
pub mod spec;
pub mod start;
pub mod tasks;
mod timestamp;
pub mod vm;
mod volumes;

pub use id::{Id, Name};
