//! Programs that the experiments run in the guest, and what they share.

pub mod children;
pub mod mapping;
pub mod samples;
pub mod size;

pub use children::Children;
pub use mapping::{Mapping, Pages};
pub use samples::Sample;
