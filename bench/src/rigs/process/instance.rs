//! An instance: a runtime with its squeezer, as a process.

use super::{
    function::NativeFunction,
    group::{Group, Limits},
    port::Port,
};
use crate::{
    error::{BenchError, Result},
    harness::processor::spent_ns,
};
use rustix::process::Signal;
use squeezer::{Answer, Deadline, Hello, Memory, Process, Request, Run, Squeezer, libraries};
use squeezy_openwhisk::contract;
use std::{
    fs::{self, File},
    net::TcpStream,
    os::unix::process::CommandExt,
    process::{Child, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Interval of checks whether an instance listens, or has stopped.
const PAUSE: Duration = Duration::from_millis(2);

/// The limit for a squeezer, and for the kernel to stop a process and count its memory.
const LIMIT: Duration = Duration::from_secs(60);

/// The largest response that is read.
const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// How to start an instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// The memory limit given to its runtime, and to its cgroup if there is one.
    pub(crate) memory_bytes: u64,
    /// Its share of a processor, if cgroups can set one.
    pub(crate) processors: f64,
    /// Whether it collects garbage after each request.
    pub(crate) eager: bool,
}

/// A call with a correct response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) latency: Duration,
    /// CPU time of all threads of the instance during the call.
    pub(crate) cpu_ns: u64,
}

/// The result of a squeeze.
#[derive(Clone, Debug)]
pub(crate) struct Squeezed {
    pub(crate) answer: Answer,
    pub(crate) hello: Hello,
}

impl Squeezed {
    /// The runtime, its version and its collector.
    pub(crate) fn runtime(&self) -> String {
        let Hello { runtime, runtime_version, collector, .. } = &self.hello;
        let collector = collector.as_deref().unwrap_or("no collector");
        format!("{runtime} {runtime_version} {collector}")
    }
}

/// An instance that has answered `/init`. Dropping it ends its process, even if frozen.
///
/// Blocking operations run on another thread, so that instances can be used concurrently and Ctrl-C
/// is handled.
#[derive(Debug)]
pub(crate) struct Instance {
    function: Arc<NativeFunction>,
    child: Child,
    process: Process,
    group: Arc<Group>,
    processors: f64,
    /// Contains its socket and its output.
    directory: TempDir,
    port: Port,
    client: ureq::Agent,
}

impl Instance {
    /// Starts an instance and waits until it has answered `/init`.
    pub(crate) async fn start(function: &Arc<NativeFunction>, setup: Setup) -> Result<Self> {
        let instance = Self::spawn(function, setup)?;
        let (process, address) = (instance.process.clone(), instance.port.address);
        let limit = function.function.init_timeout;
        let deadline = Instant::now() + limit;
        let listens = instance
            .blocking(move || {
                while TcpStream::connect_timeout(&address, limit).is_err() {
                    if process.has_ended() {
                        return Err("it has exited".to_owned());
                    }
                    if Instant::now() > deadline {
                        return Err("it did not listen in time".to_owned());
                    }
                    thread::sleep(PAUSE);
                }
                Ok(())
            })
            .await;
        listens.map_err(|error| instance.with_last_words(error))?;
        let request = contract::init(&function.name);
        let answer = instance.exchange(request, limit).await?;
        match answer.status() {
            http::StatusCode::OK => Ok(instance),
            status => Err(instance.failed(format!("/init: {status}"))),
        }
    }

    fn spawn(function: &Arc<NativeFunction>, setup: Setup) -> Result<Self> {
        let failed = |reason: String| failed(function, reason);
        let directory = tempfile::tempdir().map_err(|e| failed(e.to_string()))?;
        let port = Port::reserve().map_err(|e| failed(format!("a port: {e}")))?;
        let log = File::create(directory.path().join("log"))
            .and_then(|log| Ok((log.try_clone()?, log)))
            .map_err(|e| failed(e.to_string()))?;
        let Setup { memory_bytes, processors, eager } = setup;
        let group = Group::create(Limits { processors, memory_bytes });
        let mut command = function.command();
        command
            .env("PORT", port.address.port().to_string())
            .env("MEMORY_LIMIT", memory_bytes.to_string())
            .env("SQUEEZER_SOCKET", directory.path().join("squeezer.sock"))
            .env_remove("EAGER_GC")
            .envs(eager.then_some(("EAGER_GC", "1")))
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(log.0)
            .stderr(log.1)
            // Ctrl-C is for this program to handle.
            .process_group(0);
        let child = group.hold(&mut command).and_then(|()| command.spawn());
        let mut child = child.map_err(|e| failed(format!("it cannot be started: {e}")))?;
        let process = Process::open(child.id()).map_err(|e| {
            end(&group, &mut child);
            with_last_words(failed(e.to_string()), &directory)
        })?;
        Ok(Self {
            function: function.clone(),
            child,
            process,
            group: Arc::new(group),
            processors,
            directory,
            port,
            client: ureq::Agent::config_builder()
                .http_status_as_error(false)
                // An instance that was frozen for long may have closed an idle connection.
                .max_idle_connections(0)
                .build()
                .new_agent(),
        })
    }

    /// Calls the function with its own request and checks the response.
    pub(crate) async fn call(&self) -> Result<Call> {
        let NativeFunction { name, function, value, .. } = &*self.function;
        let limit = function.run_timeout;
        let request = contract::run(name, "0", value, None, limit);
        let (cpu_before, start) = (self.cpu_ns()?, Instant::now());
        let answer = self.exchange(request, limit).await?;
        let latency = start.elapsed();
        let cpu_ns = self.cpu_ns()?.saturating_sub(cpu_before);
        match contract::problem(function, &answer.map(Into::into)) {
            None => Ok(Call { latency, cpu_ns }),
            Some(problem) => Err(self.failed(format!("a wrong answer: {problem}"))),
        }
    }

    /// Stops all its threads until it is thawed.
    pub(crate) async fn freeze(&self) -> Result {
        let (group, process) = (self.group.clone(), self.process.clone());
        self.blocking(move || {
            if group.freeze(true).map_err(|e| e.to_string())? {
                return Ok(());
            }
            process.signal(Signal::STOP).map_err(|e| e.to_string())?;
            let deadline = Deadline::after(LIMIT);
            while process.run().map_err(|e| e.to_string())? == Run::Running {
                deadline.check("stopping it").map_err(|e| e.to_string())?;
                thread::sleep(PAUSE);
            }
            Ok(())
        })
        .await
    }

    /// Lets it run again.
    pub(crate) async fn thaw(&self) -> Result {
        let (group, process) = (self.group.clone(), self.process.clone());
        self.blocking(move || match group.freeze(false).map_err(|e| e.to_string())? {
            true => Ok(()),
            false => process.signal(Signal::CONT).map_err(|e| e.to_string()),
        })
        .await
    }

    /// Measures its memory.
    pub(crate) async fn memory(&self) -> Result<Memory> {
        let process = self.process.clone();
        self.blocking(move || {
            Memory::of(&process, Deadline::after(LIMIT)).map_err(|e| e.to_string())
        })
        .await
    }

    /// Has its squeezer collect garbage and give free memory back. It must not be frozen.
    pub(crate) async fn squeeze(&self, request: Request) -> Result<Squeezed> {
        let process = self.process.clone();
        self.blocking(move || {
            let deadline = Deadline::after(LIMIT);
            let mut squeezer = Squeezer::of(&process, deadline).map_err(|e| e.to_string())?;
            let answer = squeezer.squeeze(&request, deadline).map_err(|e| e.to_string())?;
            Ok(Squeezed { answer, hello: squeezer.hello().clone() })
        })
        .await
    }

    /// Evicts the pages of its libraries that no other process maps. It should be frozen.
    pub(crate) async fn evict_libraries(&self) -> Result<libraries::Evicted> {
        let process = self.process.clone();
        self.blocking(move || {
            libraries::evict(&process, Deadline::after(LIMIT)).map_err(|e| e.to_string())
        })
        .await
    }

    /// CPU time of all its threads so far.
    pub(crate) fn cpu_ns(&self) -> Result<u64> {
        spent_ns(self.process.pid()).map_err(|error| self.failed(error.to_string()))
    }

    /// Its process.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Its share of a processor, if that is enforced.
    pub(crate) fn processors(&self) -> Option<f64> {
        self.group.limits_processors.then_some(self.processors)
    }

    /// Sends a request and waits for the response.
    async fn exchange(
        &self,
        request: http::Request<impl AsRef<[u8]>>,
        limit: Duration,
    ) -> Result<http::Response<Vec<u8>>> {
        let (mut parts, body) = request.into_parts();
        let address = format!("http://{}{}", self.port.address, parts.uri);
        parts.uri = address.parse().map_err(|e| self.failed(format!("{address}: {e}")))?;
        let request = http::Request::from_parts(parts, body.as_ref().to_vec());
        let client = self.client.clone();
        self.blocking(move || {
            let request = client.configure_request(request).timeout_global(Some(limit)).build();
            let (parts, mut body) = client.run(request).map_err(|e| e.to_string())?.into_parts();
            let body = body.with_config().limit(MAX_ANSWER_BYTES).read_to_vec();
            Ok(http::Response::from_parts(parts, body.map_err(|e| e.to_string())?))
        })
        .await
        .map_err(|error| self.with_last_words(error))
    }

    /// Runs `work` without blocking other tasks.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T> {
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result.map_err(|reason| self.failed(reason)),
            Err(error) => Err(self.failed(error.to_string())),
        }
    }

    /// Adds the last line of the instance's output to an error.
    fn with_last_words(&self, error: BenchError) -> BenchError {
        with_last_words(error, &self.directory)
    }

    fn failed(&self, reason: String) -> BenchError {
        failed(&self.function, reason)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        end(&self.group, &mut self.child);
    }
}

fn end(group: &Group, child: &mut Child) {
    group.kill();
    // If it has exited already, this only reaps it.
    let _ = child.kill();
    let _ = child.wait();
}

fn failed(function: &NativeFunction, reason: String) -> BenchError {
    BenchError::Instance { function: function.name.clone(), reason }
}

/// Adds the last line of an instance's output, in its directory, to an error.
fn with_last_words(error: BenchError, directory: &TempDir) -> BenchError {
    let log = fs::read(directory.path().join("log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let is_word = |line: &&str| {
        let line = line.trim();
        !line.is_empty() && line != contract::END_OF_ACTIVATION
    };
    match (error, log.lines().rfind(is_word)) {
        (BenchError::Instance { function, reason }, Some(line)) => {
            let reason = format!("{reason}; its last output: {:.200}", line.trim());
            BenchError::Instance { function, reason }
        }
        (error, _) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Language, function::find},
        *,
    };
    use crate::{executable::write_script, skip::skip};
    use std::path::Path;

    const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    const SETUP: Setup = Setup { memory_bytes: 128 << 20, processors: 1.0, eager: false };

    /// A build directory with the squeezer from the repository, which works without its addon.
    fn build() -> TempDir {
        let directory = tempfile::tempdir().unwrap();
        let squeezers = directory.path().join("squeezers");
        fs::create_dir(&squeezers).unwrap();
        let squeezer = Path::new(REPOSITORY).join("squeezers/v8");
        std::os::unix::fs::symlink(squeezer, squeezers.join("v8")).unwrap();
        directory
    }

    #[tokio::test]
    async fn an_instance_that_cannot_start_says_why() {
        let (functions, build) = (tempfile::tempdir().unwrap(), build());
        let folder = functions.path().join("javascript");
        fs::create_dir_all(folder.join("pi")).unwrap();
        let definition = Path::new(REPOSITORY).join("functions/javascript/pi/function.toml");
        fs::copy(definition, folder.join("pi/function.toml")).unwrap();
        let script = "echo \"no luck with $1 at ${PORT:+a port}\"";
        write_script(&folder.join("run.sh"), script);
        let function = find(functions.path(), build.path(), Language::JavaScript, "pi").unwrap();
        let error = Instance::start(&function, SETUP).await.unwrap_err().to_string();
        assert!(error.ends_with("no luck with pi at a port") && !error.contains('\n'), "{error}");
    }

    #[tokio::test]
    async fn an_instance_is_frozen_squeezed_and_ended() {
        if !std::process::Command::new("node").arg("-v").status().is_ok_and(|s| s.success()) {
            return skip("there is no node: apt-get install nodejs");
        }
        let (functions, build) = (Path::new(REPOSITORY).join("functions"), build());
        let function = find(&functions, build.path(), Language::JavaScript, "pi").unwrap();
        let instance = Instance::start(&function, SETUP).await.unwrap();
        assert!(instance.call().await.unwrap().cpu_ns > 0);

        instance.freeze().await.unwrap();
        let memory = instance.memory().await.unwrap();
        assert!(memory.uss_bytes > 0 && memory.uss_bytes <= memory.rss_bytes);
        let call = tokio::time::timeout(Duration::from_millis(300), instance.call()).await;
        assert!(call.is_err(), "a frozen instance has answered");
        instance.thaw().await.unwrap();

        let squeezed = instance.squeeze(Request::default()).await.unwrap();
        assert!(squeezed.runtime().starts_with("v8 "), "{}", squeezed.runtime());
        assert!(squeezed.answer.live_bytes > 0);
        instance.call().await.unwrap();

        let process = instance.process().clone();
        instance.freeze().await.unwrap();
        drop(instance);
        assert!(process.has_ended());
    }
}
