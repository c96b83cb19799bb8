//! Where the control group of this process is.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The version of control groups that shares processors here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// A control group below which others can share its processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) version: Version,
    pub(super) directory: PathBuf,
}

impl Place {
    /// That of this process.
    pub(super) fn find() -> Result<Self, String> {
        let read = |path: &str| {
            fs::read_to_string(path).map_err(|error: io::Error| format!("{path}: {error}"))
        };
        let (own, mounts) = (read("/proc/self/cgroup")?, read("/proc/self/mountinfo")?);
        let second = directory(Version::Two, &own, &mounts);
        let second = second.filter(|path| has(path, "cgroup.controllers", "cpu"));
        let place = |version| move |directory| Self { version, directory };
        second
            .map(place(Version::Two))
            .or_else(|| directory(Version::One, &own, &mounts).map(place(Version::One)))
            .ok_or_else(|| {
                "its control group has no controller of processors; as a service of systemd, it needs Delegate=cpu"
                    .to_owned()
            })
    }
}

/// Whether a file of a group has a word.
pub(super) fn has(directory: &Path, name: &str, word: &str) -> bool {
    let text = fs::read_to_string(directory.join(name)).unwrap_or_default();
    text.split_whitespace().any(|each| each == word)
}

/// The directory of the group that a process is in, by its `cgroup` and `mountinfo` in /proc.
fn directory(version: Version, own: &str, mounts: &str) -> Option<PathBuf> {
    let own = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_it = match version {
            Version::One => controllers.split(',').any(|controller| controller == "cpu"),
            Version::Two => controllers.is_empty(),
        };
        is_it.then(|| Path::new(path))
    })?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        let mut kind = kind.split(' ');
        let (kind, options) = (kind.next()?, kind.nth(1)?);
        let is_it = match version {
            Version::One => kind == "cgroup" && options.split(',').any(|option| option == "cpu"),
            Version::Two => kind == "cgroup2",
        };
        // A container may see only a part of the tree.
        is_it.then(|| Some(Path::new(point).join(own.strip_prefix(root).ok()?))).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_where_it_is_mounted() {
        let first = "3:cpuset:/\n2:cpu,cpuacct:/docker/abc\n0::/system.slice/squeezy.service\n";
        let mounts = "\
            31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
            32 31 0:29 /docker /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = |version, own, mounts| directory(version, own, mounts);
        assert_eq!(found(Version::One, first, mounts), Some("/sys/fs/cgroup/cpu/abc".into()));
        let second = "/sys/fs/cgroup/unified/system.slice/squeezy.service";
        assert_eq!(found(Version::Two, first, mounts), Some(second.into()));
        assert_eq!(found(Version::One, "0::/\n", mounts), None);
        assert_eq!(found(Version::Two, first, "nonsense\n"), None);
        assert_eq!(found(Version::One, "2:cpu:/elsewhere\n", mounts), None);
    }
}
