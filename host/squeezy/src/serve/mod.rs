//! `squeezy serve`: functions behind OpenWhisk's API, in VMs whose memory grows and shrinks with
//! their instances.

mod action;
mod api;
mod blobs;
mod bodies;
mod callers;
mod code;
mod config;
mod connections;
mod crowd;
mod failure_reasons;
mod host;
mod images;
mod kept;
mod key;
mod lines;
mod log;
mod metrics;
mod notify;
mod probes;
mod registry;
mod reload;
mod service;
mod state;
mod strangers;
mod tally;
mod telemetry;
mod tenants;
mod tls;
mod watched_directory;
mod web;
mod write_timeout;

use crate::interrupt::Interrupt;
use axum::middleware;
use bodies::Bodies;
use bytesize::ByteSize;
pub use callers::Role;
use clap::Args as ClapArgs;
pub use config::{Config, FunctionEntry, HELP as CONFIG_HELP};
use connections::ConnectionLimits;
pub use kept::KEY;
use kept::Kept;
pub use key::Key;
use log::{Log, log_line, log_warning};
use metrics::{Seen, Watch};
use probes::Probes;
pub use registry::{
    NEEDS as NEEDS_OF_PULLS, check_credentials, probe as probe_pulls, probe_packer,
};
pub use reload::Reloaded;
use reload::Reloader;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use service::{Service, ServiceError};
use squeezy_node::{Node, Observer, TomlError};
use squeezy_openwhisk::Namespace;
use squeezy_scaler::Budget;
use squeezy_store::{OpenError, Store};
use squeezy_vmm::{Artifacts, CpuShares, VmError, heap, machine_bytes};
use state::StateError;
pub use state::{OTHER_STATE, holder};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};
use strangers::Strangers;
pub use telemetry::check_collector;
use telemetry::{Telemetry, TelemetryError, Traced};
use tenants::Tenants;
#[cfg(test)]
pub use tls::tests::make as make_certificate;
use tls::{Tls, TlsError};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
};

/// How long instances and VMs may take to end at shutdown.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// How long writing the last activations may take.
const STORE_LIMIT: Duration = Duration::from_secs(5);

/// How often it is written when keys were last used.
const KEEP_USES: Duration = Duration::from_secs(60);

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

    /// The directory of kernels and images; the default is $SQUEEZY_BUILD, else `build` of the checkout, else
    /// /usr/lib/squeezy.
    #[arg(long, value_name = "DIRECTORY")]
    build: Option<PathBuf>,
}

/// Why the daemon cannot start, as one sentence that says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration's file cannot be read.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The log's file cannot be written.
    #[error("{}: {error}; choose another `log_file`", path.display())]
    Log {
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
    /// Traces and metrics cannot be sent.
    #[error("{0}")]
    Telemetry(#[from] TelemetryError),
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

/// Serves until it is told to end.
pub async fn main(args: Args) -> Result<ExitCode, ServeError> {
    let result = serve(args).await;
    log::finish();
    result
}

async fn serve(args: Args) -> Result<ExitCode, ServeError> {
    let mut config = read(args.config.as_deref())?;
    let given: Vec<_> = args.functions.into_iter().map(FunctionEntry::from).collect();
    config.functions.extend(given.iter().cloned());
    let output = match &config.log_file {
        Some(path) => log::Output::file(path)
            .map_err(|error| ServeError::Log { path: path.clone(), error })?,
        None => log::Output::standard(),
    };
    log::send_to(output, config.log_format);
    let files = Artifacts::find(args.build.as_deref())?;
    let state = config.state_directory.clone();
    let kept = Kept::open(&state, config.actions_disk_bytes)?;
    let tenants = kept.tenants.clone();
    let tls = config.tls.clone().map(Tls::open).transpose()?;
    let listen = config.listen.clone();
    let cannot_listen = |error| ServeError::Listen { address: listen.to_string(), error };
    let listener = TcpListener::bind((listen.name.as_str(), listen.port)).await;
    let listener = listener.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    let interrupt = Interrupt::listen_as_daemon().map_err(ServeError::Signals)?;
    let hangups = signal(SignalKind::hangup()).map_err(ServeError::Signals)?;
    allow_files();
    tokio::spawn(heap::give_back());

    if let Some(warning) = more_than_there_is(config.memory_bytes, machine_bytes().ok()) {
        log_warning(&warning);
    }
    let bodies_bytes = bodies::share(config.memory_bytes);
    let bodies = Bodies::new(bodies_bytes);
    let strangers_bytes = bodies::share_for_strangers(config.memory_bytes);
    let strangers = Strangers::new(strangers_bytes);
    let store = state.join("squeezy.db");
    let store = Arc::new(Store::open(&store, config.store_limits(&bodies), log_warning)?);
    // The rest is for VMs and instances.
    let memory_bytes = config.memory_bytes.saturating_sub(bodies_bytes + strangers_bytes);
    let budget = Budget::new(memory_bytes).with_reserve(config.policy.reserve_bytes(memory_bytes));
    let (begin, watch) = (Instant::now(), Arc::new(Watch::new(memory_bytes)));
    watch.metrics.go_on(store.earlier_totals());
    let policy = config.policy.name();
    let squeezing = config.policy.squeezing(memory_bytes);
    let telemetry = config.collector.clone();
    let telemetry = telemetry.map(|to| Telemetry::start(to, begin, &watch)).transpose()?;
    let seen = Seen(watch.clone(), Log(watch.clone()));
    let observer: Arc<dyn Observer> = match &telemetry {
        Some(telemetry) => Arc::new(Traced::new(telemetry.clone(), watch.clone(), seen)),
        None => Arc::new(seen),
    };
    let node = Node::start(budget, squeezing, begin, observer);
    let functions = FunctionEntry::sharing_a_vm(&config.functions);
    let service = Service::new(
        config,
        files,
        node.clone(),
        kept,
        store.clone(),
        bodies.clone(),
        watch.failure_reasons.clone(),
    );
    let service = service.with_telemetry(telemetry.clone()).with_processors(processors());
    let service = Arc::new(service);
    for together in functions {
        let added = service.add_functions(&together).await;
        added.map_err(|(path, error)| ServeError::Function { path, error })?;
    }
    let applied = service.apply_quotas(&Namespace::guest()).await;
    applied.map_err(|error| ServeError::Internal(error.to_string()))?;
    service.go_on_deleting().await;
    service.restore().await;
    let scheme = if tls.is_some() { "https" } else { "http" };
    log_line(&format!(
        "serving on {scheme}://{address}, the key is in {}",
        state.join(KEY).display()
    ));
    let page = web::Page::new(node, service.clone(), watch, begin, policy, memory_bytes);
    let probes = Probes::new(&state, store.clone());
    let reloader = Reloader::new(args.config, given, service.clone(), tls.clone());
    tokio::spawn(reload_on(hangups, reloader.clone()));
    let router = api::router(service.clone(), bodies, strangers, reloader)
        .merge(web::router(page.clone()))
        .merge(probes::router(probes.clone()));
    let names = host::Names::new(&listen.name, address);
    let router = router.layer(middleware::from_fn_with_state(names, host::check));
    tokio::spawn(page.clone().sample());
    tokio::spawn(keep_uses(tenants.clone()));
    if let Some(telemetry) = telemetry.clone() {
        tokio::spawn(telemetry.send_metrics(page.clone()));
    }
    if let Some(tls) = tls.clone() {
        tokio::spawn(tls.follow());
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
    let _ = tenants.keep_uses().await;
    store.close(STORE_LIMIT);
    if let Some(telemetry) = telemetry {
        tokio::select! {
            () = telemetry.close() => {}
            () = interrupt.raised(2) => {}
        }
    }
    Ok(ended)
}

/// Shares of the processors for namespaces; says so if there can be none.
fn processors() -> Option<CpuShares> {
    CpuShares::start()
        .inspect_err(|error| {
            log_warning(&format!(
                "namespaces do not share the processors by their weights: {error}"
            ));
        })
        .ok()
}

/// Reads the configuration again on each SIGHUP.
async fn reload_on(mut hangups: Signal, reloader: Arc<Reloader>) {
    while hangups.recv().await.is_some() {
        match reloader.reload().await {
            Ok(reloaded) => {
                let said = reloaded.to_string();
                said.lines().for_each(|line| log_line(&format!("reload: {line}")));
            }
            Err(error) => log_warning(&format!("reload: {error}")),
        }
    }
}

/// Writes now and then when keys were last used.
async fn keep_uses(tenants: Arc<Tenants>) {
    let mut ticks = tokio::time::interval(KEEP_USES);
    loop {
        ticks.tick().await;
        if let Err(error) = tenants.keep_uses().await {
            log_warning(&format!("when keys were last used could not be written: {error}"));
        }
    }
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
    Some(format!("{problem}; {LESS_MEMORY}"))
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
        let right = "memory = 200.0 GiB, but this machine has 23.0 GiB: ";
        assert!(warning.starts_with(right), "{warning}");
    }
}
