//! What a task is to be: the part of the OCI bundle's `config.json` that the shim needs, checked.
//!
//! What a container asks for and does not get is refused with a sentence that names it: a pod that runs without its
//! volume is worse than one that does not run.

mod document;

use crate::{
    Id,
    error::{Error, Result},
};
use containerd_shim_protos::api::Mount;
use document::Document;
use squeezy_protocol::InstanceUser;
use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    path::{Component, Path, PathBuf},
};

/// The longest `config.json`, in bytes: ttrpc's own limit for a message, so that no spec from Kubernetes is longer.
const MAX_DOCUMENT_BYTES: u64 = 4 << 20;
/// Linux's limit for one argument or variable, in bytes, and ours for all of them.
const MAX_STRING_BYTES: usize = 128 << 10;
const MAX_STRINGS_BYTES: usize = 1 << 20;
/// The longest path, in bytes.
const MAX_PATH_BYTES: usize = 4096;
/// containerd's overlays have at most 128 layers.
const MAX_LAYERS: usize = 128;

const TYPE: &str = "io.kubernetes.cri.container-type";
const POD: &str = "io.kubernetes.cri.sandbox-id";
const NAMESPACE: &str = "io.kubernetes.cri.sandbox-namespace";
const POD_MEMORY: &str = "io.kubernetes.cri.sandbox-memory";
const VM: &str = "dev.squeezy/vm";

/// A bundle's spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What the task is.
    pub role: Role,
    /// What the container runs; nothing for a pod.
    pub process: Option<Process>,
}

/// What a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A pod, whose containers are tasks of their own.
    Pod(Pod),
    /// A container of that pod.
    Container(Id),
    /// A pod and its only container in one task, as `ctr run` makes them.
    Single(Pod),
}

/// What decides where a pod goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its memory limit in bytes.
    pub memory_bytes: u64,
    /// The namespace of Kubernetes; empty without Kubernetes.
    pub kubernetes_namespace: String,
    /// The VM that it asks for within its namespace.
    pub vm: String,
    /// The network namespace that was made for it.
    pub network: Option<PathBuf>,
}

/// What a container runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: BTreeMap<String, String>,
    /// Who runs it.
    pub user: InstanceUser,
    /// Whether the root cannot be written to.
    pub read_only_root: bool,
    /// Its working directory, absolute.
    pub working_directory: String,
    /// Its own memory limit in bytes.
    pub memory_bytes: Option<u64>,
}

impl Spec {
    /// Reads the spec of a bundle.
    ///
    /// # Errors
    /// It cannot be read, is no spec, or asks for what the shim cannot do.
    pub fn read(bundle: &Path) -> Result<Self> {
        let path = bundle.join("config.json");
        let mut text = Vec::new();
        File::open(&path)
            .and_then(|file| file.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut text))
            .map_err(|error| {
                Error::failed(format_args!("cannot read {}: {error}", path.display()))
            })?;
        Self::parse(&text)
    }

    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &[u8]) -> Result<Self> {
        if text.len() as u64 > MAX_DOCUMENT_BYTES {
            return Err(Error::invalid(format_args!(
                "the spec is longer than {} MiB",
                MAX_DOCUMENT_BYTES >> 20
            )));
        }
        let document: Document = serde_json::from_slice(text).map_err(|error| {
            Error::invalid(format_args!("the spec is no OCI runtime spec: {error}"))
        })?;
        let annotation = |name: &str| document.annotations.get(name).map(String::as_str);
        match annotation(TYPE) {
            Some("sandbox") => Ok(Self { role: Role::Pod(pod(&document)?), process: None }),
            Some("container") => {
                let pod = annotation(POD)
                    .ok_or_else(|| Error::invalid(format_args!("no annotation {POD}")))?;
                Ok(Self { role: Role::Container(pod.parse()?), process: Some(process(&document)?) })
            }
            None => {
                Ok(Self { role: Role::Single(pod(&document)?), process: Some(process(&document)?) })
            }
            Some(other) => Err(Error::invalid(format_args!(
                "{TYPE} is {other:?}: neither sandbox nor container"
            ))),
        }
    }
}

fn pod(document: &Document) -> Result<Pod> {
    let annotation = |name: &str| document.annotations.get(name).map(String::as_str);
    let of_pod = match annotation(POD_MEMORY) {
        Some(text) => text
            .parse::<i64>()
            .map_err(|_| Error::invalid(format_args!("{POD_MEMORY} is no number")))?,
        None => 0,
    };
    // Both count in bytes; neither is set where it is 0 or negative.
    let memory_bytes = [Some(of_pod), document.linux.resources.memory.limit]
        .into_iter()
        .flatten()
        .find_map(|bytes| u64::try_from(bytes).ok().filter(|bytes| *bytes > 0))
        .ok_or_else(|| {
            Error::invalid(
                "the pod has no memory limit, and its partition would have no size: set resources.limits.memory of \
                 each container",
            )
        })?;
    let name = |annotated: &str| -> Result<String> {
        Ok(annotated
            .parse::<Id>()
            .map_err(|error| Error::invalid(format_args!("annotation {VM}: {error}")))?
            .to_string())
    };
    let network = document.linux.namespaces.iter().find(|namespace| namespace.kind == "network");
    Ok(Pod {
        memory_bytes,
        kubernetes_namespace: match annotation(NAMESPACE) {
            Some(namespace) => namespace.parse::<Id>()?.to_string(),
            None => String::new(),
        },
        vm: name(annotation(VM).unwrap_or("default"))?,
        network: match network.map(|namespace| namespace.path.as_str()) {
            None | Some("") => None,
            Some(path) => Some(absolute("the pod's network namespace", path)?),
        },
    })
}

fn process(document: &Document) -> Result<Process> {
    let process =
        document.process.as_ref().ok_or_else(|| Error::invalid("the spec has no process"))?;
    let refused = |what: &str| {
        Err(Error::unimplemented(format_args!("{what} is not supported by this runtime")))
    };
    if process.terminal {
        return refused("a terminal (tty: true)");
    }
    let user = user(&process.user)?;
    if !document.hooks.is_empty() {
        return refused("a hook in the spec");
    }
    if let Some(device) = document.linux.devices.first() {
        return refused(&format!("device {:?}", device.path));
    }
    if let Some(mount) = document.mounts.iter().find(|mount| !mount.is_made_by_guest()) {
        return refused(&format!("a volume ({} mount at {:?})", mount.kind, mount.destination));
    }
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
        return Err(Error::invalid("the container has no command"));
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
        read_only_root: document.root.readonly,
        arguments: process.args.clone(),
        environment,
        working_directory: directory.to_owned(),
        memory_bytes: document
            .linux
            .resources
            .memory
            .limit
            .and_then(|bytes| u64::try_from(bytes).ok()),
    })
}

/// Who a process is. A container has 65,536 users of its own.
fn user(user: &document::User) -> Result<InstanceUser> {
    let number = |number: u32| {
        u16::try_from(number).map_err(|_| {
            Error::unimplemented(format_args!(
                "running as a user or with a group above {}, {number}, is not supported by this runtime",
                u16::MAX
            ))
        })
    };
    if user.other_gids.len() > InstanceUser::MAX_GROUPS {
        return Err(Error::unimplemented(format_args!(
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

/// The directories of a root file system's layers on the host, the topmost first, from the mounts that containerd's
/// snapshotter names for it.
///
/// # Errors
/// Mounts of which no layers can be told.
pub fn layers(mounts: &[Mount]) -> Result<Vec<PathBuf>> {
    let [mount] = mounts else {
        return Err(Error::unimplemented(format_args!(
            "a root file system of {} mounts: use the snapshotter overlayfs",
            mounts.len()
        )));
    };
    let sources: Vec<&str> = match mount.type_.as_str() {
        "overlay" => {
            let lower = mount.options.iter().find_map(|option| option.strip_prefix("lowerdir="));
            lower
                .ok_or_else(|| Error::invalid("the root's overlay has no lowerdir"))?
                .split(':')
                .collect()
        }
        // A single layer without a writable one.
        "bind" => vec![&mount.source],
        other => {
            return Err(Error::unimplemented(format_args!(
                "a root file system of type {other:?}: use the snapshotter overlayfs"
            )));
        }
    };
    if sources.len() > MAX_LAYERS {
        return Err(Error::invalid(format_args!(
            "the root file system has more than {MAX_LAYERS} layers"
        )));
    }
    sources.into_iter().map(|source| absolute("a layer of the root file system", source)).collect()
}

fn absolute(what: &str, path: &str) -> Result<PathBuf> {
    let found = Path::new(path);
    let plain =
        found.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !found.is_absolute() || !plain || path.len() > MAX_PATH_BYTES || path.contains('\0') {
        let shown: String = path.chars().take(80).collect();
        return Err(Error::invalid(format_args!(
            "{what} is {shown:?}, which is no absolute path of at most {MAX_PATH_BYTES} bytes without \"..\""
        )));
    }
    Ok(found.to_owned())
}

#[cfg(test)]
mod tests;
