//! What a task is to be: the part of the OCI bundle's `config.json` that the shim needs, checked.
//!
//! What a container asks for and does not get is refused with a sentence that names it: a pod that runs without its
//! volume is worse than one that does not run.

mod cgroup;
mod container;
mod document;
mod limits;
mod pod;
mod process;
mod seccomp;
mod volumes;

pub use container::{Container, Root};
pub use limits::{Limits, update};
pub use pod::{Freeze, Pod};
pub use process::Process;
pub use volumes::{Volume, VolumeKind};

use crate::{
    Id,
    error::{Error, Result},
};
use containerd_shim_protos::api::Mount;
use document::Document;
use serde::de::DeserializeOwned;
use std::{
    fs::File,
    io::Read,
    path::{Component, Path, PathBuf},
};

/// The longest `config.json`, in bytes: ttrpc's own limit for a message, so that no spec from Kubernetes is longer.
const MAX_DOCUMENT_BYTES: u64 = 4 << 20;
/// The longest path, in bytes.
const MAX_PATH_BYTES: usize = 4096;
/// containerd's overlays have at most 128 layers.
const MAX_LAYERS: usize = 128;

const TYPE: &str = "io.kubernetes.cri.container-type";
const POD: &str = "io.kubernetes.cri.sandbox-id";
const UID: &str = "io.kubernetes.cri.sandbox-uid";

/// A bundle's spec: what the task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// A pod, whose containers are tasks of their own.
    Pod(Pod),
    /// A container of that pod.
    Container(Id, Container),
    /// A pod and its only container in one task, as `ctr run` makes them.
    Single(Pod, Container),
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
        let document: Document = read_json(text, "the spec is no OCI runtime spec")?;
        let annotation = |name: &str| document.annotations.get(name).map(String::as_str);
        match annotation(TYPE) {
            // Nothing runs in it.
            Some("sandbox") => Ok(Self::Pod(pod::pod(&document)?)),
            Some("container") => {
                let pod = annotation(POD)
                    .ok_or_else(|| Error::invalid(format_args!("no annotation {POD}")))?;
                Ok(Self::Container(pod.parse()?, container::container(&document)?))
            }
            None => match container::container(&document)? {
                Container { shares_processes: true, .. } => {
                    refused("sharing processes with other pods")
                }
                container => Ok(Self::Single(pod::pod(&document)?, container)),
            },
            Some(other) => Err(Error::invalid(format_args!(
                "{TYPE} is {other:?}: neither sandbox nor container"
            ))),
        }
    }
}

/// Reads a process that is to be added to a container, OCI's `Process` as JSON.
///
/// # Errors
/// It is no such process, or asks for what the shim cannot do.
pub fn added_process(text: &[u8]) -> Result<Process> {
    process::process(&read_json(text, "the process is none of an OCI runtime spec")?)
}

fn read_json<T: DeserializeOwned>(text: &[u8], wrong: &str) -> Result<T> {
    if text.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(Error::invalid(format_args!(
            "the spec is longer than {} MiB",
            MAX_DOCUMENT_BYTES >> 20
        )));
    }
    serde_json::from_slice(text).map_err(|error| Error::invalid(format_args!("{wrong}: {error}")))
}

fn refused<T>(what: &str) -> Result<T> {
    Err(Error::unsupported(format_args!("{what} is not supported by this runtime")))
}

/// The directories of a root file system's layers on the host, the topmost first, from the mounts that containerd's
/// snapshotter names for it.
///
/// # Errors
/// Mounts of which no layers can be told.
pub fn layers(mounts: &[Mount]) -> Result<Vec<PathBuf>> {
    let [mount] = mounts else {
        return Err(Error::unsupported(format_args!(
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
            return Err(Error::unsupported(format_args!(
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
