//! The instance that a new one shares things with.

use super::{Entry, process::Process};
use crate::{cgroup::Cgroup, error::ApiError, processes, sandbox};
use squeezy_protocol::{Company, ErrorCode, InstanceSpec, InstanceState};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

/// An instance that runs, with its namespaces.
#[derive(Debug)]
pub struct Companion {
    entry: Rc<Entry>,
    /// Its user namespace.
    users: File,
    /// Whether the new instance is one more process in it.
    is_inside: bool,
    /// Whether the new instance lives in its PID namespace.
    shares_processes: bool,
}

impl Companion {
    /// Checks that an instance can have the company that `spec` asks for.
    pub fn check(entry: &Entry, spec: &InstanceSpec) -> Result<(), ApiError> {
        if entry.is_inside {
            return Err(ApiError::invalid(format!(
                "company: {} is itself inside another instance",
                entry.id
            )));
        }
        // What is started in its cgroup would be frozen on its way.
        if entry.frozen.get() && matches!(spec.company, Company::Inside(_)) {
            let message = format!("company: {} is frozen", entry.id);
            return Err(ApiError::new(ErrorCode::Unavailable, message));
        }
        match entry.process.get() {
            Some(process)
                if *entry.state.borrow() == InstanceState::Running && process.is_there() =>
            {
                Ok(())
            }
            _ => Err(entry.not_running()),
        }
    }

    /// The company that `spec` asks for.
    pub fn new(entry: Rc<Entry>, spec: &InstanceSpec) -> Result<Self, ApiError> {
        let pid = entry.start.get().pid;
        let users = File::open(match entry.keeps {
            // It is none of its users.
            true => format!("/proc/{pid}/fd/{}", sandbox::USERS_FD),
            false => format!("/proc/{pid}/ns/user"),
        });
        // If it is there now, its id was nobody else's then.
        Self::check(&entry, spec)?;
        let users = users.map_err(|e| ApiError::internal("opening its user namespace", e))?;
        let is_inside = matches!(spec.company, Company::Inside(_));
        let shares_processes = is_inside || spec.shared_processes;
        Ok(Self { entry, users, is_inside, shares_processes })
    }

    /// Its first process.
    pub fn process(&self) -> &Process {
        self.entry.process.get().expect("it has run")
    }

    /// Its user namespace.
    pub fn users(&self) -> BorrowedFd<'_> {
        self.users.as_fd()
    }

    /// Whether the new instance is one more process in it.
    pub fn is_inside(&self) -> bool {
        self.is_inside
    }

    /// Whether the new instance lives in its PID namespace.
    pub fn shares_processes(&self) -> bool {
        self.shares_processes
    }

    /// Whether it has a partition.
    pub fn has_partition(&self) -> bool {
        self.entry.start.get().partition.is_some()
    }

    /// The cgroup of its processes.
    pub fn own_cgroup(&self) -> Option<&Cgroup> {
        self.entry.cgroup.get()
    }

    /// The same as a directory.
    pub fn cgroup(&self) -> io::Result<OwnedFd> {
        self.own_cgroup().ok_or(io::ErrorKind::NotFound)?.open()
    }

    /// The process that is in its partition, as the new instance's processes see it.
    pub fn to_join(&self) -> io::Result<Option<u32>> {
        if !self.has_partition() {
            return Ok(None);
        }
        if !self.shares_processes {
            return Ok(Some(sandbox::init::PROCESS));
        }
        processes::inside(self.process().id()).map(Some).ok_or(io::ErrorKind::NotFound.into())
    }

    /// Why starting beside or inside it has failed.
    pub fn explain(&self, error: ApiError) -> ApiError {
        if self.process().is_there() {
            return error;
        }
        let message = format!("company: instance {} has ended", self.entry.id);
        ApiError::new(ErrorCode::Unavailable, message)
    }
}
