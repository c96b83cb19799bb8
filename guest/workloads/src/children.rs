//! Children of a process that holds memory.

use std::{io, process::Command, thread, time::Duration};

/// How long a forked child lives.
const LIFE: Duration = Duration::from_millis(20);
/// How many of them there are at a time.
const AT_A_TIME: usize = 4;

/// What children have of their parent's memory.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Children {
    /// What was written there, each page until somebody writes to it.
    Fork,
    /// The memory itself, until they execute another program.
    Spawn,
}

impl Children {
    /// Starts some, and waits for their end.
    pub fn start(self) -> io::Result<()> {
        match self {
            Self::Fork => fork(),
            Self::Spawn => Command::new("/bin/true").status().map(|_| ()),
        }
    }
}

fn fork() -> io::Result<()> {
    let mut children = [0; AT_A_TIME];
    for child in &mut children {
        // SAFETY: the child does system calls only.
        *child = unsafe { libc::fork() };
        match *child {
            0 => {
                thread::sleep(LIFE);
                // SAFETY: it ends the child.
                unsafe { libc::_exit(0) }
            }
            number if number < 0 => return Err(io::Error::last_os_error()),
            _ => {}
        }
    }
    for child in children {
        // SAFETY: it is not told where to write the status to, and writes nothing.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
    Ok(())
}
