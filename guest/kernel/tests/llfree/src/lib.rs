//! The guest's allocator, compiled for a program, and the host's side of it, on one state.
//!
//! - [`State`] is that state, in memory that processes can share, with a mark for each page that says who has it.
//! - [`Guest`] is the allocator as the guest's kernel has it: C.
//! - [`Stepping`] is the state as the host sees it, one access at a time.
//! - [`explore()`] runs several actors on it in every order that their accesses can have, [`take_turns()`] in one.

mod explore;
mod guest;
mod state;
mod stepping;

pub use explore::{Actor, Scenario, explore, failed_changes, hold_others, step, take_turns};
pub use guest::{Block, Guest, Type, state_bytes};
pub use state::{Owner, State};
pub use stepping::Stepping;
