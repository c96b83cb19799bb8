//! What the process takes over from the instance that its own shares things with.

use super::{COMPANION_FD, USERS_FD, user::User};
use rustix::{
    process::chdir,
    thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces, unshare_unsafe},
};
use squeezy_protocol::Company;
use std::{
    fs::File,
    io,
    os::fd::{AsFd, FromRawFd, OwnedFd},
};

/// The instance that shares things with this one.
pub struct Companion {
    /// Its first process.
    process: OwnedFd,
    users: File,
    has_root: bool,
}

impl Companion {
    /// The one that the agent has passed, if there is one. To be called once.
    pub fn inherited(company: &Company) -> Option<Self> {
        let has_root = match company {
            Company::None => return None,
            Company::Beside(_) => false,
            Company::Inside(_) => true,
        };
        // SAFETY: the agent passes these two files with a company, and nothing else in this process owns them.
        let (process, users) =
            unsafe { (OwnedFd::from_raw_fd(COMPANION_FD), File::from_raw_fd(USERS_FD)) };
        Some(Self { process, users, has_root })
    }

    /// Its users, which have this number.
    pub fn users(&self, number: u32) -> io::Result<User> {
        User::join(number, self.users.try_clone()?)
    }

    /// Whether its root is that of the new instance, too.
    pub fn has_root(&self) -> bool {
        self.has_root
    }

    /// Moves this process into the namespaces that both share, and into new ones of those that they do not. It was
    /// started in its PID namespace.
    pub fn enter(&self) -> io::Result<()> {
        let mut shared = ThreadNameSpaceType::NETWORK
            | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION
            | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME;
        if self.has_root {
            shared |= ThreadNameSpaceType::MOUNT | ThreadNameSpaceType::CONTROL_GROUP;
        }
        move_into_thread_name_spaces(self.process.as_fd(), shared)?;
        if self.has_root {
            chdir("/")?;
        } else {
            // SAFETY: none of these flags unshares the file table or memory, and there is one thread.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWCGROUP) }?;
        }
        Ok(())
    }
}
