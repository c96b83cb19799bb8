use super::*;
use crate::skip::skip;
use std::process::{Child, Stdio};

/// A file system of its own to stand in for version 2, which no test machine without systemd has.
fn second_version() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["cgroup.procs", "cgroup.subtree_control"] {
        fs::write(directory.path().join(name), "").unwrap();
    }
    fs::create_dir(directory.path().join(OWN)).unwrap();
    for name in ["cgroup.procs", "cpu.weight"] {
        fs::write(directory.path().join(OWN).join(name), "").unwrap();
    }
    directory
}

fn weight(weight: u32) -> NonZeroU32 {
    NonZeroU32::new(weight).unwrap()
}

#[test]
fn weights_are_in_proportion_and_never_too_large() {
    let directory = tempfile::tempdir().unwrap();
    let written = |version, of| {
        let name = if version == Version::One { "cpu.shares" } else { "cpu.weight" };
        fs::write(directory.path().join(name), "").unwrap();
        let directory = directory.path().to_owned();
        let group = CpuGroup { directory: directory.clone(), version, weight: AtomicU32::new(1) };
        group.set_weight(weight(of)).unwrap();
        fs::read_to_string(directory.join(name)).unwrap()
    };
    for (of, shares, of_second) in [
        (1, "1024", "10"),
        (3, "3072", "30"),
        (256, "262144", "2560"),
        (u32::MAX, "262144", "10000"),
    ] {
        assert_eq!(written(Version::One, of), shares);
        assert_eq!(written(Version::Two, of), of_second);
    }
}

#[test]
fn in_version_2_the_daemon_makes_way_for_groups() {
    let directory = second_version();
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    delegate(directory.path()).unwrap();
    assert_eq!(read("daemon/cgroup.procs"), "0");
    assert_eq!(read("cgroup.subtree_control"), "+cpu");
    assert_eq!(read("daemon/cpu.weight"), "100");
}

#[test]
fn who_may_not_make_groups_stays_where_it_was() {
    let directory = second_version();
    // As if another process were in the group.
    fs::remove_file(directory.path().join("cgroup.subtree_control")).unwrap();
    delegate(directory.path()).unwrap_err();
    assert_eq!(fs::read_to_string(directory.path().join("cgroup.procs")).unwrap(), "0");
}

/// A process that computes for ever, in a group and on one processor.
fn busy(group: &CpuGroup) -> Child {
    let mut command = Command::new("taskset");
    command.args(["-c", "0", "sh", "-c", "while :; do :; done"]);
    group.hold(&mut command).unwrap();
    command.stdin(Stdio::null()).spawn().unwrap()
}

fn ticks(child: &Child) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_group_gets_its_weight_whatever_the_number_of_its_processes() {
    let groups = match CpuGroups::open() {
        Ok(groups) => groups,
        Err(why) => return skip(format_args!("no control groups can be made: {why}")),
    };
    let (own, other) = (groups.group(weight(1)), groups.group(weight(1)));
    let own_directory = own.directory.clone();
    let mut children = vec![busy(&own)];
    children.extend((0..4).map(|_| busy(&other)));
    let of_own = || {
        let before: Vec<u64> = children.iter().map(ticks).collect();
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let spent: Vec<u64> = children.iter().map(ticks).zip(before).map(|(a, b)| a - b).collect();
        spent[0] as f64 / spent.iter().sum::<u64>() as f64
    };
    // Without groups it would be a fifth, and with three times the weight it is three quarters.
    let half = of_own();
    own.set_weight(weight(3)).unwrap();
    let most = of_own();
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    drop((own, other));
    assert!((0.4..0.6).contains(&half), "{half}");
    assert!((0.65..0.85).contains(&most), "{most}");
    assert!(!own_directory.exists());
}

#[test]
fn what_was_left_behind_is_removed_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let own = format!("{PREFIX}{}-3", std::process::id());
    // No process has this number.
    let names = ["squeezy-4999999-0", &own, "squeezy-other", "user.slice"];
    names.iter().for_each(|name| fs::create_dir(directory.path().join(name)).unwrap());
    remove_left(directory.path());
    let is_there = names.map(|name| directory.path().join(name).exists());
    assert_eq!(is_there, [false, true, true, true]);
}
