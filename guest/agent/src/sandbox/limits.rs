//! What programs of an instance read of its limits: its own cgroup, at `/sys/fs/cgroup`.
//!
//! It is the root of the instance's cgroup namespace, so nothing of others is in it, and it can only be read. What it
//! says of memory is what an instance in a partition has outside of that, 8 MiB for example; runtimes size their heaps
//! by it. So files of ours are in its place (docs/adr/0068).

use super::{Plan, tree::Tree};
use crate::{file_system::MEMORY_LIMIT, init::mount_filesystem};
use rustix::mount::MountFlags;
use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Where it is in the new root.
const CGROUP: &str = "sys/fs/cgroup";
/// What says how much memory is charged to it, and nothing of what is in a partition. Programs that cannot read this count
/// what they have themselves.
const CHARGED: [&str; 4] = ["memory.current", "memory.peak", "memory.stat", "memory.numa_stat"];
/// A file that nobody can read, beside the new root.
const CLOSED: &str = "../closed";
/// A file with [`CONTROLLERS`], beside the new root.
const LISTED: &str = "../cgroups";
/// What `/proc/cgroups` says of a kernel that has all the controllers that JDKs look for there before they look at
/// `/sys/fs/cgroup`, as those before JDK-8349988 do. Ours has no `cpuacct`, of which nothing is in version 2.
const CONTROLLERS: &str = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n\
    cpuset\t0\t1\t1\n\
    cpu\t0\t1\t1\n\
    cpuacct\t0\t1\t1\n\
    memory\t0\t1\t1\n\
    pids\t0\t1\t1\n";

/// Shows them in the new root, which is the working directory.
pub fn show(plan: &Plan) -> io::Result<()> {
    let closed = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    mount_filesystem("cgroup2", "cgroup2", CGROUP, closed, "")?;
    make(LISTED, 0o444, CONTROLLERS)?;
    put(LISTED, "proc/cgroups")?;
    if plan.is_in_partition() {
        // The agent has made it, and writes to it when the limit changes.
        put(&format!("../{MEMORY_LIMIT}"), &format!("{CGROUP}/memory.max"))?;
        make(CLOSED, 0, "")?;
        for name in CHARGED {
            let place = format!("{CGROUP}/{name}");
            // Only kernels with NUMA have the last one.
            if Path::new(&place).try_exists()? {
                put(CLOSED, &place)?;
            }
        }
    }
    Ok(())
}

fn make(file: &str, mode: u32, content: &str) -> io::Result<()> {
    let mut made = OpenOptions::new().write(true).create_new(true).mode(mode).open(file)?;
    made.write_all(content.as_bytes())
}

/// Has this file in the place of another one, for reading.
fn put(file: &str, place: &str) -> io::Result<()> {
    Tree::of(file)
        .and_then(Tree::read_only)
        .and_then(|tree| tree.put_at(place))
        .map_err(|error| io::Error::new(error.kind(), format!("/{place}: {error}")))
}
