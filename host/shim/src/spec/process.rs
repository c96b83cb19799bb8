//! Processes of containers.

use super::{absolute, document, refused};
use crate::error::{Error, Result};
use squeezy_protocol::{
    Capability, InstanceSpec, InstanceUser, Privileges, Resource, ResourceLimit, TerminalSize,
};
use std::collections::BTreeMap;

/// Linux's limit for one argument or variable, in bytes, and ours for all of them.
pub(super) const MAX_STRING_BYTES: usize = 128 << 10;
const MAX_STRINGS_BYTES: usize = 1 << 20;
/// Profiles of AppArmor that are nobody's wish: none, and the one that containerd has all containers confined by on a
/// host with AppArmor. What it keeps from them is not in a VM, or hidden there.
const UNCONFINED: [&str; 3] = ["", "unconfined", "cri-containerd.apparmor.d"];

/// A process of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: BTreeMap<String, String>,
    /// Who runs it.
    pub user: InstanceUser,
    /// Its working directory, absolute.
    pub working_directory: String,
    /// The size of its terminal, if its streams are one.
    pub terminal: Option<TerminalSize>,
    /// What it may do.
    pub privileges: Privileges,
    /// Its limits.
    pub resource_limits: Vec<ResourceLimit>,
    /// How much rather than others it is killed when memory is short.
    pub oom_score_adj: u16,
}

/// A process, if it has nothing that the shim cannot give it.
pub(super) fn process(process: &document::Process) -> Result<Process> {
    if !UNCONFINED.contains(&process.apparmor_profile.as_str()) {
        return refused(&format!("the AppArmor profile {:?}", process.apparmor_profile));
    }
    let user = user(&process.user)?;
    let strings = || process.args.iter().chain(&process.env);
    if strings().any(|text| text.contains('\0')) {
        return Err(Error::invalid(
            "an argument or a variable of the environment has a zero byte in it",
        ));
    }
    if strings().any(|text| text.len() >= MAX_STRING_BYTES)
        || strings().map(|text| text.len() + 1).sum::<usize>() > MAX_STRINGS_BYTES
    {
        return Err(Error::invalid(format_args!(
            "arguments and environment are longer than {} MiB together, or one of them than {} KiB",
            MAX_STRINGS_BYTES >> 20,
            MAX_STRING_BYTES >> 10
        )));
    }
    if process.args.first().is_none_or(String::is_empty) {
        return Err(Error::invalid("the process has no command"));
    }
    let mut environment = BTreeMap::new();
    for variable in &process.env {
        let (name, value) =
            variable.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
                Error::invalid(format_args!(
                    "{variable:?} in the environment is not of the form NAME=VALUE"
                ))
            })?;
        environment.insert(name.to_owned(), value.to_owned());
    }
    let directory = if process.cwd.is_empty() { "/" } else { &process.cwd };
    absolute("the working directory", directory)?;
    Ok(Process {
        user,
        arguments: process.args.clone(),
        environment,
        working_directory: directory.to_owned(),
        terminal: process.terminal.then(|| {
            let size = process.terminal_size.as_ref();
            // Nobody has a larger one, and who has none yet says so later.
            let number = |number: Option<u64>| number.unwrap_or(0).try_into().unwrap_or(u16::MAX);
            TerminalSize {
                columns: number(size.map(|size| size.width)),
                rows: number(size.map(|size| size.height)),
            }
        }),
        privileges: privileges(process)?,
        resource_limits: process.rlimits.iter().map(resource_limit).collect::<Result<_>>()?,
        // Nobody is killed after all others.
        oom_score_adj: u16::try_from(process.oom_score_adj)
            .map_or(0, |score| score.min(InstanceSpec::MAX_OOM_SCORE_ADJ)),
    })
}

/// What a process may do: of its capabilities those that an instance may have.
fn privileges(process: &document::Process) -> Result<Privileges> {
    if !process.capabilities.ambient.is_empty() {
        return refused("a set of ambient capabilities");
    }
    let wanted = &process.capabilities.bounding;
    let (had, left_out): (Vec<_>, Vec<_>) =
        wanted.iter().map(|name| Capability::named(name).ok_or(name)).partition(Result::is_ok);
    if !left_out.is_empty() {
        let names: Vec<&String> = left_out.into_iter().filter_map(Result::err).collect();
        tracing::warn!("capabilities that no container has: {names:?}");
    }
    let capabilities = had.into_iter().flatten().collect();
    Ok(Privileges { capabilities, gained: !process.no_new_privileges })
}

fn resource_limit(limit: &document::Rlimit) -> Result<ResourceLimit> {
    match Resource::named(&limit.kind) {
        Some(resource) if limit.soft <= limit.hard => {
            Ok(ResourceLimit { resource, soft: limit.soft, hard: limit.hard })
        }
        Some(_) => Err(Error::invalid(format_args!(
            "the soft limit of {} is above the hard one",
            limit.kind
        ))),
        None => Err(Error::invalid(format_args!("{:?} is no resource limit", limit.kind))),
    }
}

/// Who a process is. A container has 65,536 users of its own.
fn user(user: &document::User) -> Result<InstanceUser> {
    let number = |number: u32| {
        u16::try_from(number).map_err(|_| {
            Error::unsupported(format_args!(
                "running as a user or with a group above {}, {number}, is not supported by this runtime",
                u16::MAX
            ))
        })
    };
    if user.other_gids.len() > InstanceUser::MAX_GROUPS {
        return Err(Error::unsupported(format_args!(
            "running with more than {} additional groups is not supported by this runtime",
            InstanceUser::MAX_GROUPS
        )));
    }
    Ok(InstanceUser {
        user: number(user.uid)?,
        group: number(user.gid)?,
        other_groups: user.other_gids.iter().copied().map(number).collect::<Result<_>>()?,
    })
}
