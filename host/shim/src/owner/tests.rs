use super::*;
use std::{
    fs,
    io::Read,
    os::unix::process::ExitStatusExt,
    process::{Child, Command, Stdio},
};

/// A process that owns a file and does not run.
pub(crate) fn stopped_owner(path: &Path) -> Child {
    owner_that(path, "os.kill(os.getpid(), signal.SIGSTOP)")
}

/// A process that owns a file and computes.
pub(crate) fn busy_owner(path: &Path) -> Child {
    owner_that(path, "while True: pass")
}

fn owner_that(path: &Path, does: &str) -> Child {
    let script = format!(
        "import fcntl, os, signal, sys
file = open(sys.argv[1], 'w')
fcntl.lockf(file, fcntl.LOCK_EX)
print(flush=True)
{does}"
    );
    let mut child = Command::new("python3")
        .args(["-c", &script])
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

#[test]
fn an_owner_works_while_it_computes_and_not_when_it_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("owner");
    fs::write(&path, "").unwrap();
    let file = open(&path).unwrap().unwrap();
    assert!(!works(&file).unwrap(), "there is no owner");
    let mut owner = busy_owner(&path);
    for _ in 0..100 {
        assert!(works(&file).unwrap());
    }
    rustix::process::kill_process(Pid::from_child(&owner), Signal::STOP).unwrap();
    // The kernel stops it when it next runs.
    while works(&file).unwrap() {}
    owner.kill().unwrap();
    owner.wait().unwrap();
}

/// It is not found by a number that another process may have.
#[test]
fn the_owner_of_a_file_is_found_and_killed_and_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("owner");
    assert!(open(&path).unwrap().is_none(), "there is no file");
    fs::write(&path, "").unwrap();
    let file = open(&path).unwrap().unwrap();
    assert!(!kill(&file).unwrap(), "there is no owner");
    let mut other = stopped_owner(&path);
    assert!(own(&path).is_err(), "it has an owner");
    // What is opened stays the owner's, whoever has the name then.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "").unwrap();
    assert!(!kill(&open(&path).unwrap().unwrap()).unwrap(), "the next one has none");
    assert!(kill(&file).unwrap());
    assert_eq!(other.wait().unwrap().signal(), Some(9));
    let owned = own(&path).unwrap();
    drop(owned);
}
