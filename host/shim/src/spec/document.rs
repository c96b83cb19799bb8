//! `config.json` as it is written; names are those of the OCI runtime specification.

use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Document {
    pub(super) process: Option<Process>,
    pub(super) root: Root,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) mounts: Vec<Mount>,
    pub(super) hooks: Map<String, Value>,
    pub(super) hostname: String,
    pub(super) linux: Linux,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Process {
    pub(super) terminal: bool,
    #[serde(rename = "consoleSize")]
    pub(super) terminal_size: Option<Size>,
    pub(super) user: User,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<String>,
    pub(super) cwd: String,
    pub(super) capabilities: Capabilities,
    #[serde(rename = "noNewPrivileges")]
    pub(super) no_new_privileges: bool,
    pub(super) rlimits: Vec<Rlimit>,
    #[serde(rename = "oomScoreAdj")]
    pub(super) oom_score_adj: i32,
    #[serde(rename = "apparmorProfile")]
    pub(super) apparmor_profile: String,
}

/// The other sets follow from these when a program is executed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Capabilities {
    pub(super) bounding: Vec<String>,
    pub(super) ambient: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Rlimit {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) soft: u64,
    pub(super) hard: u64,
}

/// In characters.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Size {
    pub(super) width: u64,
    pub(super) height: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
    #[serde(rename = "additionalGids")]
    pub(super) other_gids: Vec<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Root {
    pub(super) readonly: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Mount {
    pub(super) destination: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) source: String,
    pub(super) options: Vec<String>,
}

impl Mount {
    pub(super) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|has| has == option)
    }

    /// Whether it is that of control groups, for reading.
    pub(super) fn is_cgroup(&self) -> bool {
        ["cgroup", "cgroup2"].contains(&self.kind.as_str())
            && self.destination == "/sys/fs/cgroup"
            && self.has("ro")
    }

    /// Whether it is that of message queues.
    pub(super) fn is_message_queues(&self) -> bool {
        self.kind == "mqueue" && self.destination == "/dev/mqueue"
    }

    /// Whether it is made in the VM: most of these each container has anyway.
    pub(super) fn is_made_by_guest(&self) -> bool {
        match self.kind.as_str() {
            "proc" | "sysfs" | "devpts" => true,
            "tmpfs" => ["/dev", "/dev/shm", "/run"].contains(&self.destination.as_str()),
            _ => self.is_cgroup() || self.is_message_queues(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Linux {
    pub(super) resources: Resources,
    #[serde(rename = "cgroupsPath")]
    pub(super) cgroup: String,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) devices: Vec<Device>,
    pub(super) sysctl: BTreeMap<String, String>,
    #[serde(rename = "maskedPaths")]
    pub(super) masked_paths: Vec<String>,
    #[serde(rename = "readonlyPaths")]
    pub(super) readonly_paths: Vec<String>,
    pub(super) seccomp: Option<Seccomp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Seccomp {
    #[serde(rename = "defaultAction")]
    pub(super) default_action: String,
    #[serde(rename = "defaultErrnoRet")]
    pub(super) default_errno: Option<u32>,
    pub(super) syscalls: Vec<SystemCalls>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SystemCalls {
    pub(super) names: Vec<String>,
    pub(super) action: String,
    #[serde(rename = "errnoRet")]
    pub(super) errno: Option<u32>,
    pub(super) args: Vec<Argument>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Argument {
    pub(super) index: u8,
    pub(super) value: u64,
    #[serde(rename = "valueTwo")]
    pub(super) second_value: u64,
    pub(super) op: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Namespace {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Device {
    pub(super) path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Resources {
    pub(super) memory: Memory,
    pub(super) cpu: Cpu,
}

/// Of time on processors: shares of 1024 for each, and microseconds in each period of so many.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Cpu {
    pub(super) shares: Option<u64>,
    pub(super) quota: Option<i64>,
    pub(super) period: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Memory {
    pub(super) limit: Option<i64>,
}
