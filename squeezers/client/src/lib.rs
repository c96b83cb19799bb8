//! Asks the squeezer in a living process to collect garbage and to give its free memory back, and
//! gives back from outside what no squeezer is needed for: clean pages of shared libraries.
//!
//! `squeezers/README.md` has the protocol. The other process is not trusted: what it says is bounded
//! and checked, its files are looked up within its own root, and who answers is taken from the
//! kernel.
//!
//! Everything here blocks, until a [`Deadline`] at the longest. In an asynchronous program, call it
//! on a thread that may block (`spawn_blocking` of tokio).
//!
//! ```no_run
//! use squeezer::{Squeezer, Deadline, Memory, Process, Request};
//!
//! # fn main() -> squeezer::Result<()> {
//! let deadline = Deadline::after(std::time::Duration::from_secs(10));
//! let process = Process::open(42)?;
//! let answer = Squeezer::of(&process, deadline)?.squeeze(&Request::default(), deadline)?;
//! let memory = Memory::of(&process, deadline)?;
//! println!("{} bytes of heap, {} in all", answer.after_bytes, memory.uss_bytes);
//! # Ok(())
//! # }
//! ```

mod deadline;
mod error;
pub mod libraries;
mod memory;
mod process;
mod protocol;
mod smaps;
mod socket;
mod squeezer;

pub use deadline::Deadline;
pub use error::{Error, Result};
pub use memory::Memory;
pub use process::{Process, Run};
pub use protocol::{Answer, Hello, Level, Request, Runtime};
pub use squeezer::{Peer, Squeezer};
