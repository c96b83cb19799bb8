//! `start`: finds the server for a task, or makes one, and says where it listens.

use crate::{
    Id,
    bootstrap::Bootstrap,
    error::{Error, Result},
    flags::Task,
    found::{Found, Patience},
    group::{Group, room},
    registry::{Place, Registry, ServerName},
    serve::Assignment,
    settings::Settings,
    spec::Spec,
};
use std::{
    env, fs,
    io::Read,
    os::unix::{net::UnixListener, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// How long servers may take to answer before a pod is sent to another one, which costs a VM more: each that does nothing,
/// and all that work together. The longest is what a VM has that does not answer.
const PATIENCE: Patience =
    Patience { idle: Duration::from_secs(3), longest: Duration::from_secs(20) };

/// Finds or makes the server for a task. `program` is executed as the server, with a VM as the file `settings` says. Returns
/// what to print.
///
/// # Errors
/// What containerd said or the spec is wrong, the task's pod has no server, or a new server cannot be started.
pub fn start(
    task: &Task,
    stdin: impl Read,
    ttrpc_address: Option<String>,
    state: &Path,
    program: &Path,
    settings: &Path,
) -> Result<Vec<u8>> {
    let bootstrap =
        Bootstrap::read(stdin, &task.namespace, &task.id, &task.address, ttrpc_address)?;
    let bundle = match &task.bundle {
        Some(bundle) => bundle.clone(),
        None => env::current_dir()
            .map_err(|error| Error::failed(format_args!("no working directory: {error}")))?,
    };
    let spec = Spec::read(&bundle)?;
    let registry = || Registry::lock(state, &task.address, &task.namespace);
    let socket = match &spec {
        Spec::Container(pod, _) => {
            let registry = registry()?;
            registry.socket(&registry.server_of(pod)?)
        }
        Spec::Pod(pod) | Spec::Single(pod, _) => {
            let group = Group::of(pod)?;
            place(&task.id, &group, registry, |registry, server, listener| {
                let settings = Settings::read(settings)?;
                let pods = room(group.partition_bytes, settings.pods);
                registry.admit(server, &group, pods, settings.vms_per_namespace)?;
                let assignment = Assignment {
                    state: state.to_owned(),
                    containerd: task.address.clone(),
                    namespace: task.namespace.clone(),
                    server: server.clone(),
                    events: bootstrap.events.clone(),
                    partition_bytes: group.partition_bytes,
                    cgroup_of_pods: pod.cgroup_of_pods.clone(),
                    settings,
                };
                spawn(program, &assignment, listener, &registry.log(server))
            })?
        }
    };
    let address = format!("unix://{}", socket.display());
    write_address(&bundle, &address)?;
    Ok(bootstrap.answer(&address))
}

/// Finds a place for a pod, in a server that `begin` starts if there is none that answers. Returns where it listens.
fn place(
    pod: &Id,
    group: &Group,
    registry: impl Fn() -> Result<Registry>,
    begin: impl Fn(&Registry, &ServerName, UnixListener) -> Result<()>,
) -> Result<PathBuf> {
    let since = Instant::now();
    let mut silent = Vec::new();
    loop {
        let registry = registry()?;
        if !silent.is_empty() {
            registry.release(pod)?;
        }
        match registry.reserve(pod, group, &silent)? {
            Place::New(server, listener) => {
                begin(&registry, &server, listener).inspect_err(|_| give_up(&registry, &server))?;
                return Ok(registry.socket(&server));
            }
            Place::Running(server) => {
                let found = Found::new(&registry, server)?;
                // Nobody else waits for its answer.
                drop(registry);
                if found.answers(pod, PATIENCE.after(since.elapsed()))? {
                    return Ok(found.socket);
                }
                silent.push(found.server);
            }
        }
    }
}

/// Starts a server. It listens already, so that there is nothing to wait for.
fn spawn(
    program: &Path,
    assignment: &Assignment,
    listener: UnixListener,
    log: &Path,
) -> Result<()> {
    Command::new(program)
        .arg0("containerd-shim-squeezy-v2")
        .args(assignment.arguments())
        .current_dir("/")
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)))
        // containerd waits until nobody has the other end of these any more.
        .stdout(Stdio::null())
        .stderr(errors(log))
        .process_group(0)
        .spawn()
        .map(|_| ())
        .map_err(|error| Error::failed(format_args!("cannot start {}: {error}", program.display())))
}

/// What a server prints before it has a log goes to the log, too.
fn errors(log: &Path) -> Stdio {
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .map_or_else(|_| Stdio::null(), Stdio::from)
}

fn give_up(registry: &Registry, server: &ServerName) {
    if let Err(error) = registry.forget(server) {
        tracing::warn!("{error}");
    }
}

/// containerd up to 1.7 reads the address there after it has restarted.
fn write_address(bundle: &Path, address: &str) -> Result<()> {
    let path: PathBuf = bundle.join("address");
    fs::write(&path, address)
        .map_err(|error| Error::failed(format_args!("cannot write {}: {error}", path.display())))
}

#[cfg(test)]
mod tests;
