use super::*;
use std::{
    fs,
    io::Read,
    os::unix::process::ExitStatusExt,
    process::{Child, Command, Stdio},
};

/// A process that owns a file and does not run.
pub(crate) fn stopped_owner(path: &Path) -> Child {
    let script = "import fcntl, os, signal, sys
file = open(sys.argv[1], 'w')
fcntl.lockf(file, fcntl.LOCK_EX)
print(flush=True)
os.kill(os.getpid(), signal.SIGSTOP)";
    let mut child = Command::new("python3")
        .args(["-c", script])
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
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
