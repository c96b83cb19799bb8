//! The process between the agent and the instance's command.
//!
//! The agent starts its own executable again, already in the instance's cgroup and PID namespace
//! ([`crate::instance`]). The fresh process has one thread, so it may do what a fork of the agent may not. It
//! builds the sandbox, which needs no memory of the partition, so it can do that while the partition is still
//! being plugged. Then it attaches itself to the partition, waiting for it if necessary; becomes the
//! instance's user; gives up all privileges and most system calls; and executes the command. From then on its
//! anonymous memory comes from the partition.

mod beneath;
mod companion;
mod home;
pub mod init;
mod limits;
mod network;
mod node;
mod paths;
mod privileges;
mod rlimits;
mod root;
mod search;
mod seccomp;
mod tree;
mod user;
mod volumes;

use crate::abi::{self, AssignError, Wait};
use companion::Companion;
use rustix::{
    io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd},
    process::{chdir, getcwd, setsid},
    thread::{UnshareFlags, unshare_unsafe},
};
use serde::{Deserialize, Serialize};
use squeezy_protocol::{ErrorCode, InstanceSpec, PartitionChoice, PartitionNumber};
use std::{
    ffi::CString,
    fs::{self, File},
    io::{self, Read, Write},
    net::Ipv4Addr,
    os::fd::{AsRawFd, FromRawFd, RawFd},
    process::ExitCode,
    time::{Duration, Instant},
};
use user::User;

/// First argument of the executable that selects this mode.
pub const ARGUMENT: &str = "--sandbox";
/// Where the process reads what to become: a [`Plan`] as JSON.
pub const PLAN_FD: RawFd = 3;
/// Where it writes its [`Report`]s, one line of JSON each; closed when the command is executed.
pub const REPORT_FD: RawFd = 4;
/// The first process of the instance that it shares things with, if there is one.
pub const COMPANION_FD: RawFd = 5;
/// The user namespace of that instance. One without a command has its own there.
pub const USERS_FD: RawFd = 6;
/// The namespace of the network that it is to be in, if it is not to have one of its own.
pub const NETWORK_FD: RawFd = 7;
/// The file system with its files, if their limit is to change: mounted nowhere yet.
pub const FILE_SYSTEM_FD: RawFd = 8;

/// What to make a sandbox from.
#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    /// What the host asked for.
    pub spec: InstanceSpec,
    /// The directories that are the lower layers of the instance's root, the topmost first.
    pub lower: Vec<String>,
    /// Where the spec's volumes are, in its order.
    pub volumes: Vec<String>,
    /// Number that sets its users apart from those of all other instances.
    pub user: u32,
    /// Its address in the VM's network, if it has one.
    pub address: Option<Ipv4Addr>,
    /// The process, as seen in its PID namespace, that is in the partition of the instance that it shares one with.
    pub join: Option<u32>,
}

impl Plan {
    /// Whether it is in a partition, its own or that of the instance that it shares one with.
    pub fn is_in_partition(&self) -> bool {
        self.join.is_some() || self.spec.partition != PartitionChoice::None
    }
}

/// How far the process got.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// It is attached, and about to execute the command.
    Attached {
        /// The partition, if the instance has one.
        partition: Option<PartitionNumber>,
        /// How long it waited for it, in nanoseconds.
        wait_ns: u64,
    },
    /// It gave up. May follow `Attached`, if the command cannot be executed.
    Failed {
        /// The kind of failure.
        code: ErrorCode,
        /// What failed.
        message: String,
    },
}

/// A step that failed.
struct Failure {
    code: ErrorCode,
    message: String,
}

impl Failure {
    fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Makes an internal error that names the step.
fn internal(what: &str) -> impl FnOnce(io::Error) -> Failure + '_ {
    move |e| Failure::new(ErrorCode::Internal, format!("{what}: {e}"))
}

/// Runs the process up to its command; returns only if that cannot be executed.
pub fn main() -> ExitCode {
    // SAFETY: the agent passes these two files, and nothing else in this process owns them.
    let (plan, mut report) = unsafe { (File::from_raw_fd(PLAN_FD), File::from_raw_fd(REPORT_FD)) };
    let Err(failure) = become_instance(plan, &mut report);
    send(&mut report, &Report::Failed { code: failure.code, message: failure.message });
    ExitCode::FAILURE
}

fn send(report: &mut File, message: &Report) {
    let mut line = serde_json::to_vec(message).expect("reports serialize");
    line.push(b'\n');
    // If the agent does not listen, there is nothing left to tell.
    let _ = report.write_all(&line);
}

fn become_instance(mut plan: File, report: &mut File) -> Result<std::convert::Infallible, Failure> {
    fcntl_setfd(&*report, FdFlags::CLOEXEC)
        .map_err(|e| internal("preparing the report")(e.into()))?;
    let mut text = Vec::new();
    plan.read_to_end(&mut text).map_err(internal("reading the plan"))?;
    drop(plan);
    let plan: Plan =
        serde_json::from_slice(&text).map_err(|e| internal("reading the plan")(e.into()))?;
    drop(text);
    let spec = &plan.spec;

    setsid().map_err(|e| internal("starting a session")(e.into()))?;
    if spec.terminal.is_some() {
        control_terminal().map_err(internal("controlling the terminal"))?;
    }
    fs::write("/proc/self/oom_score_adj", spec.oom_score_adj.to_string())
        .map_err(internal("setting oom_score_adj"))?;
    rlimits::set(spec.seccomp).map_err(internal("setting resource limits"))?;
    let companion = Companion::inherited(&spec.company);
    let user = match &companion {
        Some(companion) => companion.users(plan.user),
        None => User::create(plan.user),
    };
    let user = user.map_err(internal("making the user namespace"))?;
    if spec.input || spec.terminal.is_some() {
        user.own(std::io::stdin(), &spec.user)
            .map_err(internal("passing on the standard input"))?;
    }
    // A program may open /dev/stdout, but is not the user that created the pipe.
    user.own(std::io::stdout(), &spec.user).map_err(internal("passing on the standard output"))?;
    user.own(std::io::stderr(), &spec.user).map_err(internal("passing on the standard error"))?;
    match &companion {
        Some(companion) => companion.enter().map_err(internal("entering namespaces"))?,
        None => {
            let host_name = spec.host_name.as_deref().unwrap_or(spec.id.as_str());
            isolate(host_name).map_err(internal("making namespaces"))?;
            let network = match spec.in_network {
                Some(_) => network::join(),
                None => network::enter(plan.address),
            };
            network.map_err(internal("setting up the network"))?;
        }
    }
    if !companion.as_ref().is_some_and(Companion::has_root) {
        root::enter(&plan, &user).map_err(internal("making the root"))?;
    }
    enter_directory(&spec.working_directory).map_err(|e| {
        Failure::new(
            ErrorCode::Invalid,
            format!("working_directory {}: {e}", spec.working_directory),
        )
    })?;
    // Everything for which this process needs memory is done before it attaches.
    let keeps = spec.command.is_empty();
    let command = if keeps { Command::keeper() } else { Command::new(spec)? };
    let filters = seccomp::filters(spec.seccomp, &spec.filters)
        .map_err(internal("making the system call filters"))?;

    if let Some(node) = spec.memory_node {
        let limit = Duration::from_millis(spec.wait_ms.into());
        node::bind(node, limit).map_err(internal("binding memory to its node"))?;
    }
    let (partition, wait_ns) = match plan.join {
        Some(process) => (Some(join(process)?), 0),
        None => attach(spec)?,
    };
    send(report, &Report::Attached { partition, wait_ns });
    if keeps {
        return Err(keep(&user, &command, report));
    }
    user.assume().map_err(internal("becoming the instance's user"))?;
    // Here, because a filter may refuse it.
    close_at_execution(report.as_raw_fd() + 1).map_err(internal("closing files"))?;
    let filter = || {
        let mut filters = filters.iter();
        filters.try_for_each(seccomp::install).map_err(internal("filtering system calls"))
    };
    // Without no_new_privs only user 0 can do it, and the filters have to allow what follows. With it, whoever has no
    // privileges can, and they need not.
    if spec.privileges.gained {
        filter()?;
    }
    privileges::gain_only(&spec.privileges).map_err(internal("giving up privileges"))?;
    User::switch_to(&spec.user).map_err(internal("becoming the spec's user"))?;
    privileges::keep_only(&spec.privileges).map_err(internal("dropping privileges"))?;
    rlimits::lower(&spec.resource_limits).map_err(internal("lowering resource limits"))?;
    if !spec.privileges.gained {
        filter()?;
    }
    let error = command.execute();
    let code = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => ErrorCode::Invalid,
        _ => ErrorCode::Internal,
    };
    Err(Failure::new(code, format!("executing {}: {error}", spec.command[0])))
}

/// Executes what keeps things for others. It stays the machine's own user 0, whom none of them can reach, and has its
/// users in a file that the agent finds.
fn keep(user: &User, command: &Command, report: &File) -> Failure {
    let leave_users = || -> io::Result<()> {
        close_at_execution(report.as_raw_fd() + 1)?;
        // The file may have this number, and would be closed then.
        let users = fcntl_dupfd_cloexec(user.namespace(), USERS_FD + 1)?;
        // SAFETY: whatever has this number, this process only executes a program now, or ends.
        match unsafe { libc::dup2(users.as_raw_fd(), USERS_FD) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    match leave_users() {
        Ok(()) => internal("executing what keeps it")(command.execute()),
        Err(error) => internal("leaving its users to the agent")(error),
    }
}

/// Makes the standard input the terminal that this session controls.
fn control_terminal() -> io::Result<()> {
    // SAFETY: this one takes a number.
    match unsafe { libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Leaves the agent's namespaces, except that of its network. The process was started in its own PID namespace.
fn isolate(host_name: &str) -> io::Result<()> {
    let namespaces =
        UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS | UnshareFlags::NEWCGROUP;
    // SAFETY: none of these flags unshares the file table or memory, and there is one thread.
    unsafe { unshare_unsafe(namespaces) }?;
    Ok(rustix::system::sethostname(host_name.as_bytes())?)
}

/// Makes a directory of the instance's root the working directory. This process may follow links that the instance may
/// not, such as `/proc/1/root`, the machine's own root, and an image may have a link to it.
fn enter_directory(path: &str) -> io::Result<()> {
    chdir(path)?;
    // The kernel puts "(unreachable)" before what is not below the root.
    if getcwd(Vec::new())?.as_bytes().starts_with(b"/") {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not in the instance's root"))
    }
}

/// Waits for the partition; returns its number and how many nanoseconds that took.
fn attach(spec: &InstanceSpec) -> Result<(Option<PartitionNumber>, u64), Failure> {
    let wanted = match spec.partition {
        PartitionChoice::None => return Ok((None, 0)),
        PartitionChoice::Any => None,
        PartitionChoice::Number(number) => Some(number),
    };
    let start = Instant::now();
    match abi::assign(wanted, Wait::Millis(spec.wait_ms)) {
        Ok(number) => Ok((Some(number), start.elapsed().as_nanos() as u64)),
        Err(error) => {
            let code = match error {
                AssignError::NoneFree => ErrorCode::NoPartition,
                AssignError::NoPartitions | AssignError::OutOfRange => ErrorCode::Invalid,
                _ => ErrorCode::Internal,
            };
            Err(Failure::new(code, error.to_string()))
        }
    }
}

/// Joins the partition of a process, and returns its number.
fn join(process: u32) -> Result<PartitionNumber, Failure> {
    abi::join(process).map_err(|error| internal("joining the partition")(error.into()))
}

/// The command in the form that execve takes.
struct Command {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Command {
    /// The agent's own program as what keeps an instance, and runs for as long.
    fn keeper() -> Self {
        let program = CString::from(c"/proc/self/exe");
        let argument = CString::new(init::ARGUMENT).expect("no zero byte");
        Self { arguments: vec![program.clone(), argument], program, environment: Vec::new() }
    }

    /// What the spec says, in the root of this process.
    fn new(spec: &InstanceSpec) -> Result<Self, Failure> {
        let text = |text: String| {
            CString::new(text).map_err(|_| {
                Failure::new(
                    ErrorCode::Invalid,
                    "command and environment must not hold a zero byte",
                )
            })
        };
        let name = &spec.command[0];
        let program = search::find(name, spec.environment.get("PATH")).ok_or_else(|| {
            let message = format!("executing {name}: it is in no directory of PATH");
            Failure::new(ErrorCode::Invalid, message)
        })?;
        let variables = spec.environment.iter().map(|(name, value)| format!("{name}={value}"));
        // As runc does, which containerd relies on.
        let home = (!spec.environment.contains_key("HOME"))
            .then(|| format!("HOME={}", home::of(spec.user.user)));
        Ok(Self {
            program: text(program)?,
            arguments: spec.command.iter().cloned().map(text).collect::<Result<_, _>>()?,
            environment: variables.chain(home).map(text).collect::<Result<_, _>>()?,
        })
    }

    /// Executes it with no signal blocked or ignored.
    fn execute(&self) -> io::Error {
        let pointers = |strings: &[CString]| -> Vec<_> {
            strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (arguments, environment) = (pointers(&self.arguments), pointers(&self.environment));
        // SAFETY: signal numbers and a zeroed set are valid arguments; the pointers are to terminated strings and
        // arrays that outlive the call.
        unsafe {
            // Rust's runtime ignores SIGPIPE, and ignored signals stay ignored across execve.
            for signal in 1..=64 {
                libc::signal(signal, libc::SIG_DFL);
            }
            let none: libc::sigset_t = std::mem::zeroed();
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            libc::execve(self.program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
        }
        io::Error::last_os_error()
    }
}

/// Closes all files from this one on when a program is executed.
fn close_at_execution(first: RawFd) -> io::Result<()> {
    // SAFETY: this changes only what happens to files at execution.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_pipe() {
        for report in [
            Report::Attached { partition: Some(PartitionNumber(3)), wait_ns: 5 },
            Report::Failed { code: ErrorCode::Invalid, message: "no\nline".to_owned() },
        ] {
            let line = serde_json::to_string(&report).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Report>(&line).unwrap(), report);
        }
    }
}
