//! What servers do with their control groups. Each case is a process of its own, which is one.

use crate::processes::{Process, end_of_vm, take};
use squeezy_shim::{
    cgroup::{self, Bound, Cgroup},
    log,
    registry::ServerName,
};
use squeezy_vmm::available_bytes;
use std::{
    fs::{self, File},
    hint::black_box,
    io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};
use tokio::runtime;

const MIB: u64 = 1 << 20;

/// The groups of all pods: as kubelet makes it, and without controllers for what is in it.
const PODS: &str = "kubepods";
const WITHOUT_MEMORY: &str = "without-memory";
const WITHOUT_BOTH: &str = "without-both";
/// That of a pod, and one that a server has left.
const POD_GROUP: &str = "kubepods/pod1";
const LEFT_GROUP: &str = "kubepods/squeezy-cd-0-1";
/// Where servers are started.
const CONTAINERD: &str = "system.slice/containerd.service";

/// What a bound is computed of, in bytes.
const BESIDES: u64 = 64 * MIB;
const POD: u64 = 128 * MIB;
const MOST_PODS: u16 = 4;
/// How far it stays above what is in use.
const SLACK: u64 = 256 * MIB;
/// What a VM has.
const HELD: u64 = 96 * MIB;
/// The most that the kernel and the server have besides in the group.
const OTHERS: u64 = 24 * MIB;

/// What is read until it is in the page cache: more than what is free below a bound that has been lowered.
const DRIVE: &str = "/dev/vda";
pub const DRIVE_BYTES: u64 = SLACK + 64 * MIB;

/// How long the kernel may take for what it does a moment later, and how often that is looked at.
const LIMIT: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(10);

macro_rules! cases {
    ($($case:ident,)*) => {
        /// All of them, by their names.
        pub const CASES: &[(&str, fn())] = &[$((stringify!($case), $case as fn())),*];
    };
}

cases! {
    a_server_is_in_a_group_beside_those_of_pods,
    a_server_leaves_its_group_to_its_vm_until_that_has_ended,
    what_a_killed_server_has_left_is_removed,
    the_bound_follows_the_pods_and_kills_nobody,
    a_vm_beyond_its_bound_is_killed_and_its_server_lives,
    without_a_controller_the_log_says_which,
    a_bound_that_was_taken_away_comes_back,
}

/// Makes the groups that a node has.
pub fn set_up_groups() -> io::Result<()> {
    control("", "+cpu +memory")?;
    for group in [PODS, WITHOUT_MEMORY, WITHOUT_BOTH, POD_GROUP, LEFT_GROUP, CONTAINERD] {
        fs::create_dir_all(at(group))?;
    }
    control(PODS, "+cpu +memory")?;
    control(WITHOUT_MEMORY, "+cpu")?;
    // With init, whoever it starts is where containerd would have started him.
    fs::write(at(CONTAINERD).join("cgroup.procs"), "0")
}

/// Changes which controllers there are for what is in a group.
fn control(group: &str, controllers: &str) -> io::Result<()> {
    fs::write(at(group).join("cgroup.subtree_control"), controllers)
}

/// Enters a group as a server does; returns where it is, too.
pub fn enter() -> (Cgroup, PathBuf) {
    let cgroup = Cgroup::enter(Path::new(PODS), &server()).unwrap();
    let [directory]: [PathBuf; 1] = cgroup.directories().try_into().unwrap();
    assert_eq!(directory.parent(), Some(at(PODS).as_path()));
    (cgroup, directory)
}

fn server() -> ServerName {
    ServerName::parse("ab-0").unwrap()
}

fn at(group: &str) -> PathBuf {
    Path::new("/sys/fs/cgroup").join(group)
}

/// The group that a process is in.
fn group_of(process: u32) -> PathBuf {
    let group = text(Path::new(&format!("/proc/{process}/cgroup")));
    at(group.strip_prefix("0::/").unwrap())
}

fn text(path: &Path) -> String {
    let text = fs::read_to_string(path);
    text.unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim_end().to_owned()
}

fn bytes(path: &Path) -> u64 {
    text(path).parse().unwrap()
}

/// Whether so many processes of a group were killed because it has no memory left.
fn has_killed(group: &Path, count: u64) -> bool {
    text(&group.join("memory.events")).lines().any(|line| line == format!("oom_kill {count}"))
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < limit, "not so after {LIMIT:?}: {what}");
        sleep(INTERVAL);
    }
}

/// Has what this process logs written to a file, as a server has.
fn log_to_file() -> PathBuf {
    let path = PathBuf::from(format!("/log-{}", process::id()));
    log::to_file(&path).unwrap();
    path
}

fn new_bound(cgroup: &Cgroup) -> Arc<Bound> {
    Arc::new(Bound::new(Some(cgroup), BESIDES, POD, MOST_PODS))
}

/// Runs what is a server's.
fn serve(work: impl Future<Output = ()>) {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(work);
}

fn a_server_is_in_a_group_beside_those_of_pods() {
    let before = group_of(process::id());
    assert_eq!(before, at(CONTAINERD));
    assert!(at(LEFT_GROUP).exists());
    let (cgroup, directory) = enter();
    assert_eq!(group_of(process::id()), directory);
    assert!(at(POD_GROUP).exists() && !at(LEFT_GROUP).exists());
    let vm = Process::vm(MIB);
    assert_eq!(group_of(vm.id()), directory);
    assert_eq!(text(&directory.join("memory.max")), "max");
    let weight = || text(&directory.join("cpu.weight"));
    assert_eq!(weight(), "39");
    for (asked, given) in [(0, "20"), (2048, "79"), (u64::MAX, "10000")] {
        cgroup.weigh(asked).unwrap();
        assert_eq!(weight(), given);
    }
    vm.end();
    cgroup.leave().unwrap();
    assert_eq!(group_of(process::id()), before);
    assert!(at(POD_GROUP).exists() && !directory.exists());
}

fn a_server_leaves_its_group_to_its_vm_until_that_has_ended() {
    let (cgroup, directory) = enter();
    let vm = Process::vm(MIB);
    let error = cgroup.leave().unwrap_err();
    assert!(error.to_string().contains("somebody is still in it"), "{error}");
    assert_eq!(group_of(process::id()), at(CONTAINERD));
    assert_eq!(group_of(vm.id()), directory);
    vm.end();
    cgroup::remove_left(Path::new(PODS), &server()).unwrap();
    assert!(!directory.exists());
}

fn what_a_killed_server_has_left_is_removed() {
    let killed = Process::server();
    let directory = group_of(killed.id());
    assert_eq!(directory.parent(), Some(at(PODS).as_path()));
    killed.kill();
    // Its VM ends a moment later.
    until("nothing is left", || cgroup::remove_left(Path::new(PODS), &server()).is_ok());
    assert!(!directory.exists());
}

fn the_bound_follows_the_pods_and_kills_nobody() {
    let (cgroup, directory) = enter();
    let most = || bytes(&directory.join("memory.max"));
    let used = || bytes(&directory.join("memory.current"));
    let bound = new_bound(&cgroup);
    let vm = Process::vm(HELD);
    // Linux forgets what it has of a drive that nobody has open.
    let mut drive = File::open(DRIVE).unwrap();
    serve(async {
        for pods in 1..=u64::from(MOST_PODS) {
            bound.raise().await.unwrap();
            assert_eq!(most(), BESIDES + pods * POD);
        }
        assert_eq!(io::copy(&mut drive, &mut io::sink()).unwrap(), DRIVE_BYTES);
        assert!(used() > HELD + SLACK + OTHERS, "{}: nothing to forget", used());
        bound.lower();
        until("it is lowered by a pod", || most() == BESIDES + 3 * POD);
        // Two pods would be less than what is in use and some more: page cache has to go, and nothing else.
        bound.lower();
        let kept = HELD + SLACK..HELD + SLACK + OTHERS;
        until("it is lowered as far as it can", || kept.contains(&most()) && used() <= most());
        assert!(has_killed(&directory, 0));
        let room = available_bytes().unwrap();
        assert!(room.abs_diff(SLACK) < OTHERS, "{room}: page cache is room");
        vm.end();
        bound.lower();
        let kept = SLACK..SLACK + OTHERS;
        until("it is lowered further", || kept.contains(&most()) && used() <= most());
        bound.raise().await.unwrap();
        assert_eq!(most(), BESIDES + 2 * POD);
    });
    assert!(has_killed(&directory, 0));
    cgroup.leave().unwrap();
    assert!(!directory.exists());
}

fn a_vm_beyond_its_bound_is_killed_and_its_server_lives() {
    // As it has it of containerd.
    fs::write("/proc/self/oom_score_adj", "-999").unwrap();
    let (cgroup, directory) = enter();
    let bound = new_bound(&cgroup);
    serve(async { bound.raise().await.unwrap() });
    // More than is left for the VM.
    let own = take(usize::try_from(POD).unwrap());
    let status = end_of_vm(BESIDES + POD);
    assert_eq!(status.signal(), Some(9), "{status}");
    assert!(has_killed(&directory, 1));
    black_box(own);
    assert!(end_of_vm(BESIDES / 2).success());
    assert!(has_killed(&directory, 1));
    cgroup.leave().unwrap();
    assert!(!directory.exists());
}

fn without_a_controller_the_log_says_which() {
    let log = log_to_file();
    let cgroup = Cgroup::enter(Path::new(WITHOUT_MEMORY), &server()).unwrap();
    let log = text(&log);
    let says = ["the memory of the VM has no bound", "memory.max: there is no such file"];
    assert!(says.iter().all(|words| log.contains(words)), "{log}");
    cgroup.weigh(2048).unwrap();
    assert_eq!(text(&group_of(process::id()).join("cpu.weight")), "79");
    let bound = new_bound(&cgroup);
    serve(async { bound.raise().await.unwrap() });
    cgroup.leave().unwrap();

    let error = Cgroup::enter(Path::new(WITHOUT_BOTH), &server()).unwrap_err();
    assert!(error.to_string().contains("cpu.weight: there is no such file"), "{error}");
    assert_eq!(group_of(process::id()), at(CONTAINERD));
    let left = fs::read_dir(at(WITHOUT_BOTH)).unwrap().flatten();
    assert_eq!(left.filter(|entry| entry.path().is_dir()).count(), 0);
}

fn a_bound_that_was_taken_away_comes_back() {
    let log = log_to_file();
    let (cgroup, directory) = enter();
    let most = directory.join("memory.max");
    let bound = new_bound(&cgroup);
    serve(async {
        bound.raise().await.unwrap();
        control(PODS, "-memory").unwrap();
        assert!(!most.exists());
        bound.raise().await.unwrap();
        control(PODS, "+memory").unwrap();
        assert_eq!(text(&most), "max");
        bound.raise().await.unwrap();
        assert_eq!(bytes(&most), BESIDES + 3 * POD);
    });
    let log = text(&log);
    assert!(log.contains("the memory of the VM has no bound any more"), "{log}");
    cgroup.leave().unwrap();
}
