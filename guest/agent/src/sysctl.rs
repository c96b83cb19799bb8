//! What the kernel is told at boot.
//!
//! Several of its limits hold for the whole machine, so that whoever reaches one stops everybody else.
//! Those are raised until they are out of reach: what an instance can have is bounded by its cgroup,
//! its users' limits or its namespaces (`docs/threat-model.md`), and the sum over all instances stays
//! below.

use crate::console;
use std::{fs, io};

/// Files under `/proc/sys`, and what they are set to.
const SETTINGS: &[(&str, &str)] = &[
    // Open files; each is charged to its cgroup's memory.
    ("fs/file-max", "9223372036854775807"),
    // Requests of aio. Their rings are charged to their cgroup's memory.
    ("fs/aio-max-nr", "1073741824"),
    // Threads and their numbers: 1,024 instances with as many as `pids.max` allows, four times over.
    ("kernel/threads-max", "4194304"),
    ("kernel/pid_max", "4194304"),
    // Pages of socket buffers (low, pressure, most): they are charged to their cgroup's memory.
    ("net/ipv4/tcp_mem", "1073741824 1073741824 1073741824"),
    ("net/ipv4/udp_mem", "1073741824 1073741824 1073741824"),
    // Connections that no process has any more and that are not over. Beyond, they are reset, which
    // would take the end of its answer from a server that closes at once.
    ("net/ipv4/tcp_max_orphans", "1073741824"),
    // Namespaces that the agent makes, one of a kind for each instance. Instances themselves may make
    // none (`sandbox::user`).
    ("user/max_cgroup_namespaces", "65536"),
    ("user/max_ipc_namespaces", "65536"),
    ("user/max_mnt_namespaces", "65536"),
    ("user/max_net_namespaces", "65536"),
    ("user/max_pid_namespaces", "65536"),
    ("user/max_user_namespaces", "65536"),
    ("user/max_uts_namespaces", "65536"),
    // The kernel's messages tell of others. A process that crashes writes none: the agent says so.
    ("kernel/dmesg_restrict", "1"),
    ("kernel/kptr_restrict", "2"),
    ("debug/exception-trace", "0"),
    // A new network namespace comes without a tunnel device of each kind that the kernel knows.
    ("net/core/fb_tunnels_only_for_init_net", "2"),
    // Only warnings and worse go to the console. virtio-mem says two lines on each resize, and a serial
    // console takes milliseconds for a line, in which the resize waits.
    ("kernel/printk", "5"),
];

/// Sets all that this kernel has.
pub fn set_all() {
    for (name, value) in SETTINGS {
        if let Err(error) = fs::write(format!("/proc/sys/{name}"), value)
            && error.kind() != io::ErrorKind::NotFound
        {
            console!("setting {name} to {value}: {error}");
        }
    }
}
