//! The layers of containers' roots: made images once on the machine ([`Cache`]), and put into the pool of each VM that
//! needs them ([`Pool`]).

mod cache;
mod disk;
mod pool;
mod ranges;

pub use cache::{Cache, Key, MAKING_BYTES};
pub use pool::{Guest, Pool, Taken};
