//! Programs that the experiments run in the guest, and what they share.

pub mod mapping;
pub mod size;

pub use mapping::{Mapping, Pages};
