//! Pods in VMs of the shim, through a containerd that has everything to itself: namespaces, `/run`, `/var/lib`.

mod grpc;
mod messages;
mod processes;
mod server_log;

use crate::{
    error::{BenchError, Result},
    harness::Session,
    record::Recorded,
};
use grpc::Connection;
use messages::{
    ContainerConfig, CreateContainer, Execute, Executed, Id, Name, Nothing, PodConfig, PodLinux,
    PodMetadata, PodStatusAnswer, Resources, RunPod,
};
pub(crate) use processes::{Role, processes};
pub(crate) use server_log::{Back, ServerLog};
use std::{
    collections::HashMap,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

/// Starts this program again, beside a containerd.
const SCRIPT: &str = "bench/src/rigs/containerd/enter.sh";
/// The variable that says that this is the second time.
const INSIDE: &str = "SQUEEZY_BENCH_CONTAINERD";
const SOCKET: &str = "/run/containerd/containerd.sock";
/// The variable that says where the shim's settings are.
const SETTINGS: &str = "SQUEEZY_SHIM_SETTINGS";
/// What the script has given the image for a name.
const IMAGE: &str = "docker.io/library/busybox:test";

/// How long a call may take, the boot of a VM beside others included.
const CALL_LIMIT: Duration = Duration::from_secs(180);
/// How long a container may take to answer, and VMs to end.
const LIMIT: Duration = Duration::from_secs(120);
/// How long an attempt to get an answer may take. A packet that comes too early is lost, and would be sent again only
/// after a second.
const ATTEMPT_LIMIT: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(2);

/// The client of a containerd.
pub(crate) struct Containerd {
    connection: Connection,
    /// Ids of pods, by name.
    pods: HashMap<String, String>,
}

/// How to run a pod.
pub(crate) struct Pod<'a> {
    pub(crate) name: &'a str,
    /// Pods with the same one share a VM.
    pub(crate) vm: &'a str,
    pub(crate) memory_bytes: u64,
    /// What its container's shell does: it has to begin to serve HTTP at port 80.
    pub(crate) script: &'a str,
}

/// A pod that has answered.
pub(crate) struct Started {
    /// The id of its container.
    pub(crate) container: String,
    /// Until there was a pod.
    pub(crate) pod: Duration,
    /// From there until its container was started.
    pub(crate) container_started: Duration,
    /// From there until it answered.
    pub(crate) answered: Duration,
}

impl Containerd {
    /// The containerd of this process. There is none the first time: then this program is started again beside one, and
    /// this returns only why that is not possible.
    pub(crate) async fn enter<F: Recorded>(session: &Session<F>) -> Result<Self> {
        if std::env::var_os(INSIDE).is_none() {
            return Err(enter(session.files.path()));
        }
        let connection = Connection::open(Path::new(SOCKET)).await;
        let connection = connection.map_err(|reason| BenchError::file(SOCKET, reason))?;
        Ok(Self { connection, pods: HashMap::new() })
    }

    /// Runs a pod with one container, until that answers.
    pub(crate) async fn start(&mut self, pod: &Pod<'_>) -> Result<Started> {
        let config = pod.config();
        let begin = Instant::now();
        let run = RunPod { config: Some(config.clone()), runtime_handler: "squeezy".to_owned() };
        let Id { id } = self.call(pod.name, "RunPodSandbox", &run).await?;
        self.pods.insert(pod.name.to_owned(), id.clone());
        let ran = begin.elapsed();
        let create = CreateContainer {
            pod: id.clone(),
            config: Some(ContainerConfig {
                metadata: Some(Name { name: pod.name.to_owned() }),
                image: Some(Name { name: IMAGE.to_owned() }),
                command: ["sh", "-c", pod.script].map(str::to_owned).to_vec(),
            }),
            pod_config: Some(config),
        };
        let container: Id = self.call(pod.name, "CreateContainer", &create).await?;
        let _: Nothing = self.call(pod.name, "StartContainer", &container).await?;
        let started = begin.elapsed();
        let status: PodStatusAnswer = self.call(pod.name, "PodSandboxStatus", &Id { id }).await?;
        let network = status.status.and_then(|status| status.network);
        let address = network.map(|network| network.address).unwrap_or_default();
        let answers = async {
            while !answers(&address).await {
                sleep(PAUSE).await;
            }
        };
        timeout(LIMIT, answers).await.map_err(|_| {
            failed(pod.name, format!("nobody answers at `{address}` within {LIMIT:?}"))
        })?;
        Ok(Started {
            container: container.id,
            pod: ran,
            container_started: started - ran,
            answered: begin.elapsed() - started,
        })
    }

    /// What a command in a container prints.
    pub(crate) async fn execute(&self, container: &str, command: &[&str]) -> Result<String> {
        let execute = Execute {
            container: container.to_owned(),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            timeout_seconds: LIMIT.as_secs() as i64,
        };
        let done: Executed = self.call(container, "ExecSync", &execute).await?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        match done.exit_code {
            0 => Ok(text(&done.stdout)),
            code => Err(failed(
                container,
                format!("{} has ended with {code}: {}", command.join(" "), text(&done.stderr)),
            )),
        }
    }

    /// Kills a container and waits for its end. Its pod stays.
    pub(crate) async fn kill(&self, container: &str) -> Result {
        let id = Id { id: container.to_owned() };
        // At once, as no timeout is named.
        let _: Nothing = self.call(container, "StopContainer", &id).await?;
        Ok(())
    }

    /// The log of the server of a pod that was started.
    pub(crate) fn log(&self, name: &str) -> Result<ServerLog> {
        let id = self.pods.get(name).ok_or_else(|| failed(name, "it is not there".to_owned()))?;
        ServerLog::of_pod(id)
    }

    /// Stops a pod and removes it. One that this fails for is still known, so that it can be tried again.
    pub(crate) async fn remove(&mut self, name: &str) -> Result {
        let Some(id) = self.pods.get(name).cloned() else { return Ok(()) };
        let id = Id { id };
        let _: Nothing = self.call(name, "StopPodSandbox", &id).await?;
        let _: Nothing = self.call(name, "RemovePodSandbox", &id).await?;
        self.pods.remove(name);
        Ok(())
    }

    /// Removes all pods that were started, and waits until their VMs have ended.
    pub(crate) async fn clear(&mut self) -> Result {
        let names: Vec<String> = self.pods.keys().cloned().collect();
        for name in names {
            self.remove(&name).await?;
        }
        until("no process of the shim is left", || Ok(processes()?.is_empty())).await
    }

    async fn call<A: prost::Message + Default>(
        &self,
        pod: &str,
        method: &str,
        message: &impl prost::Message,
    ) -> Result<A> {
        let path = format!("runtime.v1.RuntimeService/{method}");
        let answer = self.connection.call(&path, message, CALL_LIMIT).await;
        answer.map_err(|reason| failed(pod, format!("{method}: {reason}")))
    }
}

impl Pod<'_> {
    fn config(&self) -> PodConfig {
        PodConfig {
            metadata: Some(PodMetadata {
                name: self.name.to_owned(),
                uid: self.name.to_owned(),
                namespace: "bench".to_owned(),
            }),
            host_name: self.name.to_owned(),
            annotations: HashMap::from([("dev.squeezy/vm".to_owned(), self.vm.to_owned())]),
            linux: Some(PodLinux {
                resources: Some(Resources {
                    memory_limit_bytes: i64::try_from(self.memory_bytes).unwrap_or(i64::MAX),
                }),
            }),
        }
    }
}

/// Says what VMs are like that are booted from now on, as `/etc/squeezy/shim.toml` does otherwise.
pub(crate) fn set(settings: &str) -> Result {
    let path = std::env::var_os(SETTINGS).unwrap_or_default();
    std::fs::write(&path, settings).map_err(|error| BenchError::file(path, error))
}

/// Waits until this is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result {
    let begin = Instant::now();
    while !is_so()? {
        if begin.elapsed() > LIMIT {
            return Err(failed("that was last", format!("within {LIMIT:?}, not: {what}")));
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

/// Whether somebody answers HTTP there.
async fn answers(address: &str) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect((address, 80)).await.ok()?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.ok()?;
        let mut head = [0; 5];
        stream.read_exact(&mut head).await.ok()?;
        (head == *b"HTTP/").then_some(())
    };
    matches!(timeout(ATTEMPT_LIMIT, ask).await, Ok(Some(())))
}

/// Starts this program again, beside a containerd. Returns only why that is not possible.
fn enter(build: &Path) -> BenchError {
    let found = programs(build);
    let (script, shim, own, build) = match found {
        Ok(found) => found,
        Err(error) => return error,
    };
    let mut command = Command::new(&script);
    command.arg(shim).arg(own).args(std::env::args_os().skip(1));
    BenchError::file(script, command.env(INSIDE, "1").env("SQUEEZY_BUILD", build).exec())
}

/// The script, the shim, this program, and the build directory.
fn programs(build: &Path) -> Result<(PathBuf, PathBuf, PathBuf, PathBuf)> {
    let build = build.canonicalize().map_err(|error| BenchError::file(build, error))?;
    let own = std::env::current_exe().map_err(|e| BenchError::file("/proc/self/exe", e))?;
    let (script, shim) =
        (build.with_file_name(SCRIPT), own.with_file_name("containerd-shim-squeezy-v2"));
    if !script.exists() {
        return Err(BenchError::file(script, "it is missing: run this in a checkout"));
    }
    if !shim.exists() {
        return Err(BenchError::file(shim, "it is missing: `make programs` builds it"));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(BenchError::Arguments("containerd needs root: run this as root".to_owned()));
    }
    Ok((script, shim, own, build))
}

/// A pod does not do what it should.
pub(crate) fn failed(pod: &str, reason: String) -> BenchError {
    BenchError::Pod { pod: pod.to_owned(), reason: reason.replace('\n', " ") }
}
