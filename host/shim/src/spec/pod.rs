//! Pods.

use super::{UID, absolute, cgroup, document::Document, refused};
use crate::{
    Id,
    cgroup::MOST_SHARES,
    error::{Error, Result},
};
use squeezy_protocol::InstanceSpec;
use squeezy_requests::{ObjectName, PodName};
use std::{path::PathBuf, time::Duration};

const NAMESPACE: &str = "io.kubernetes.cri.sandbox-namespace";
const NAME: &str = "io.kubernetes.cri.sandbox-name";
const POD_MEMORY: &str = "io.kubernetes.cri.sandbox-memory";
const POD_SHARES: &str = "io.kubernetes.cri.sandbox-cpu-shares";
const VM: &str = "dev.squeezy/vm";
const FREEZE_AFTER: &str = "dev.squeezy/freeze-after";
const FROZEN_REQUEST: &str = "dev.squeezy/frozen-request";
/// The longest time that a pod can ask for, in seconds.
const MAX_FREEZE_AFTER_S: u64 = 86400;
/// The shortest one if it requests what it occupies then: each time costs the cluster several writes.
const MIN_REQUEST_AFTER: Duration = Duration::from_secs(10);

/// What decides where a pod goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its memory limit in bytes.
    pub memory_bytes: u64,
    /// What it gets of the processors where they are short, in shares of 1024 for each; 0 if nothing is said.
    pub cpu_shares: u64,
    /// The control group of all pods, from where groups are mounted, if kubelet has made it.
    pub cgroup_of_pods: Option<PathBuf>,
    /// The namespace of Kubernetes; empty without Kubernetes.
    pub kubernetes_namespace: String,
    /// The VM that it asks for within its namespace.
    pub vm: String,
    /// The network namespace that was made for it.
    pub network: Option<PathBuf>,
    /// Its host name, if it has one.
    pub host_name: Option<String>,
    /// How it is frozen when it has nothing to do; never without.
    pub freeze: Option<Freeze>,
}

/// How a pod is frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// How long it has nothing to do before.
    pub after: Duration,
    /// The pod in its cluster, if it requests what it occupies then.
    pub requests_occupied: Option<PodName>,
}

/// The pod of a spec.
pub(super) fn pod(document: &Document) -> Result<Pod> {
    let annotation = |name: &str| document.annotations.get(name).map(String::as_str);
    // What is 0 or negative is not set.
    let number = |name: &str| match annotation(name) {
        Some(text) => {
            text.parse::<i64>().map_err(|_| Error::invalid(format_args!("{name} is no number")))
        }
        None => Ok(0),
    };
    // Both count in bytes.
    let memory_bytes = [Some(number(POD_MEMORY)?), document.linux.resources.memory.limit]
        .into_iter()
        .flatten()
        .find_map(|bytes| u64::try_from(bytes).ok().filter(|bytes| *bytes > 0))
        .ok_or_else(|| {
            Error::invalid(
                "the pod has no memory limit, and its partition would have no size: set resources.limits.memory of \
                 each container",
            )
        })?;
    let cpu_shares = u64::try_from(number(POD_SHARES)?).unwrap_or(0).min(MOST_SHARES);
    let name = |annotated: &str| -> Result<String> {
        Ok(annotated
            .parse::<Id>()
            .map_err(|error| Error::invalid(format_args!("annotation {VM}: {error}")))?
            .to_string())
    };
    check_host(document)?;
    let network = document.linux.namespaces.iter().find(|namespace| namespace.kind == "network");
    Ok(Pod {
        memory_bytes,
        cpu_shares,
        cgroup_of_pods: cgroup::of_pods(&document.linux.cgroup),
        kubernetes_namespace: match annotation(NAMESPACE) {
            Some(namespace) => namespace.parse::<Id>()?.to_string(),
            None => String::new(),
        },
        vm: name(annotation(VM).unwrap_or("default"))?,
        network: match network.map(|namespace| namespace.path.as_str()) {
            None | Some("") => None,
            Some(path) => Some(absolute("the pod's network namespace", path)?),
        },
        host_name: host_name(&document.hostname)?,
        freeze: freeze(document)?,
    })
}

/// Refuses what a pod would have of the host, which a VM has not, and settings of its kernel.
fn check_host(document: &Document) -> Result<()> {
    let namespaces = &document.linux.namespaces;
    for (kind, what) in [
        ("network", "the host's network (hostNetwork)"),
        ("ipc", "the host's IPC (hostIPC)"),
        ("pid", "the host's processes (hostPID)"),
    ] {
        if !namespaces.iter().any(|namespace| namespace.kind == kind) {
            return refused(what);
        }
    }
    let is_given = |(name, value): (&String, &String)| match name.as_str() {
        "net.ipv4.ip_unprivileged_port_start" => value == "0",
        // containerd lets all users ping. There is nobody to ping.
        "net.ipv4.ping_group_range" => true,
        _ => false,
    };
    match document.linux.sysctl.iter().find(|sysctl| !is_given(*sysctl)) {
        Some((name, value)) => refused(&format!("sysctl {name:?} = {value:?}")),
        None => Ok(()),
    }
}

fn freeze(document: &Document) -> Result<Option<Freeze>> {
    let annotation = |name: &str| document.annotations.get(name).map(String::as_str);
    let after = annotation(FREEZE_AFTER).map(freeze_after).transpose()?;
    let is_occupied = match annotation(FROZEN_REQUEST) {
        None => false,
        Some("occupied") => true,
        Some(other) => {
            return Err(Error::invalid(format_args!(
                "annotation {FROZEN_REQUEST} is {other:?}: it can be \"occupied\""
            )));
        }
    };
    let Some(after) = after else {
        return match is_occupied {
            true => Err(Error::invalid(format_args!(
                "annotation {FROZEN_REQUEST} is for pods that are frozen: add {FREEZE_AFTER}"
            ))),
            false => Ok(None),
        };
    };
    if is_occupied && after < MIN_REQUEST_AFTER {
        return Err(Error::invalid(format_args!(
            "annotation {FREEZE_AFTER} is {}: with {FROZEN_REQUEST} it is at least {}",
            after.as_secs(),
            MIN_REQUEST_AFTER.as_secs()
        )));
    }
    let name = |of: &str| -> Result<ObjectName> {
        let found =
            annotation(of).ok_or_else(|| format!("it is missing, and {FROZEN_REQUEST} needs it"));
        found
            .and_then(str::parse)
            .map_err(|error| Error::invalid(format_args!("annotation {of}: {error}")))
    };
    let pod = || -> Result<PodName> {
        Ok(PodName { namespace: name(NAMESPACE)?, name: name(NAME)?, uid: name(UID)? })
    };
    let requests_occupied = is_occupied.then(pod).transpose()?;
    Ok(Some(Freeze { after, requests_occupied }))
}

fn freeze_after(seconds: &str) -> Result<Duration> {
    let number = Some(seconds).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = number.and_then(|text| text.parse().ok());
    let number = number.filter(|number| (1..=MAX_FREEZE_AFTER_S).contains(number));
    number.map(Duration::from_secs).ok_or_else(|| {
        Error::invalid(format_args!(
            "annotation {FREEZE_AFTER} is {seconds:?}: it is a number of seconds from 1 to {MAX_FREEZE_AFTER_S}"
        ))
    })
}

fn host_name(name: &str) -> Result<Option<String>> {
    if name.len() > InstanceSpec::MAX_HOST_NAME_BYTES || name.contains('\0') {
        return Err(Error::invalid(format_args!(
            "the host name has more than {} bytes, or one of them is zero",
            InstanceSpec::MAX_HOST_NAME_BYTES
        )));
    }
    Ok(Some(name.to_owned()).filter(|name| !name.is_empty()))
}
