//! Processes that cases start: servers, and what stands for their VMs.

use crate::{cases::enter, guest::PROGRAM};
use std::{
    env, fs,
    hint::black_box,
    io::{self, Read},
    process::{Child, Command, ExitStatus, Stdio},
};

/// The arguments with which this program is one of these.
const SERVER: &str = "server";
const VM: &str = "vm";

const PAGE_BYTES: usize = 4096;

/// A process that does nothing until it is told to end, or whoever has started it has ended.
pub struct Process(Child);

impl Process {
    /// A server with a VM, which is in a group of its own.
    pub fn server() -> Self {
        Self::start(Command::new(PROGRAM).arg(SERVER))
    }

    /// A VM that has so much memory, in bytes, and is in the group of whoever starts it.
    pub fn vm(bytes: u64) -> Self {
        Self::start(&mut vm(bytes))
    }

    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self(child)
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Ends it, if nobody has killed it.
    pub fn end(mut self) {
        drop(self.0.stdin.take());
        let status = self.0.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// How a VM ends that takes so much memory, in bytes, and then ends by itself.
pub fn end_of_vm(bytes: u64) -> ExitStatus {
    vm(bytes).stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap()
}

fn vm(bytes: u64) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg(VM).arg(bytes.to_string());
    command
}

/// Is one of these, if that is what this process is for.
pub fn run(what: &str) -> bool {
    match what {
        SERVER => {
            let _group = enter();
            let _vm = Process::vm(1 << 20);
            wait();
        }
        VM => {
            // The most that `machine::oom` has for a VM.
            fs::write("/proc/self/oom_score_adj", "999").unwrap();
            let memory = take(env::args().nth(2).unwrap().parse().unwrap());
            wait();
            black_box(memory);
        }
        _ => return false,
    }
    true
}

/// Takes so much memory, in bytes: Linux gives a page when it is written to.
pub fn take(bytes: usize) -> Vec<u8> {
    let mut memory = vec![0; bytes];
    memory.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
    black_box(memory)
}

/// Says that this process is there, and waits until it is told to end.
fn wait() {
    println!();
    io::copy(&mut io::stdin(), &mut io::sink()).unwrap();
}
