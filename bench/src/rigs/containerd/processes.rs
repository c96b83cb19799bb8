//! The processes that stand for pods on the host, and what they hold.

use crate::error::{BenchError, Result};
use std::{fs, path::PathBuf};

/// What a process is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Answers containerd for the pods of a VM.
    Server,
    /// Stands for one pod.
    Holder,
    Vmm,
}

/// A process that runs.
pub(crate) struct Process {
    pub(crate) role: Role,
    directory: PathBuf,
}

/// All of these processes in this PID namespace.
pub(crate) fn processes() -> Result<Vec<Process>> {
    let entries = fs::read_dir("/proc").map_err(|error| BenchError::file("/proc", error))?;
    let process = |directory: PathBuf| {
        // One may have ended in the meantime.
        let command = fs::read(directory.join("cmdline")).ok()?;
        Some(Process { role: role(&command)?, directory })
    };
    Ok(entries.flatten().filter_map(|entry| process(entry.path())).collect())
}

/// The role of a process with this command line, whose arguments end with a NUL each.
fn role(command: &[u8]) -> Option<Role> {
    let mut arguments = command.split(|byte| *byte == 0);
    let program = arguments.next()?;
    let name = program.rsplit(|byte| *byte == b'/').next()?;
    match (name, arguments.next()) {
        (b"containerd-shim-squeezy-v2", Some(b"serve")) => Some(Role::Server),
        (b"squeezy-pod", _) => Some(Role::Holder),
        (name, _) if name.starts_with(b"qemu-system-") => Some(Role::Vmm),
        _ => None,
    }
}

impl Process {
    /// Its resident memory, in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        self.kibibytes("status", "VmRSS:")
    }

    /// The most that it has had resident, in bytes.
    pub(crate) fn most_resident_bytes(&self) -> Result<u64> {
        self.kibibytes("status", "VmHWM:")
    }

    /// Its resident memory, in bytes, of which it has only its part of what it shares with others.
    pub(crate) fn proportional_bytes(&self) -> Result<u64> {
        self.kibibytes("smaps_rollup", "Pss:")
    }

    fn kibibytes(&self, file: &str, name: &str) -> Result<u64> {
        let path = self.directory.join(file);
        let text = fs::read_to_string(&path).map_err(|error| BenchError::file(&path, error))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
        number
            .map(|kibibytes: u64| kibibytes << 10)
            .ok_or_else(|| BenchError::file(path, format!("it has no {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_command_line() {
        for (command, expected) in [
            (&b"containerd-shim-squeezy-v2\0serve\0/run/squeezy\0"[..], Some(Role::Server)),
            (b"containerd-shim-squeezy-v2\0start\0", None),
            (b"squeezy-pod\0hold\0", Some(Role::Holder)),
            (b"/usr/bin/qemu-system-x86_64\0-nodefaults\0", Some(Role::Vmm)),
            (b"bash\0containerd-shim-squeezy-v2\0serve\0", None),
            (b"", None),
        ] {
            assert_eq!(role(command), expected);
        }
    }

    #[test]
    fn what_a_process_holds_is_more_than_its_part_of_it() {
        let own = Process { role: Role::Server, directory: "/proc/self".into() };
        let (resident, part) = (own.resident_bytes().unwrap(), own.proportional_bytes().unwrap());
        assert!(resident > 1 << 20 && part > 1 << 18 && part <= resident + (1 << 20));
        assert!(own.kibibytes("status", "Nonsense:").unwrap_err().to_string().contains("Nonsense"));
    }
}
