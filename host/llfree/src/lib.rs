//! The host's side of the guest's page allocator.
//!
//! The guest's allocator is LLFree: without locks, with its whole state in flat arrays that the host
//! maps. So the host takes free memory out of a running guest and gives it back with a few atomic
//! operations of its own, and no code of the guest takes part (HyperAlloc, EuroSys'25). The guest's half is
//! `guest/kernel/src/mm/llfree/`; `state.h` there has the entries and their invariants L1 to L5, which this
//! crate keeps whatever the guest does, and whenever it is killed itself.
//!
//! - [`header`] reads where the state is, and believes nothing.
//! - [`Zone`] takes areas and gives them back, and isolates those whose single pages are to be discarded.
//! - [`Memory`] is the state as atomic numbers; [`SharedMemory`] is the true one, in a [`Mapping`] of the guest's
//!   memory. These two are the only places with `unsafe` code.
//!
//! A guest that breaks the rules loses its own memory, or keeps it. It cannot make anything here wait, fail or
//! touch what is not the state: no loop depends on what the guest does, and no index comes from it.

mod area_set;
mod entry;
pub mod header;
#[cfg(test)]
mod hostile;
mod isolate;
mod layout;
mod mapping;
mod memory;
mod page_set;
mod runs;
mod zone;

pub use area_set::{AreaSet, TreeIndex};
pub use layout::{AREA_BYTES, AREA_PAGES, PAGE_BYTES, TREE_AREAS, ZoneLayout};
pub use mapping::{Mapping, PageFailed};
pub use memory::{Memory, SharedMemory};
pub use page_set::PageSet;
pub use zone::{Free, InHand, Zone};
