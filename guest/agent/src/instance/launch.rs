//! From a specification to a running command.

use super::{
    Entry, Instances, Start,
    companion::Companion,
    input::Input,
    output::{Output, Writers},
    reaper::{ExitStatus, Reaper},
    spawn::{Files, start_init, start_init_beside, start_sandbox},
    terminal::Terminal,
};
use crate::{
    cgroup::Cgroup,
    error::ApiError,
    file_system::FileSystem,
    init, network,
    sandbox::{Plan, Report},
    sysfs,
};
use rustix::{
    fs::{MemfdFlags, memfd_create},
    pipe::{PipeFlags, pipe_with},
};
use squeezy_protocol::{ErrorCode, ImageNumber, InstanceSpec, PartitionChoice};
use std::{
    fs::File,
    io::{self, Seek, Write},
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{io::AsyncReadExt, net::unix::pipe::Receiver, sync::oneshot};

/// How long the sandbox may take in addition to its wait for the partition.
const SANDBOX_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a report, in bytes.
const MAX_REPORT_BYTES: u64 = 64 << 10;

/// Starts the instance, which may share things with `other`. Once its command has been executed, returns a receiver for
/// its end.
pub async fn launch(
    instances: &Instances,
    entry: &Entry,
    spec: &InstanceSpec,
    other: Option<Rc<Entry>>,
    begin: Instant,
) -> Result<oneshot::Receiver<ExitStatus>, ApiError> {
    let companion = other.map(|other| Companion::new(other, spec)).transpose()?;
    let launched = launch_with(instances, entry, spec, companion.as_ref(), begin).await;
    launched.map_err(|error| match &companion {
        Some(companion) => companion.explain(error),
        None => error,
    })
}

async fn launch_with(
    instances: &Instances,
    entry: &Entry,
    spec: &InstanceSpec,
    companion: Option<&Companion>,
    begin: Instant,
) -> Result<oneshot::Receiver<ExitStatus>, ApiError> {
    if spec.partition != PartitionChoice::None && !sysfs::present() {
        return Err(ApiError::invalid(crate::abi::AssignError::NoPartitions.to_string()));
    }
    if entry.address.is_some() && !network::is_there() {
        return Err(ApiError::invalid("network: this VM has no network"));
    }
    let lower = match spec.image {
        // The topmost first.
        Some(number) => {
            spec.code.into_iter().chain([number]).map(image).collect::<Result<Vec<_>, _>>()?
        }
        None if spec.layers.is_empty() => vec!["/".to_owned()],
        None => instances.layers.directories(&spec.layers)?,
    };
    let sources = spec.volumes.iter().map(|mount| instances.volumes.source(mount));
    let volumes = sources.collect::<Result<Vec<String>, ApiError>>()?;
    let network = spec.in_network.map(|number| instances.networks.namespace(number)).transpose()?;
    let limit = SANDBOX_TIMEOUT + Duration::from_millis(u64::from(spec.wait_ms));
    let sandbox = async {
        let sources = Sources { lower, volumes, network };
        let (exited, reports) =
            begin_sandbox(&instances.reaper, entry, spec, sources, companion).await?;
        Ok::<_, io::Error>((exited, read_reports(reports).await?))
    };
    let (exited, text) = tokio::time::timeout(limit, sandbox)
        .await
        .map_err(|_| {
            ApiError::internal("starting the sandbox", format!("not ready after {limit:?}"))
        })?
        .map_err(|e| ApiError::internal("starting the sandbox", e))?;
    let (partition, partition_wait_ns) = understand(&text).map_err(|error| {
        if entry.stopping.get() {
            ApiError::new(ErrorCode::Unavailable, "the instance was stopped while it was starting")
        } else {
            error
        }
    })?;
    let pid = entry.start.get().pid;
    if spec.port.is_some() {
        // This fails if it has already ended, but then its server cannot be reached anyway.
        let _ = entry.remember_networks(pid);
    }
    entry.start.set(Start {
        pid,
        partition,
        start_ns: begin.elapsed().as_nanos() as u64,
        partition_wait_ns,
    });
    Ok(exited)
}

fn image(number: ImageNumber) -> Result<String, ApiError> {
    init::image(number).map_err(|error| ApiError::invalid(format!("image {number}: {error}")))
}

/// What the root is made of, and the network that it is in, where the agent has them.
struct Sources {
    lower: Vec<String>,
    volumes: Vec<String>,
    network: Option<OwnedFd>,
}

/// Everything up to the new process's own work. Waits only for a process 1 beside another instance.
async fn begin_sandbox(
    reaper: &Reaper,
    entry: &Entry,
    spec: &InstanceSpec,
    sources: Sources,
    companion: Option<&Companion>,
) -> io::Result<(oneshot::Receiver<ExitStatus>, Receiver)> {
    let plan = Plan {
        spec: spec.clone(),
        lower: sources.lower,
        volumes: sources.volumes,
        user: entry.user,
        address: entry.address,
        join: match companion {
            Some(companion) => companion.to_join()?,
            None => None,
        },
    };
    let written_plan = plan_file(&plan)?;
    let (terminal, streams) = Streams::start(spec)?;
    let (reports, report) = pipe_with(PipeFlags::CLOEXEC)?;
    let reports = Receiver::from_owned_fd(reports)?;
    // An entry is launched only once, so none of these is set yet.
    let _ = entry.output.set(streams.output);
    let _ = streams.input.map(|input| entry.input.set(input));
    let _ = terminal.map(|terminal| entry.terminal.set(terminal));
    let inside = companion.filter(|companion| companion.is_inside());
    let cgroup = match inside {
        Some(other) => other.cgroup()?,
        None => {
            let beside = companion.and_then(Companion::own_cgroup);
            let cgroup = Cgroup::create(spec, beside, entry.user)?;
            let directory = cgroup.open()?;
            let _ = entry.cgroup.set(cgroup);
            directory
        }
    };
    let init = match companion {
        Some(other) if other.shares_processes() => None,
        Some(other) if other.has_partition() => {
            Some(start_init_beside(cgroup.as_fd(), other).await?)
        }
        None if spec.command.is_empty() => None,
        _ => Some(start_init(cgroup.as_fd())?),
    };
    let namespace = match (&init, companion) {
        (Some(namespace), _) => Some(namespace.as_fd()),
        (None, Some(other)) => Some(other.process().as_fd()),
        // What only keeps things for others is process 1 itself.
        (None, None) => None,
    };
    let shows_limit = spec.sees_limits && plan.is_in_partition();
    let partition_bytes = shows_limit.then(sysfs::partition_size_bytes).transpose()?;
    let create = || FileSystem::create(spec, partition_bytes);
    let file_system = spec.files_limit_changes.then(create).transpose()?;
    let files = Files {
        input: streams.reader.as_fd(),
        output: streams.writers.output(),
        error: streams.writers.error(),
        plan: written_plan.as_fd(),
        report: report.as_fd(),
        network: sources.network.as_ref().map(AsFd::as_fd),
        file_system: file_system.as_ref().map(AsFd::as_fd),
    };
    let process = start_sandbox(cgroup.as_fd(), namespace, &files, companion)?;
    let exited = reaper.end_of(process.id());
    entry.start.set(Start { pid: process.id(), ..Start::default() });
    let _ = entry.process.set(process);
    *entry.file_system.borrow_mut() = file_system;
    Ok((exited, reports))
}

/// Both ends of an instance's standard streams.
struct Streams {
    input: Option<Input>,
    reader: OwnedFd,
    output: Output,
    writers: Writers,
}

impl Streams {
    /// Makes them, and the terminal if they are one.
    fn start(spec: &InstanceSpec) -> io::Result<(Option<Rc<Terminal>>, Self)> {
        let Some(size) = spec.terminal else {
            let (input, reader) = Input::start(spec.input)?;
            let (output, writers) = Output::start(spec.output)?;
            return Ok((None, Self { input, reader, output, writers }));
        };
        let (terminal, other) = Terminal::start(size)?;
        let input = spec.input.then(|| Input::of(terminal.clone()));
        let reader = other.try_clone()?;
        let (output, writers) = Output::of(terminal.clone(), other);
        Ok((Some(terminal), Self { input, reader, output, writers }))
    }
}

/// The plan in a memfd: a pipe would hold only 64 KiB of it.
fn plan_file(plan: &Plan) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("sandbox-plan", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(plan)?)?;
    file.rewind()?;
    Ok(file.into())
}

/// Reads all reports of the sandbox. They end when the command is executed.
async fn read_reports(reports: Receiver) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    reports.take(MAX_REPORT_BYTES).read_to_end(&mut text).await?;
    Ok(text)
}

/// The partition and how many nanoseconds the wait for it took, or why there is no instance.
fn understand(text: &[u8]) -> Result<(Option<squeezy_protocol::PartitionNumber>, u64), ApiError> {
    let mut attached = None;
    for line in text.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(Report::Attached { partition, wait_ns }) => attached = Some((partition, wait_ns)),
            Ok(Report::Failed { code, message }) => return Err(ApiError::new(code, message)),
            Err(error) => return Err(ApiError::internal("reading the sandbox's report", error)),
        }
    }
    attached.ok_or_else(|| {
        ApiError::internal("starting the sandbox", "it ended without a report (out of memory?)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use squeezy_protocol::PartitionNumber;

    #[test]
    fn the_last_word_counts() {
        let attached = br#"{"attached":{"partition":2,"wait_ns":7}}"#;
        assert_eq!(understand(attached).unwrap(), (Some(PartitionNumber(2)), 7));
        let mut failed = attached.to_vec();
        failed.extend_from_slice(b"\n{\"failed\":{\"code\":\"invalid\",\"message\":\"no\"}}\n");
        assert_eq!(understand(&failed).unwrap_err().0.message, "no");
        assert_eq!(understand(b"").unwrap_err().0.code, ErrorCode::Internal);
        assert_eq!(understand(b"{").unwrap_err().0.code, ErrorCode::Internal);
    }
}
