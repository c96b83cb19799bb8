//! This program in the VM: its init, and what that starts.

use crate::{
    cases::{CASES, set_up_groups},
    processes,
};
use rustix::{
    mount::{MountFlags, mount},
    system::{RebootCommand, reboot},
    termios::tcdrain,
};
use std::{
    env, fs, io,
    process::{self, Command, ExitCode},
};

/// Where it is there.
pub const PROGRAM: &str = "/init";

/// What each process of it does: init without arguments, others what the first one says.
pub fn main() -> ExitCode {
    if process::id() == 1 {
        return be_init();
    }
    let what = env::args().nth(1).unwrap_or_default();
    if !processes::run(&what) {
        let (_, case) = CASES.iter().find(|(name, _)| *name == what).expect("there is such a case");
        case();
    }
    ExitCode::SUCCESS
}

/// Runs all cases and powers off. If one has failed, it ends, which is a panic of the kernel.
fn be_init() -> ExitCode {
    let done = set_up().and_then(|()| run_cases());
    if let Err(error) = &done {
        eprintln!("{error}");
    }
    // What is still in the serial port's buffer then is lost.
    let _ = tcdrain(io::stderr());
    if done.is_ok() {
        let error = reboot(RebootCommand::PowerOff);
        eprintln!("cannot power off: {error:?}");
    }
    ExitCode::FAILURE
}

fn set_up() -> io::Result<()> {
    for (kind, place) in
        [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("cgroup2", "/sys/fs/cgroup")]
    {
        fs::create_dir_all(place)?;
        mount(kind, place, kind, MountFlags::empty(), c"")?;
    }
    set_up_groups()
}

/// Each in a process of its own.
fn run_cases() -> io::Result<()> {
    let mut failed = Vec::new();
    for (name, _) in CASES {
        let status = Command::new(PROGRAM).arg(name).status()?;
        eprintln!("{name}: {status}");
        if !status.success() {
            failed.push(*name);
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(io::Error::other(format!("failed: {}", failed.join(", "))))
    }
}
