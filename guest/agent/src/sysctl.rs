//! Kernel settings, made at boot.
//!
//! Several of the kernel's limits are global, so one instance that reached such a limit would block all
//! others. Those are raised out of reach: an instance is bounded by its cgroup, its users' limits or its
//! namespaces (`docs/threat-model.md`), and the sum over all instances stays below the global limits.

use crate::console;
use std::{fs, io};

/// Files under `/proc/sys`, and what they are set to.
const SETTINGS: &[(&str, &str)] = &[
    // Open files; each is charged to its cgroup's memory.
    ("fs/file-max", "9223372036854775807"),
    // aio requests. Their rings are charged to their cgroup's memory.
    ("fs/aio-max-nr", "1073741824"),
    // Threads and thread IDs: four times what 1,024 instances can have with their `pids.max`.
    ("kernel/threads-max", "4194304"),
    ("kernel/pid_max", "4194304"),
    // Pages of socket buffers (low, pressure, maximum): they are charged to their cgroup's memory.
    ("net/ipv4/tcp_mem", "1073741824 1073741824 1073741824"),
    ("net/ipv4/udp_mem", "1073741824 1073741824 1073741824"),
    // Orphaned connections: closed by their process, but not finished. Beyond the limit they are reset, which
    // would cut off the answer of a server that closes right after sending it.
    ("net/ipv4/tcp_max_orphans", "1073741824"),
    // What is received is freed at once, and not when the processor that has sent it comes to it: that can be minutes,
    // and a page of a file in memory that was sent (sendfile) would keep a partition from going back for as long.
    ("net/core/skb_defer_max", "0"),
    // Terminals: each root has a limit of its own, and the agent makes one for each process with one.
    ("kernel/pty/max", "1048576"),
    // Namespaces, of which the agent creates one of each kind per instance. Instances themselves may not
    // create any (`sandbox::user`).
    ("user/max_cgroup_namespaces", "65536"),
    ("user/max_ipc_namespaces", "65536"),
    ("user/max_mnt_namespaces", "65536"),
    ("user/max_net_namespaces", "65536"),
    ("user/max_pid_namespaces", "65536"),
    ("user/max_user_namespaces", "65536"),
    ("user/max_uts_namespaces", "65536"),
    // The kernel's messages reveal things about other instances. A process that crashes leaves none: the
    // agent reports it.
    ("kernel/dmesg_restrict", "1"),
    ("kernel/kptr_restrict", "2"),
    ("debug/exception-trace", "0"),
    // Do not create a tunnel device of every kind in each new network namespace.
    ("net/core/fb_tunnels_only_for_init_net", "2"),
    // Only warnings and worse go to the console. virtio-mem prints two lines per resize, and a serial console
    // takes milliseconds per line, during which the resize waits.
    ("kernel/printk", "5"),
];

/// Applies all settings that this kernel has.
pub fn set_all() {
    for (name, value) in SETTINGS {
        if let Err(error) = fs::write(format!("/proc/sys/{name}"), value)
            && error.kind() != io::ErrorKind::NotFound
        {
            console!("setting {name} to {value}: {error}");
        }
    }
}
