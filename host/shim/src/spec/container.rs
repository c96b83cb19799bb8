//! Containers.

use super::{
    Limits,
    document::{Document, Mount, Namespace},
    limits::limits,
    process::{Process, process},
    refused, seccomp,
    volumes::{Volume, volumes},
};
use crate::error::{Error, Result};
use squeezy_protocol::{InstanceSpec, MAX_BODY_BYTES, SystemCallFilter, is_path};

/// What of the agent's longest message is left for what is no list of the spec's, in bytes.
const REST_BYTES: usize = 64 << 10;

/// What a container is, apart from its pod and its layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// What it runs.
    pub process: Process,
    /// Whether it sees the processes of its pod's other containers, as these see its own.
    pub shares_processes: bool,
    /// Its root.
    pub root: Root,
    /// What its processes may not call, those that are added included.
    pub filters: Vec<SystemCallFilter>,
    /// Its limits.
    pub limits: Limits,
}

/// What a container's root is apart from its layers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Whether it cannot be written to.
    pub is_read_only: bool,
    /// Paths in it that show nothing.
    pub hidden_paths: Vec<String>,
    /// Paths in it that cannot be written to.
    pub read_only_paths: Vec<String>,
    /// What is in it.
    pub volumes: Vec<Volume>,
    /// Whether the container's limits can be read in it, at `/sys/fs/cgroup`.
    pub sees_limits: bool,
    /// Whether the pod's message queues are in it, at `/dev/mqueue`.
    pub sees_message_queues: bool,
}

/// The container of a spec, if it has nothing that the shim cannot give it.
pub(super) fn container(document: &Document) -> Result<Container> {
    let found =
        document.process.as_ref().ok_or_else(|| Error::invalid("the spec has no process"))?;
    let process = process(found)?;
    if !document.hooks.is_empty() {
        return refused("a hook in the spec");
    }
    let linux = &document.linux;
    if let Some(device) = linux.devices.first() {
        return refused(&format!("device {:?}", device.path));
    }
    let is_others = |namespace: &Namespace| namespace.kind == "pid" && !namespace.path.is_empty();
    let container = Container {
        process,
        shares_processes: linux.namespaces.iter().any(is_others),
        root: root(document)?,
        filters: match &linux.seccomp {
            Some(profile) => seccomp::filters(profile)?,
            None => Vec::new(),
        },
        limits: limits(&linux.resources),
    };
    check_length(&container)?;
    Ok(container)
}

/// Refuses what is longer than what the agent takes at once.
fn check_length(container: &Container) -> Result<()> {
    let (process, root) = (&container.process, &container.root);
    let targets: Vec<&str> = root.volumes.iter().map(|volume| volume.target.as_str()).collect();
    let lists = (
        (&process.arguments, &process.environment, &process.working_directory),
        (&container.filters, &root.hidden_paths, &root.read_only_paths, targets),
    );
    let bytes = serde_json::to_vec(&lists).map_err(Error::failed)?.len();
    if bytes > MAX_BODY_BYTES - REST_BYTES {
        return Err(Error::invalid(format_args!(
            "the container's arguments, environment, seccomp profile, paths and mounts take {} KiB, and may take {} KiB \
             together",
            bytes >> 10,
            (MAX_BODY_BYTES - REST_BYTES) >> 10
        )));
    }
    Ok(())
}

fn root(document: &Document) -> Result<Root> {
    let paths = |paths: &[String]| {
        if paths.len() > InstanceSpec::MAX_PATHS || !paths.iter().all(|path| is_path(path)) {
            return Err(Error::invalid(format_args!(
                "a masked or read-only path is not absolute, or there are more than {}",
                InstanceSpec::MAX_PATHS
            )));
        }
        Ok(paths.to_vec())
    };
    Ok(Root {
        is_read_only: document.root.readonly,
        hidden_paths: paths(&document.linux.masked_paths)?,
        read_only_paths: paths(&document.linux.readonly_paths)?,
        volumes: volumes(document)?,
        sees_limits: document.mounts.iter().any(Mount::is_cgroup),
        sees_message_queues: document.mounts.iter().any(Mount::is_message_queues),
    })
}
