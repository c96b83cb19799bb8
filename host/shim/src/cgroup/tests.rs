use super::*;
use proptest::prelude::*;
use std::{thread, time::Instant};
use tempfile::TempDir;

/// A tree of directories as of mounted control groups. Unlike those of the kernel, they have only the files that were
/// written, and cannot be removed with these: as if somebody were in them.
pub(super) struct Host {
    directory: TempDir,
}

impl Host {
    pub(super) fn with(groups: &[&str]) -> Self {
        let host = Self { directory: TempDir::new().unwrap() };
        for group in groups {
            fs::create_dir_all(host.path(group)).unwrap();
        }
        host
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A line of `mountinfo`.
    pub(super) fn mounted(&self, root: &str, place: &str, kind: &str, options: &str) -> String {
        let place = self.path(place);
        let place = place.display();
        format!("30 23 0:26 {root} {place} rw,nosuid shared:9 - {kind} {kind} rw,{options}\n")
    }

    pub(super) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

pub(super) fn enter(mounts: &str, own: &str, pods: &str) -> io::Result<Cgroup> {
    Cgroup::enter_in(mounts, own, Path::new(pods), "squeezy-ab-0-7")
}

/// The directory of the group that has processors.
fn directory(cgroup: &Cgroup) -> PathBuf {
    cgroup.processors.as_ref().unwrap().directory()
}

/// What the kernel does when nobody is in a group any more.
fn empty(group: &Path) {
    for entry in fs::read_dir(group).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

/// Whether a group is of a server that was killed.
fn is_waited_for(name: &str) -> bool {
    name.starts_with(&prefix(&ServerName::parse("ab-0").unwrap()))
}

#[test]
fn a_server_of_version_1_is_in_a_group_beside_those_of_pods() {
    let host = Host::with(&[
        "cpu,cpuacct/kubepods/burstable/pod1",
        "cpu,cpuacct/system.slice/containerd.service",
        "memory/kubepods/burstable/pod1",
        "memory/a",
    ]);
    let mounts = host.mounted("/", "memory", "cgroup", "memory")
        + &host.mounted("/", "cpu,cpuacct", "cgroup", "cpu,cpuacct")
        + &host.mounted("/", "unified", "cgroup2", "nsdelegate");
    let own = "5:memory:/a\n4:cpu,cpuacct:/system.slice/containerd.service\n0::/init.scope\n";
    let cgroup = enter(&mounts, own, "kubepods").unwrap();
    assert_eq!(
        cgroup.directories(),
        ["cpu,cpuacct", "memory"].map(|mount| host.path(mount).join("kubepods/squeezy-ab-0-7"))
    );
    assert_eq!(
        cgroup.processors.as_ref().unwrap().before,
        host.path("cpu,cpuacct/system.slice/containerd.service")
    );
    assert_eq!(host.text("cpu,cpuacct/kubepods/squeezy-ab-0-7/cgroup.procs"), "0");
    assert_eq!(cgroup.memory.as_ref().unwrap().before, host.path("memory/a"));
    assert_eq!(host.text("memory/kubepods/squeezy-ab-0-7/cgroup.procs"), "0");
    let shares = || host.text("cpu,cpuacct/kubepods/squeezy-ab-0-7/cpu.shares");
    assert_eq!(shares(), "1024");
    for (asked, given) in [(0, "512"), (600, "600"), (u64::MAX, "262144")] {
        cgroup.weigh(asked).unwrap();
        assert_eq!(shares(), given);
    }
}

#[test]
fn a_server_of_version_2_is_in_a_group_beside_those_of_pods() {
    let pods = "kubepods.slice";
    let host = Host::with(&[
        "all/kubepods.slice/kubepods-burstable.slice",
        "all/system.slice/containerd.service",
    ]);
    let mounts = host.mounted("/", "all", "cgroup2", "nsdelegate");
    let cgroup = enter(&mounts, "0::/system.slice/containerd.service\n", pods).unwrap();
    assert_eq!(
        cgroup.processors.as_ref().unwrap().before,
        host.path("all/system.slice/containerd.service")
    );
    assert_eq!(host.text("all/kubepods.slice/squeezy-ab-0-7/cgroup.procs"), "0");
    assert!(cgroup.memory.is_some());
    assert_eq!(cgroup.directories(), [host.path("all/kubepods.slice/squeezy-ab-0-7")]);
    let weight = || host.text("all/kubepods.slice/squeezy-ab-0-7/cpu.weight");
    assert_eq!(weight(), "39");
    // As kubelet has them for its pods.
    for (asked, given) in [(0, "20"), (1024, "39"), (2048, "79"), (u64::MAX, "10000")] {
        cgroup.weigh(asked).unwrap();
        assert_eq!(weight(), given);
    }
}

#[test]
fn what_is_mounted_last_is_where_groups_are() {
    let host = Host::with(&["covered/kubepods", "seen/kubepods", "without", "unified/kubepods"]);
    let mounts = host.mounted("/../..", "covered", "cgroup", "cpu")
        + &host.mounted("/", "seen", "cgroup", "cpu")
        + &host.mounted("/", "without", "cgroup", "cpu,cpuacct")
        + &host.mounted("/", "unified", "cgroup2", "");
    let cgroup = enter(&mounts, "1:cpu:/\n0::/\n", "kubepods").unwrap();
    assert_eq!(directory(&cgroup), host.path("seen/kubepods/squeezy-ab-0-7"));
}

#[test]
fn a_process_is_where_it_says_if_that_is_mounted() {
    let hierarchy = |root: &str| Hierarchy {
        controller: PROCESSORS,
        version: Version::One,
        root: root.into(),
        mount: "/sys/fs/cgroup/cpu".into(),
    };
    for (root, groups, group) in [
        ("/", "4:cpuset:/other\n3:cpuacct,cpu:/a.slice/b\n", "/sys/fs/cgroup/cpu/a.slice/b"),
        ("/a", "3:cpu:/a/b\n", "/sys/fs/cgroup/cpu/b"),
        ("/", "3:cpu:/\n", "/sys/fs/cgroup/cpu"),
        ("/a", "3:cpu:/b\n", "/sys/fs/cgroup/cpu"),
        ("/", "3:cpu:/../b\n", "/sys/fs/cgroup/cpu"),
        ("/", "0::/b\n", "/sys/fs/cgroup/cpu"),
        ("/", "", "/sys/fs/cgroup/cpu"),
    ] {
        assert_eq!(hierarchy(root).group_of(groups), Path::new(group), "{groups}");
    }
}

#[test]
fn where_kubelet_has_no_group_a_server_has_none() {
    let host = Host::with(&["cpu"]);
    for mounts in [host.mounted("/", "cpu", "cgroup", "cpu"), "nonsense\n".to_owned()] {
        let error = enter(&mounts, "1:cpu:/\n", "kubepods").unwrap_err();
        assert!(error.to_string().contains("is called kubepods"), "{error}");
    }
}

#[test]
fn where_memory_has_no_group_a_server_has_its_part_of_the_processors() {
    let host = Host::with(&["cpu/kubepods", "memory/kubepods"]);
    fs::write(host.path("memory/kubepods/squeezy-ab-0-7"), "").unwrap();
    let mounts = host.mounted("/", "cpu", "cgroup", "cpu")
        + &host.mounted("/", "memory", "cgroup", "memory");
    let cgroup = enter(&mounts, "1:cpu:/\n", "kubepods").unwrap();
    assert!(cgroup.memory.is_none());
    assert_eq!(host.text("cpu/kubepods/squeezy-ab-0-7/cgroup.procs"), "0");
}

#[test]
fn where_processors_have_no_group_the_memory_of_a_server_is_bounded() {
    let host = Host::with(&["memory/kubepods", "memory/before", "cpu/kubepods"]);
    fs::write(host.path("cpu/kubepods/squeezy-ab-0-7"), "").unwrap();
    let mounts = host.mounted("/", "cpu", "cgroup", "cpu")
        + &host.mounted("/", "memory", "cgroup", "memory");
    let cgroup = enter(&mounts, "1:memory:/before\n", "kubepods").unwrap();
    assert!(cgroup.processors.is_none());
    assert_eq!(host.text("memory/kubepods/squeezy-ab-0-7/cgroup.procs"), "0");
    cgroup.weigh(SHARES).unwrap();
    empty(&host.path("memory/kubepods/squeezy-ab-0-7"));
    cgroup.leave().unwrap();
    assert_eq!(host.text("memory/before/cgroup.procs"), "0");
}

#[test]
fn a_group_that_cannot_be_made_is_an_error_that_names_it() {
    let host = Host::with(&["cpu/kubepods"]);
    fs::write(host.path("cpu/kubepods/squeezy-ab-0-7"), "").unwrap();
    let mounts = host.mounted("/", "cpu", "cgroup", "cpu");
    let error = enter(&mounts, "1:cpu:/\n", "kubepods").unwrap_err();
    assert!(error.to_string().contains("kubepods/squeezy-ab-0-7"), "{error}");
}

#[test]
fn a_server_that_ends_waits_for_who_is_in_its_group_and_removes_it() {
    let host = Host::with(&["cpu/kubepods", "cpu/before", "memory/kubepods", "memory/before"]);
    let mounts = host.mounted("/", "cpu", "cgroup", "cpu")
        + &host.mounted("/", "memory", "cgroup", "memory");
    let cgroup = enter(&mounts, "2:memory:/before\n1:cpu:/before\n", "kubepods").unwrap();
    let directories = cgroup.directories();
    assert_eq!(directories.len(), 2);
    let last = {
        let directories = directories.clone();
        thread::spawn(move || {
            sleep(END_LIMIT / 5);
            directories.iter().for_each(|directory| empty(directory));
        })
    };
    cgroup.leave().unwrap();
    last.join().unwrap();
    assert_eq!(host.text("cpu/before/cgroup.procs"), "0");
    assert_eq!(host.text("memory/before/cgroup.procs"), "0");
    assert!(directories.iter().all(|directory| !directory.exists()));
}

#[test]
fn whoever_does_not_leave_keeps_his_group_until_the_next_server_comes() {
    let host = Host::with(&["cpu/kubepods"]);
    let mounts = host.mounted("/", "cpu", "cgroup", "cpu");
    let cgroup = enter(&mounts, "1:cpu:/\n", "kubepods").unwrap();
    let directory = directory(&cgroup);
    assert!(cgroup.leave().unwrap_err().to_string().contains("squeezy-ab-0-7"));
    empty(&directory);
    let name = "squeezy-cd-0-8";
    Cgroup::enter_in(&mounts, "1:cpu:/\n", Path::new("kubepods"), name).unwrap();
    assert!(!directory.exists());
}

#[test]
fn of_what_is_left_only_empty_groups_of_servers_are_removed() {
    let host = Host::with(&[
        "pods/squeezy-ab-0-7",
        "pods/squeezy-cd-0-8",
        "pods/squeezy-ef-0-9",
        "pods/podsqueezy",
    ]);
    fs::write(host.path("pods/squeezy-cd-0-8/cgroup.procs"), "").unwrap();
    remove_left_in(&host.path("pods"), is_waited_for).unwrap();
    let left = |name: &str| host.path(name).exists();
    assert!(!left("pods/squeezy-ab-0-7") && !left("pods/squeezy-ef-0-9"));
    assert!(left("pods/squeezy-cd-0-8") && left("pods/podsqueezy"));
}

#[test]
fn a_vm_that_is_about_to_end_is_waited_for_but_not_for_long() {
    let host = Host::with(&["pods/squeezy-ab-0-7"]);
    let group = host.path("pods/squeezy-ab-0-7");
    fs::write(group.join(PROCESSES), "").unwrap();
    let begin = Instant::now();
    let error = remove_left_in(&host.path("pods"), is_waited_for).unwrap_err();
    assert!(error.to_string().contains("pods/squeezy-ab-0-7"), "{error}");
    assert!(begin.elapsed() >= END_LIMIT && group.exists());
    let vm = {
        let group = group.clone();
        thread::spawn(move || {
            sleep(END_LIMIT / 5);
            empty(&group);
        })
    };
    remove_left_in(&host.path("pods"), is_waited_for).unwrap();
    vm.join().unwrap();
    assert!(!group.exists());
}

#[test]
fn kubelet_takes_no_group_of_a_server_for_one_of_a_pod() {
    // It looks for this in names, and removes what has no pod.
    assert!(!prefix(&ServerName::parse("ab-0").unwrap()).contains("pod"));
}

proptest! {
    #[test]
    fn whoever_asks_for_more_has_no_less(one in any::<u64>(), other in any::<u64>()) {
        let weight = |shares: u64| weight(shares.clamp(LEAST_SHARES, MOST_SHARES));
        prop_assert!((1..=10000).contains(&weight(one)));
        prop_assert!(one <= other || weight(one) >= weight(other));
    }
}
