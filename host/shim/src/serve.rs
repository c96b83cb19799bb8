//! The server for all tasks of one VM.

use crate::{
    Id,
    error::{Error, Result},
    events::Events,
    holder,
    host::{Holder, Host},
    registry::{Registry, ServerName},
    service::Service,
    settings::Settings,
    tasks::Tasks,
    vm::Vm,
};
use containerd_shim_protos::ttrpc::r#async::{Server, transport::Listener};
use futures_util::future::BoxFuture;
use squeezy_vmm::heap;
use std::{
    ffi::OsString,
    os::unix::{ffi::OsStringExt, net::UnixListener},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};

/// The argument that makes this program a server.
pub const SERVE: &str = "serve";
/// How long a server waits for a task before it ends: for the first, and after the last if more were announced.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// How often that is looked at.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);
/// How long containerd may take for the last events.
const EVENTS_LIMIT: Duration = Duration::from_secs(5);
/// How long to wait before a place that could not be given back is to be once more.
const RELEASE_INTERVAL: Duration = Duration::from_secs(1);

/// What a server is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Where the registries are.
    pub state: PathBuf,
    /// The address of the containerd that it is for.
    pub containerd: String,
    /// containerd's namespace.
    pub namespace: Id,
    /// Its name.
    pub server: ServerName,
    /// The socket that takes events.
    pub events: String,
    /// The size of a pod's partition, in bytes.
    pub partition_bytes: u64,
    /// The control group of all pods, if kubelet has made it.
    pub cgroup_of_pods: Option<PathBuf>,
    /// What its VM is like.
    pub settings: Settings,
}

impl Assignment {
    /// The command line of the server.
    pub fn arguments(&self) -> Vec<OsString> {
        let texts = [&self.containerd, self.namespace.as_str(), self.server.as_str(), &self.events]
            .map(OsString::from);
        let mut arguments = vec![SERVE.into(), self.state.clone().into_os_string()];
        arguments.extend(texts);
        arguments.push(self.partition_bytes.to_string().into());
        let pods = self.cgroup_of_pods.as_deref().unwrap_or(Path::new(""));
        arguments.push(pods.as_os_str().to_owned());
        let settings = serde_json::to_string(&self.settings).expect("numbers can be written");
        arguments.push(settings.into());
        arguments
    }

    /// Reads what [`Self::arguments`] has written, without [`SERVE`].
    ///
    /// # Errors
    /// It is something else.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let wrong = || Error::invalid("only this program starts servers");
        let mut arguments = arguments.into_iter();
        let state = arguments.next().ok_or_else(wrong)?.into();
        let texts: Vec<String> = arguments
            .map(|argument| String::from_utf8(argument.into_vec()).map_err(|_| wrong()))
            .collect::<Result<_>>()?;
        let [containerd, namespace, server, events, partition_bytes, pods, settings] =
            <[String; 7]>::try_from(texts).map_err(|_| wrong())?;
        Ok(Self {
            state,
            containerd,
            namespace: namespace.parse()?,
            server: ServerName::parse(&server).ok_or_else(wrong)?,
            events,
            partition_bytes: partition_bytes.parse().map_err(|_| wrong())?,
            cgroup_of_pods: Some(pods).filter(|pods| !pods.is_empty()).map(PathBuf::from),
            settings: serde_json::from_str(&settings).map_err(|_| wrong())?,
        })
    }

    fn registry(&self) -> Result<Registry> {
        Registry::lock(&self.state, &self.containerd, &self.namespace)
    }

    /// The file that the server owns.
    ///
    /// # Errors
    /// As [`Registry::lock`].
    pub fn owner(&self) -> Result<PathBuf> {
        Ok(self.registry()?.owner(&self.server))
    }

    /// Where the server's log is.
    ///
    /// # Errors
    /// As [`Registry::lock`].
    pub fn log(&self) -> Result<PathBuf> {
        Ok(self.registry()?.log(&self.server))
    }
}

/// Answers containerd at this socket, for all tasks of the VM, until there are none left. `program` is executed as the
/// holders of pods.
///
/// # Errors
/// It cannot answer at this socket.
pub async fn serve(
    assignment: Assignment,
    listener: UnixListener,
    vm: Arc<dyn Vm>,
    program: PathBuf,
) -> Result<()> {
    let events = Events::new(assignment.namespace.clone());
    let entry = Arc::new(Entry { assignment, program, is_found: AtomicBool::new(true) });
    let tasks = Tasks::new(vm.clone(), entry.clone(), events.clone());
    let shutdown = Arc::new(Notify::new());

    let failed = |error: &dyn std::fmt::Display| {
        Error::failed(format_args!("cannot answer containerd: {error}"))
    };
    listener.set_nonblocking(true).map_err(|error| failed(&error))?;
    let listener = Listener::try_from(listener).map_err(|error| failed(&error))?;
    let services = Service::services(tasks.clone(), shutdown.clone());
    let mut server = Server::new().add_listener(listener).register_service(services);
    server.start().await.map_err(|error| failed(&error))?;

    let sending = {
        let (events, entry) = (events.clone(), entry.clone());
        tokio::spawn(async move { events.send(&entry.assignment.events).await })
    };
    let ending = {
        let (tasks, entry) = (tasks.clone(), entry.clone());
        tokio::spawn(async move { tasks.end_with_vm(entry.hide()).await })
    };
    // A VM has such a server for as long as it has pods.
    let giving_back = tokio::spawn(heap::give_back());
    until_unused(&tasks, &entry, &shutdown).await;
    giving_back.abort();
    tracing::info!("no task is left");
    ending.abort();
    vm.stop().await;
    if timeout(EVENTS_LIMIT, events.are_sent()).await.is_err() {
        tracing::warn!("containerd has not taken all events");
    }
    sending.abort();
    let _ = server.shutdown().await;
    Ok(())
}

/// Waits until there are no tasks and none can come any more, for as long as the settings say.
async fn until_unused(tasks: &Tasks, entry: &Arc<Entry>, shutdown: &Notify) {
    let wait = Duration::from_secs(entry.assignment.settings.idle_seconds);
    let mut used = Instant::now();
    loop {
        if !tasks.is_empty() {
            used = Instant::now();
        }
        let idle = used.elapsed();
        let may_end = tasks.is_empty() && (idle >= wait || entry.is_hidden());
        if may_end && entry.leave(idle >= wait + IDLE_LIMIT).await {
            return;
        }
        let rest = wait.saturating_sub(idle);
        let pause = if rest.is_zero() { IDLE_INTERVAL } else { rest.min(IDLE_INTERVAL) };
        tokio::select! {
            () = shutdown.notified() => {}
            () = sleep(pause) => {}
        }
    }
}

/// The server's entry in the registry.
struct Entry {
    assignment: Assignment,
    program: PathBuf,
    /// Whether the entry is this server's: once it is not found there any more, another may have its name.
    is_found: AtomicBool,
}

impl Entry {
    /// Whether it is not found any more.
    fn is_hidden(&self) -> bool {
        !self.is_found.load(Ordering::Relaxed)
    }

    /// Is not found from now on.
    async fn hide(self: &Arc<Self>) {
        self.leave(true).await;
    }

    /// Is not found from now on, unless pods have places and the server does not leave `anyway`. Returns whether it is
    /// so.
    async fn leave(self: &Arc<Self>, anyway: bool) -> bool {
        let leaving = self.act(move |entry, registry| {
            let server = &entry.assignment.server;
            let leaves = anyway || registry.is_empty(server)?;
            if leaves {
                registry.forget(server)?;
                entry.is_found.store(false, Ordering::Relaxed);
            }
            Ok(leaves)
        });
        match leaving.await {
            Ok(left) => left.unwrap_or(true),
            Err(error) => {
                tracing::error!("{error}");
                if anyway {
                    self.is_found.store(false, Ordering::Relaxed);
                }
                anyway
            }
        }
    }

    /// Does something with the locked registry, unless the entry is not found there any more. Whoever has the lock may be
    /// stopped, so this waits for it on a thread of its own: all calls share a few others.
    async fn act<T: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&Self, &Registry) -> Result<T> + Send + 'static,
    ) -> Result<Option<T>> {
        if self.is_hidden() {
            return Ok(None);
        }
        let entry = self.clone();
        let acting = move || -> Result<Option<T>> {
            let registry = entry.assignment.registry()?;
            // It may have been hidden before this had the lock.
            if entry.is_hidden() {
                return Ok(None);
            }
            act(&entry, &registry).map(Some)
        };
        spawn_blocking(acting).await.map_err(Error::failed)?
    }
}

impl Host for Entry {
    fn hold<'a>(&'a self, network: Option<&'a Path>) -> BoxFuture<'a, Result<Holder>> {
        Box::pin(holder::start(&self.program, network))
    }

    fn release(self: Arc<Self>, pod: Id) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let released = pod.clone();
                let release = self.act(move |_, registry| registry.release(&released));
                let Err(error) = release.await else { return };
                tracing::error!("pod {pod} keeps its place for now: {error}");
                sleep(RELEASE_INTERVAL).await;
            }
        })
    }

    fn limit_to_others(self: Arc<Self>, pod: Id) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let limited = self.act(move |entry, registry| {
                registry.limit_to_others(&entry.assignment.server, &pod)
            });
            if let Err(error) = limited.await {
                tracing::error!("{error}");
            }
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
