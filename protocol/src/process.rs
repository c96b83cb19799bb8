//! What the processes of an instance may do and use, with the names of OCI's runtime specification.

use serde::{Deserialize, Serialize, de::value};

/// What processes may do beyond what every user may: nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Privileges {
    /// The capabilities that user 0 has, and that nobody has more than.
    #[serde(default)]
    pub capabilities: Vec<Capability>,
    /// Whether executing a program can give a process more than it had, within these: what the program's owner or
    /// group may, or what the file says. Otherwise `no_new_privs` is set.
    #[serde(default)]
    pub gained: bool,
}

/// A capability that an instance may have, with its number in `linux/capability.h`. It holds in the instance's own user
/// namespace alone: for its files and its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "capabilities(7) describes them")]
pub enum Capability {
    Chown = 0,
    DacOverride = 1,
    Fowner = 3,
    Fsetid = 4,
    Kill = 5,
    Setgid = 6,
    Setuid = 7,
    Setpcap = 8,
    NetBindService = 10,
    NetRaw = 13,
    SysChroot = 18,
    Mknod = 27,
    AuditWrite = 29,
    Setfcap = 31,
}

impl Capability {
    /// The one of this name, `CAP_...`, if an instance may have it.
    pub fn named(name: &str) -> Option<Self> {
        from_name(name.strip_prefix("CAP_")?)
    }

    /// Its bit in a set.
    pub fn bit(self) -> u64 {
        1 << self as u32
    }
}

/// A limit of a process. It is never above what the guest gives every process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceLimit {
    /// Of what.
    pub resource: Resource,
    /// What it is at first.
    pub soft: u64,
    /// What the process may raise it to. The largest number is none.
    pub hard: u64,
}

impl ResourceLimit {
    /// Most of a process: one for each resource.
    pub const MAX_COUNT: usize = 16;
}

/// What a process uses, in the unit of setrlimit(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "setrlimit(2) describes them")]
pub enum Resource {
    As,
    Core,
    Cpu,
    Data,
    Fsize,
    Locks,
    Memlock,
    Msgqueue,
    Nice,
    Nofile,
    Nproc,
    Rss,
    Rtprio,
    Rttime,
    Sigpending,
    Stack,
}

impl Resource {
    /// The one of this name, `RLIMIT_...`.
    pub fn named(name: &str) -> Option<Self> {
        from_name(name.strip_prefix("RLIMIT_")?)
    }
}

fn from_name<'a, T: Deserialize<'a>>(name: &'a str) -> Option<T> {
    T::deserialize(value::BorrowedStrDeserializer::<value::Error>::new(name)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_and_resources_have_the_kernels_names() {
        for (name, number) in [
            ("CAP_CHOWN", 0),
            ("CAP_NET_BIND_SERVICE", 10),
            ("CAP_AUDIT_WRITE", 29),
            ("CAP_SETFCAP", 31),
        ] {
            assert_eq!(Capability::named(name).map(Capability::bit), Some(1 << number), "{name}");
        }
        assert_eq!(Resource::named("RLIMIT_NOFILE"), Some(Resource::Nofile));
        for name in ["CAP_SYS_ADMIN", "CHOWN", "cap_chown", "CAP_", ""] {
            assert_eq!(Capability::named(name), None, "{name}");
        }
        assert_eq!(Resource::named("NOFILE"), None);
    }
}
