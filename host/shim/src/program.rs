//! The program: what it does with which arguments.

use crate::{
    cgroup::Cgroup,
    delete::delete,
    error::{Error, Result},
    flags::Command,
    holder::{self, HOLD},
    log, owner,
    registry::STATE,
    serve::{Assignment, SERVE, serve},
    settings::{SETTINGS, SETTINGS_VARIABLE},
    start::start,
    vm::Vm,
};
use containerd_shim_protos::{
    protobuf::{Message, MessageField},
    types::introspection::{RuntimeInfo, RuntimeVersion},
};
use squeezy_vmm::heap;
use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    os::{fd::AsFd, unix::net::UnixListener},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};

/// The name of the runtime for containerd.
const NAME: &str = "io.containerd.squeezy.v2";
/// This program, also after an upgrade has replaced its file.
const PROGRAM: &str = "/proc/self/exe";
/// Threads of a server. It passes bytes on and waits.
const THREADS: usize = 2;
/// How long a server that has nothing to do any more waits for its threads.
const END_LIMIT: Duration = Duration::from_secs(1);

/// Makes the VM of a server, without booting it, in the control group that the server is in.
pub type MakeVm = fn(&Assignment, Option<Arc<Cgroup>>) -> Result<Arc<dyn Vm>>;

/// Does what the arguments say.
pub fn run(make: MakeVm) -> ExitCode {
    let mut arguments = env::args_os();
    let program = arguments.next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or(&program).to_string_lossy().into_owned();
    match run_with(arguments, make) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_with(arguments: impl Iterator<Item = OsString>, make: MakeVm) -> Result<()> {
    let mut arguments = arguments.peekable();
    if arguments.next_if(|argument| argument == HOLD).is_some() {
        let network = arguments.next();
        return holder::hold(network.as_deref().map(Path::new)).map_err(Error::failed);
    }
    if arguments.next_if(|argument| argument == SERVE).is_some() {
        return be_server(Assignment::parse(arguments)?, make);
    }
    let state = Path::new(STATE);
    let answer = match Command::parse(arguments)? {
        Command::Version => format!("{NAME} {}\n", env!("CARGO_PKG_VERSION")).into_bytes(),
        Command::Info => info(),
        Command::Delete(task) => delete(&task, state)?,
        Command::Start(task) => start(
            &task,
            io::stdin().lock(),
            env::var("TTRPC_ADDRESS").ok(),
            state,
            Path::new(PROGRAM),
            &env::var_os(SETTINGS_VARIABLE).map_or_else(|| SETTINGS.into(), PathBuf::from),
        )?,
    };
    io::stdout()
        .write_all(&answer)
        .map_err(|error| Error::failed(format_args!("cannot answer containerd: {error}")))
}

fn be_server(assignment: Assignment, make: MakeVm) -> Result<()> {
    heap::prepare();
    let failed =
        |error: &dyn std::fmt::Display| Error::failed(format_args!("cannot be a server: {error}"));
    log::to_file(&assignment.log()?).map_err(|error| failed(&error))?;
    // Whoever finds it by its file may expect an answer soon, and this takes a moment.
    let cgroup = own_cgroup(&assignment).map(Arc::new);
    // Its process is found by this while it is one.
    let _owned = owner::own(&assignment.owner()?).map_err(|error| failed(&error))?;
    // `start` passes the socket as standard input.
    let listener = UnixListener::from(
        io::stdin().as_fd().try_clone_to_owned().map_err(|error| failed(&error))?,
    );
    let vm = make(&assignment, cgroup.clone())?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .map_err(|error| failed(&error))?;
    let served = runtime
        .block_on(serve(assignment, listener, vm, PROGRAM.into()))
        .inspect_err(|error| tracing::error!("{error}"));
    end(runtime);
    if let Some(cgroup) = cgroup
        && let Err(error) = cgroup.leave()
    {
        tracing::warn!("the VM's control group is left to the next server: {error}");
    }
    served
}

/// Ends what a server has started, but for threads that wait for files of the host, perhaps for ever: they end with the
/// process.
fn end(runtime: Runtime) {
    runtime.shutdown_timeout(END_LIMIT);
}

/// The control group that this server is in from now on, if it can have one of its own.
fn own_cgroup(assignment: &Assignment) -> Option<Cgroup> {
    let Some(pods) = &assignment.cgroup_of_pods else {
        tracing::info!("the VM has no control group of its own: kubelet has made none for its pod");
        return None;
    };
    match Cgroup::enter(pods, &assignment.server) {
        Ok(cgroup) => {
            let directories = cgroup.directories();
            tracing::info!(?directories, "the VM has a control group of its own");
            Some(cgroup)
        }
        Err(error) => {
            tracing::warn!("the VM has no control group of its own: {error}");
            None
        }
    }
}

/// What containerd 2.0 and newer ask before anything else.
fn info() -> Vec<u8> {
    let version =
        RuntimeVersion { version: env!("CARGO_PKG_VERSION").to_owned(), ..Default::default() };
    let info = RuntimeInfo {
        name: NAME.to_owned(),
        version: MessageField::some(version),
        ..Default::default()
    };
    info.write_to_bytes().expect("a message of two fields can be written to memory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_server_ends_though_a_thread_of_it_waits_for_ever() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (answers, waits) = channel::<()>();
        let (begins, begun) = channel();
        runtime.spawn_blocking(move || {
            begins.send(()).unwrap();
            let _ = waits.recv();
        });
        begun.recv().unwrap();
        end(runtime);
        drop(answers);
    }
}
