//! `squeezy serve`: functions behind OpenWhisk's API, in VMs whose memory grows and shrinks with
//! their instances.

mod action;
mod api;
mod bodies;
mod code;
mod config;
mod connections;
mod crowd;
mod failure_reasons;
mod host;
mod images;
mod kept;
mod key;
mod log;
mod memory;
mod metrics;
mod notify;
mod probes;
mod service;
mod state;
mod tls;
mod web;
mod write_timeout;

use crate::interrupt::Interrupt;
use axum::middleware;
use bodies::Bodies;
use bytesize::ByteSize;
use clap::Args as ClapArgs;
pub use config::{Config, FunctionEntry, HELP as CONFIG_HELP};
use connections::ConnectionLimits;
use kept::Kept;
use key::Key;
use log::{Log, log_line};
use metrics::{Seen, Watch};
use probes::Probes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use service::{Service, ServiceError};
use squeezy_node::{Node, TomlError};
use squeezy_scaler::Budget;
use squeezy_store::{OpenError, Store};
use squeezy_vmm::{Artifacts, VmError};
use state::StateError;
pub use state::holder;
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use tls::{Tls, TlsError};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::Notify,
};

/// How long instances and VMs may take to end at shutdown.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// How long writing the last activations may take.
const STORE_LIMIT: Duration = Duration::from_secs(5);

/// The limit of open files to request, if the hard limit allows it.
pub const MOST_FILES: u64 = 65536;

/// How long clients may take to read the last responses.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Serves functions over HTTP, in VMs that grow and shrink with the calls.
///
/// It speaks OpenWhisk's API until it gets SIGTERM or Ctrl-C. Then it completes the calls that an
/// instance has taken, and ends instances and VMs. A second signal skips the wait.
///
/// It boots a VM at the first call of a function, starts instances in it as calls arrive, and gives
/// their memory back to the host as they end. Clients authenticate with the key in the state
/// directory, which is created at the first start.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_long_help = config::HELP)]
pub struct Args {
    /// The configuration file; without it all keys have their defaults.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Functions to serve in addition to those in the configuration: directories with a
    /// function.toml, or images NAME.erofs with NAME.toml beside them.
    #[arg(value_name = "FUNCTION")]
    functions: Vec<PathBuf>,

    /// The directory of kernels and images; the default is $SQUEEZY_BUILD, else `build` of the checkout.
    #[arg(long, value_name = "DIRECTORY")]
    build: Option<PathBuf>,
}

pub use memory::prepare;

/// Why the daemon cannot start, as one sentence that says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A file or directory cannot be read or created.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The state directory cannot be used.
    #[error("{0}")]
    State(#[from] StateError),
    /// The database of activations cannot be used.
    #[error("{0}")]
    Store(#[from] OpenError),
    /// The configuration is invalid.
    #[error("{}: {error}", path.display())]
    Config {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        error: TomlError,
    },
    /// A function cannot be served.
    #[error("{}", about(path, error))]
    Function {
        /// The function's path.
        path: PathBuf,
        /// What is wrong with it.
        error: ServiceError,
    },
    /// The VMs' configuration or files cannot be used.
    #[error("{0}")]
    Vm(#[from] VmError),
    /// The certificate cannot be used.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}; choose another `listen`")]
    Listen {
        /// The address.
        address: String,
        /// The operating system's error.
        error: io::Error,
    },
    /// A part of this program has failed.
    #[error("{0}")]
    Internal(String),
    /// Signals cannot be handled.
    #[error("signals cannot be handled: {0}")]
    Signals(io::Error),
}

/// An error message that names the function exactly once.
fn about(path: &Path, error: &ServiceError) -> String {
    let (path, error) = (path.display().to_string(), error.to_string());
    if error.starts_with(&path) { error } else { format!("{path}: {error}") }
}

/// Groups the functions that share a VM; each of the others is a group of its own.
fn sharing_a_vm(functions: Vec<FunctionEntry>) -> Vec<Vec<FunctionEntry>> {
    let mut all: Vec<Vec<FunctionEntry>> = Vec::new();
    for entry in functions {
        let same = all.iter_mut().find(|group| entry.vm.is_some() && group[0].vm == entry.vm);
        match same {
            Some(group) => group.push(entry),
            None => all.push(vec![entry]),
        }
    }
    all
}

/// Serves until it is told to end.
pub async fn main(args: Args) -> Result<ExitCode, ServeError> {
    let result = serve(args).await;
    log::finish();
    result
}

async fn serve(args: Args) -> Result<ExitCode, ServeError> {
    let mut config = read(args.config.as_deref())?;
    config.functions.extend(args.functions.into_iter().map(FunctionEntry::from));
    let files = Artifacts::find(args.build.as_deref())?;
    let state = config.state_directory.clone();
    let kept = Kept::open(&state)?;
    let key_file = state.join("key");
    let key = Key::read_or_make(&key_file)
        .map_err(|error| ServeError::File { path: key_file.clone(), error })?;
    let tls = config.tls.clone().map(Tls::open).transpose()?;
    let listen = config.listen.clone();
    let cannot_listen = |error| ServeError::Listen { address: listen.to_string(), error };
    let listener = TcpListener::bind((listen.name.as_str(), listen.port)).await;
    let listener = listener.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    let interrupt = Interrupt::listen_as_daemon().map_err(ServeError::Signals)?;
    let mut hangups = signal(SignalKind::hangup()).map_err(ServeError::Signals)?;
    let hung_up = Arc::new(Notify::new());
    let told = hung_up.clone();
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            log_line(
                "SIGHUP: only the certificate is read again; restart the daemon to change its configuration",
            );
            told.notify_one();
        }
    });
    allow_files();
    tokio::spawn(memory::give_back());

    if let Some(warning) = more_than_there_is(config.memory_bytes, machine_bytes()) {
        log_line(&warning);
    }
    let bodies_bytes = bodies::share(config.memory_bytes);
    let bodies = Bodies::new(bodies_bytes);
    let store = state.join("squeezy.db");
    let store = Arc::new(Store::open(&store, config.store_limits(&bodies), log_line)?);
    // The rest is for VMs and instances.
    let memory_bytes = config.memory_bytes.saturating_sub(bodies_bytes);
    let budget = Budget::new(memory_bytes).with_reserve(config.policy.reserve_bytes(memory_bytes));
    let (begin, watch) = (Instant::now(), Arc::new(Watch::new(memory_bytes)));
    watch.metrics.go_on(store.earlier_totals());
    let policy = config.policy.name();
    let squeezing = config.policy.squeezing(memory_bytes);
    let node =
        Node::start(budget, squeezing, begin, Arc::new(Seen(watch.clone(), Log(watch.clone()))));
    let functions = config.functions.clone();
    let service = Arc::new(Service::new(
        config,
        files,
        node.clone(),
        kept,
        store.clone(),
        bodies.clone(),
        watch.failure_reasons.clone(),
    ));
    for together in sharing_a_vm(functions) {
        let added = service.add_functions(&together).await;
        added.map_err(|(path, error)| ServeError::Function { path, error })?;
    }
    service.restore().await;
    let scheme = if tls.is_some() { "https" } else { "http" };
    log_line(&format!("serving on {scheme}://{address}, the key is in {}", key_file.display()));
    let page =
        web::Page::new(node, service.clone(), watch, key.clone(), begin, policy, memory_bytes);
    let probes = Probes::new(&state, store.clone());
    let router = api::router(service.clone(), key, bodies)
        .merge(web::router(page.clone()))
        .merge(probes::router(probes.clone()));
    let names = host::Names::new(&listen.name, address);
    let router = router.layer(middleware::from_fn_with_state(names, host::check));
    tokio::spawn(page.clone().sample());
    if let Some(tls) = tls.clone() {
        tokio::spawn(tls.follow(hung_up));
    }
    let told = interrupt.clone();
    let limits = ConnectionLimits::default();
    let serving = tokio::spawn(connections::serve(listener, tls, router, limits, async move {
        told.raised(1).await;
    }));
    notify::notify(notify::READY);
    interrupt.raised(1).await;
    probes.ends();
    notify::notify(notify::STOPPING);
    log_line("shutting down: completing the calls that an instance has taken");
    let ended = tokio::select! {
        _ = tokio::time::timeout(DRAIN_LIMIT, service.drain()) => {
            // The last responses are still being sent.
            let _ = tokio::time::timeout(ANSWER_LIMIT, serving).await;
            ExitCode::SUCCESS
        }
        () = interrupt.raised(2) => ExitCode::FAILURE,
    };
    page.keep_totals();
    store.close(STORE_LIMIT);
    Ok(ended)
}

/// Raises the limit of open files, for connections and VMs, as far as permitted.
fn allow_files() {
    let limits = getrlimit(Resource::Nofile);
    let current = limits.maximum.map(|most| most.min(MOST_FILES)).or(Some(MOST_FILES));
    if limits.current < current {
        // Fewer files mean fewer connections.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limits });
    }
}

/// The memory of this machine in bytes; `None` if it cannot be determined.
pub fn machine_bytes() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// A call that an instance has taken and failed, for tests: it waited 1 ms and ran 1 ms.
#[cfg(test)]
fn failed_call(reason: &str) -> squeezy_node::CallError {
    squeezy_node::CallError::Failed {
        reason: squeezy_node::InstanceError::NoAnswer(reason.to_owned()),
        waited: Duration::from_millis(1),
        waited_for: squeezy_node::WaitedFor::Nothing,
        took: Duration::from_millis(1),
        cold: false,
        vm_ended: false,
        logs: Vec::new(),
    }
}

/// What is to be done then.
pub const LESS_MEMORY: &str = "set `memory` to less";

/// What is wrong if the configuration allots more memory than the machine has.
pub fn beyond_machine(memory_bytes: u64, machine_bytes: Option<u64>) -> Option<String> {
    let machine_bytes = machine_bytes.filter(|machine| memory_bytes > *machine)?;
    Some(format!(
        "memory = {}, but this machine has {}: when instances use it all, Linux kills VMs",
        ByteSize(memory_bytes),
        ByteSize(machine_bytes)
    ))
}

/// A warning of that. Not an error: memory that VMs do not touch costs nothing.
fn more_than_there_is(memory_bytes: u64, machine_bytes: Option<u64>) -> Option<String> {
    let problem = beyond_machine(memory_bytes, machine_bytes)?;
    Some(format!("warning: {problem}; {LESS_MEMORY}"))
}

/// The configuration in a file, or the default one.
pub fn read(path: Option<&Path>) -> Result<Config, ServeError> {
    let Some(path) = path else {
        // Relative to the working directory, like paths on the command line.
        return Config::parse("", Path::new(""))
            .map_err(|error| ServeError::Config { path: PathBuf::new(), error });
    };
    let file = |error| ServeError::File { path: path.to_owned(), error };
    let text = fs::read_to_string(path).map_err(file)?;
    let directory = path.canonicalize().map_err(file)?;
    let directory = directory.parent().unwrap_or(Path::new("/"));
    Config::parse(&text, directory)
        .map_err(|error| ServeError::Config { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_than_the_machine_has_is_said() {
        assert_eq!(more_than_there_is(4 << 30, Some(4 << 30)), None);
        assert_eq!(more_than_there_is(4 << 30, None), None);
        let warning = more_than_there_is(200 << 30, Some(23 << 30)).unwrap();
        let right = "warning: memory = 200.0 GiB, but this machine has 23.0 GiB: ";
        assert!(warning.starts_with(right), "{warning}");
        assert!(machine_bytes().is_some_and(|bytes| bytes > 1 << 28));
    }
}
