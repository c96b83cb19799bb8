//! Volumes of containers: what containerd and kubelet put into the `mounts` of a `config.json`.
//!
//! A VM has no directory of the host. What a container only reads is copied, and so are the three files that containerd
//! makes for each pod; what a pod has for itself is in the VM. Nothing else is possible.

use super::{
    POD, UID, absolute,
    document::{Document, Mount},
    refused,
};
use crate::error::{Error, Result};
use squeezy_protocol::{self as protocol, VolumeMount};
use std::path::{Component, Path, PathBuf};

/// A volume of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Where the container has it.
    pub target: String,
    /// Where it is on the host.
    pub source: PathBuf,
    /// What it is.
    pub kind: VolumeKind,
    /// Whether the container cannot write to it.
    pub is_read_only: bool,
}

/// What a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeKind {
    /// A copy of a file or directory of the host, which follows it if it is a directory.
    Copy,
    /// A file that is written back when the container has ended.
    Report,
    /// A directory that all containers of the pod with this source share; nothing of the host's is in it.
    Shared,
    /// A part of a directory that they share, or else of something that is copied: the host's mounts say of which.
    Part,
}

/// What the pod of a container is called in paths. What is missing there, no path has.
struct Names<'a> {
    /// By kubelet. containerd says it since 1.6.11.
    uid: Option<&'a str>,
    /// By containerd.
    id: Option<&'a str>,
}

/// The volumes of a container, in their order.
///
/// # Errors
/// One is none of these; its name is said.
pub(super) fn volumes(document: &Document) -> Result<Vec<Volume>> {
    let annotation = |name: &str| document.annotations.get(name).map(String::as_str);
    let pod = Names { uid: annotation(UID), id: annotation(POD) };
    let volumes = document.mounts.iter().filter_map(|mount| volume(mount, &pod).transpose());
    let volumes: Vec<Volume> = volumes.collect::<Result<_>>()?;
    if volumes.len() > protocol::Volume::MAX_OF_INSTANCE {
        return refused(&format!(
            "a container with more than {} volumes",
            protocol::Volume::MAX_OF_INSTANCE
        ));
    }
    Ok(volumes)
}

/// The volume that a mount is; nothing if it is made in the VM.
fn volume(mount: &Mount, pod: &Names<'_>) -> Result<Option<Volume>> {
    let has = |option: &str| mount.has(option);
    let target = mount.destination.as_str();
    let is_read_only = has("ro");
    if mount.kind != "bind" && !has("bind") && !has("rbind") {
        if mount.is_made_by_guest() {
            return Ok(None);
        }
        let access = if is_read_only { "" } else { " that can be written to" };
        return refused(&format!("a volume{access} ({} mount at {target:?})", mount.kind));
    }
    let source = absolute("the source of a volume", &mount.source)?;
    if has("shared") || has("rshared") {
        return refused(&format!("a volume whose mounts are shared ({target:?})"));
    }
    if has("slave") || has("rslave") {
        return refused(&format!("a volume with the host's later mounts in it ({target:?})"));
    }
    let kind = match known(&source, pod) {
        Some(kind) => kind,
        None if is_read_only => VolumeKind::Copy,
        None => {
            return refused(&format!(
                "a volume of the host that can be written to ({} at {target:?})",
                source.display()
            ));
        }
    };
    let checked = VolumeMount {
        volume: 0,
        file: None,
        part: None,
        target: target.to_owned(),
        read_only: true,
    };
    checked.check().map_err(|error| Error::invalid(format_args!("a volume: {error}")))?;
    Ok(Some(Volume { target: target.to_owned(), source, kind, is_read_only }))
}

/// What kubelet and containerd make for this pod, by the names that they give it. What has such names below others' is
/// the host's, as all else.
fn known(source: &Path, pod: &Names<'_>) -> Option<VolumeKind> {
    let name = |part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    };
    let names: Vec<&str> = source.components().filter_map(name).collect();
    match names.as_slice() {
        [.., "pods", uid, "volumes", "kubernetes.io~empty-dir", _] if pod.uid == Some(*uid) => {
            Some(VolumeKind::Shared)
        }
        [.., "sandboxes", id, "shm"] if pod.id == Some(*id) => Some(VolumeKind::Shared),
        [.., "pods", uid, "volume-subpaths", _, _, _] if pod.uid == Some(*uid) => {
            Some(VolumeKind::Part)
        }
        // Each container has one of its own, and may write to it.
        [.., "pods", uid, "etc-hosts"] if pod.uid == Some(*uid) => Some(VolumeKind::Copy),
        [.., "sandboxes", id, "hosts" | "hostname" | "resolv.conf"] if pod.id == Some(*id) => {
            Some(VolumeKind::Copy)
        }
        // Where kubelet reads why a container has ended.
        [.., "pods", uid, "containers", _, _] if pod.uid == Some(*uid) => Some(VolumeKind::Report),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
