//! OpenWhisk's interfaces. Besides the store of activations, no other crate below the
//! program knows about OpenWhisk.
//!
//! - [`OpenWhisk`] is its contract with a function's server, `/init` and `/run`; [`contract`] builds the
//!   requests.
//! - [`kind`] has the kinds of actions that are made from code.
//! - [`Namespace`] is a tenant, and [`QualifiedName`] a name in it.
//! - [`package`] is its packages.
//! - [`sequence`] is actions that call others.
//! - [`web`] is actions that answer HTTP requests.
//! - [`action`], [`activation`] and [`Limits`] are its API's view of functions and their calls.
//!
//! This crate does no I/O.

pub mod action;
pub mod activation;
mod clock;
pub mod contract;
mod digest;
mod json_size;
pub mod kind;
mod limits;
mod namespace;
pub mod package;
pub mod sequence;
pub mod web;

pub use clock::now_ms;
pub use contract::OpenWhisk;
pub use digest::{Digest, NoDigest};
pub use json_size::{length_as_text, size_of_text, size_of_value};
pub use limits::{Limits, MAX_ARGUMENTS_BYTES, MAX_LOGS_MIB, MAX_TIMEOUT_MS};
pub use namespace::{Namespace, QualifiedName};
