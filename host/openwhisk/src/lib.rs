//! What Squeezy has of OpenWhisk; no other crate below the program knows of it.
//!
//! - [`OpenWhisk`] is its contract with a function's server, `/init` and `/run`; [`contract`] has the
//!   requests themselves.
//! - [`action`], [`activation`] and [`Limits`] are what its API says of functions and of their calls.
//!
//! Nothing in here listens or connects.

pub mod action;
pub mod activation;
mod clock;
pub mod contract;
mod digest;
mod json_size;
mod limits;

pub use clock::now_ms;
pub use contract::OpenWhisk;
pub use digest::{Digest, NoDigest};
pub use json_size::{size_of_text, size_of_value};
pub use limits::Limits;
