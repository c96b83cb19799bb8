//! What the shim's servers say in their logs.

use super::failed;
use crate::error::{BenchError, Result};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where the shim keeps a directory for each namespace of each containerd, with its servers' logs and, for each pod, the
/// name of its server.
const STATE: &str = "/run/squeezy/shim";

/// What a server says of its VM once it has booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Booted {
    pub(crate) accelerator: String,
    pub(crate) memory_backend: String,
    pub(crate) kernel: String,
    pub(crate) vmm: String,
}

/// What a server says when it has given back the memory of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Back {
    /// How long the pod had no container when it ended.
    pub(crate) empty_us: u64,
    /// From the end of the pod until its memory was the host's.
    pub(crate) after_us: u64,
    /// From the request for it.
    pub(crate) latency_us: u64,
}

/// What a server says when it has given back what is free in a pod that has no container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Freed {
    /// How long it had none when that began.
    pub(crate) empty_us: u64,
    /// From then on until it was the host's.
    pub(crate) latency_us: u64,
    /// How much that was, without what the host had taken before.
    pub(crate) bytes: u64,
}

/// The log of the server of a pod, after those of earlier servers with the same name.
pub(crate) struct ServerLog {
    /// The pod's id.
    pod: String,
    path: PathBuf,
}

impl ServerLog {
    /// That of a pod that is there, by its id.
    pub(super) fn of_pod(id: &str) -> Result<Self> {
        Self::of_pod_in(Path::new(STATE), id)
    }

    fn of_pod_in(state: &Path, id: &str) -> Result<Self> {
        let registries = fs::read_dir(state).map_err(|error| BenchError::file(state, error))?;
        for registry in registries.flatten().map(|entry| entry.path()) {
            if let Ok(server) = fs::read_to_string(registry.join("pods").join(id)) {
                let path = registry.join("servers").join(format!("{server}.log"));
                return Ok(Self { pod: id.to_owned(), path });
            }
        }
        Err(failed(id, "no server of the shim has it".to_owned()))
    }

    /// What the VM is like.
    pub(crate) fn booted(&self) -> Result<Booted> {
        let missing =
            || failed(&self.pod, "its server does not say that the VM has booted".to_owned());
        self.all(of_boot)?.pop().ok_or_else(missing)
    }

    /// Which pods' memory the server has given back.
    pub(crate) fn back(&self) -> Result<Vec<Back>> {
        self.all(of_memory)
    }

    /// Of which pods without containers it has given back what was free.
    pub(crate) fn freed(&self) -> Result<Vec<Freed>> {
        self.all(of_free_memory)
    }

    fn all<T>(&self, of: fn(&str) -> Option<T>) -> Result<Vec<T>> {
        let text = fs::read_to_string(&self.path);
        let text = text.map_err(|error| failed(&self.pod, format!("its server's log: {error}")))?;
        Ok(text.lines().filter_map(of).collect())
    }
}

fn of_boot(line: &str) -> Option<Booted> {
    let (_, line) = line.split_once("the VM has booted")?;
    let text = |name| value(line, name).map(|value| value.trim_matches('"').to_owned());
    Some(Booted {
        accelerator: text("accelerator")?,
        memory_backend: text("memory_backend")?,
        kernel: text("kernel")?,
        vmm: text("vmm")?,
    })
}

fn of_memory(line: &str) -> Option<Back> {
    let (_, line) = line.split_once("the memory of a pod is back")?;
    Some(Back {
        empty_us: number(line, "empty_us")?,
        after_us: number(line, "after_us")?,
        latency_us: number(line, "latency_us")?,
    })
}

fn of_free_memory(line: &str) -> Option<Freed> {
    let (_, line) = line.split_once("the free memory of a pod is back")?;
    Some(Freed {
        empty_us: number(line, "empty_us")?,
        latency_us: number(line, "latency_us")?,
        bytes: number(line, "bytes")?,
    })
}

fn number(line: &str, name: &str) -> Option<u64> {
    value(line, name)?.parse().ok()
}

/// The value of `name=value`, which is in quotation marks if there are spaces in it.
fn value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(" {name}="))?;
    let end = match rest.strip_prefix('"') {
        Some(quoted) => quoted.find('"')? + 2,
        None => rest.find(' ').unwrap_or(rest.len()),
    };
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_understood() {
        let line = "2026-11-27T17:00:00.123456Z  INFO the VM has booted after=2.9s accelerator=tcg memory_backend=ram vmm=\"QEMU 7.2.22\" kernel=\"6.12.117\"";
        let expected = Booted {
            accelerator: "tcg".to_owned(),
            memory_backend: "ram".to_owned(),
            kernel: "6.12.117".to_owned(),
            vmm: "QEMU 7.2.22".to_owned(),
        };
        assert_eq!(of_boot(line), Some(expected));
        let line = "2026-11-27T17:00:00.123456Z  INFO the memory of a pod is back empty_us=40 after_us=3000 latency_us=2100 plugged_bytes=0";
        assert_eq!(of_memory(line), Some(Back { empty_us: 40, after_us: 3000, latency_us: 2100 }));
        assert_eq!(of_memory(&line.replace("2100", "soon")), None);
        assert_eq!((of_boot(line), of_free_memory(line)), (None, None));
        let line = "2026-11-27T17:00:00.123456Z  INFO the free memory of a pod is back empty_us=2000100 latency_us=900 bytes=4096";
        let expected = Freed { empty_us: 2_000_100, latency_us: 900, bytes: 4096 };
        assert_eq!(of_free_memory(line), Some(expected));
        assert_eq!((of_memory(line), of_memory("the memory of a pod is back")), (None, None));
    }

    #[test]
    fn the_log_that_is_read_is_that_of_the_pods_server() {
        let state = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = state.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let back = |after_us: u64| {
            format!(
                "INFO the memory of a pod is back empty_us=1 after_us={after_us} latency_us=1\n"
            )
        };
        write("a/pods/other", "1-0");
        write("a/servers/1-0.log", &back(1));
        write("b/pods/own", "2-0");
        write("b/servers/2-0.log", &(back(2) + &back(3)));
        // Of a server that has ended.
        write("b/servers/3-0.log", &back(4));
        let log = ServerLog::of_pod_in(state.path(), "own").unwrap();
        let after_us: Vec<u64> = log.back().unwrap().iter().map(|back| back.after_us).collect();
        assert_eq!(after_us, [2, 3]);
        assert!(log.booted().is_err());
        assert!(ServerLog::of_pod_in(state.path(), "gone").is_err());
    }
}
