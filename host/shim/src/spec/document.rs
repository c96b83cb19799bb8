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
    pub(super) linux: Linux,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Process {
    pub(super) terminal: bool,
    pub(super) user: User,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<String>,
    pub(super) cwd: String,
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
}

impl Mount {
    /// Whether each container has it anyway.
    pub(super) fn is_made_by_guest(&self) -> bool {
        match self.kind.as_str() {
            "proc" | "sysfs" | "devpts" | "mqueue" | "cgroup" | "cgroup2" => true,
            "tmpfs" => ["/dev", "/dev/shm", "/run"].contains(&self.destination.as_str()),
            _ => false,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Linux {
    pub(super) resources: Resources,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) devices: Vec<Device>,
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
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Memory {
    pub(super) limit: Option<i64>,
}
