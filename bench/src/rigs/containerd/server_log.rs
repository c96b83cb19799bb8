//! What the shim's servers say in their logs.

use crate::error::{BenchError, Result};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where the shim keeps a directory for each containerd, with logs in it.
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
    /// From the end of the pod until its memory was the host's.
    pub(crate) after_us: u64,
    /// From the request for it.
    pub(crate) latency_us: u64,
}

/// What the VMs of all servers are that run, and of the last ones that have ended.
pub(crate) fn booted() -> Result<Vec<Booted>> {
    Ok(lines()?.iter().filter_map(|line| of_boot(line)).collect())
}

/// Which pods' memory they have given back.
pub(crate) fn back() -> Result<Vec<Back>> {
    Ok(lines()?.iter().filter_map(|line| of_memory(line)).collect())
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
    let number = |name| value(line, name)?.parse().ok();
    Some(Back { after_us: number("after_us")?, latency_us: number("latency_us")? })
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

fn lines() -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for registry in entries(Path::new(STATE))? {
        for file in entries(&registry.join("servers"))? {
            if file.extension().is_some_and(|extension| extension == "log") {
                // It goes when its server has ended, and many others after that.
                let text = fs::read_to_string(file).unwrap_or_default();
                lines.extend(text.lines().map(str::to_owned));
            }
        }
    }
    Ok(lines)
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).map_err(|error| BenchError::file(directory, error))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
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
        let line = "2026-11-27T17:00:00.123456Z  INFO the memory of a pod is back after_us=3000 latency_us=2100";
        assert_eq!(of_memory(line), Some(Back { after_us: 3000, latency_us: 2100 }));
        assert_eq!(of_memory(&line.replace("2100", "soon")), None);
        assert_eq!((of_boot(line), of_memory("the memory of a pod is back")), (None, None));
    }
}
