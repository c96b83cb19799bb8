//! From a specification to a running command.

use super::{
    Entry, Instances, Start,
    output::Output,
    reaper::{ExitStatus, Reaper},
    spawn::{Files, spawn},
};
use crate::{
    cgroup::Cgroup,
    error::ApiError,
    init, network,
    sandbox::{Plan, Report},
    sysfs,
};
use rustix::{
    fs::{MemfdFlags, memfd_create},
    pipe::{PipeFlags, pipe_with},
};
use squeezy_protocol::{ErrorCode, InstanceSpec, PartitionChoice};
use std::{
    fs::File,
    io::{self, Seek, Write},
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};
use tokio::{io::AsyncReadExt, net::unix::pipe::Receiver, sync::oneshot};

/// How long the sandbox may take in addition to its wait for the partition.
const SANDBOX_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a report, in bytes.
const MAX_REPORT_BYTES: u64 = 64 << 10;

/// Starts the instance. Once its command has been executed, returns a receiver for its end.
pub async fn launch(
    instances: &Instances,
    entry: &Entry,
    spec: &InstanceSpec,
    begin: Instant,
) -> Result<oneshot::Receiver<ExitStatus>, ApiError> {
    if spec.partition != PartitionChoice::None && !sysfs::present() {
        return Err(ApiError::invalid(crate::abi::AssignError::NoPartitions.to_string()));
    }
    if entry.address.is_some() && !network::is_there() {
        return Err(ApiError::invalid("network: this VM has no network"));
    }
    let lower = match spec.image {
        Some(number) => vec![
            init::image(number)
                .map_err(|error| ApiError::invalid(format!("image {number}: {error}")))?,
        ],
        None if spec.layers.is_empty() => vec!["/".to_owned()],
        None => instances.layers.directories(&spec.layers)?,
    };
    let (pid, exited, reports) = begin_sandbox(&instances.reaper, entry, spec, lower)
        .map_err(|e| ApiError::internal("starting the sandbox", e))?;
    let limit = SANDBOX_TIMEOUT + Duration::from_millis(u64::from(spec.wait_ms));
    let text = tokio::time::timeout(limit, read_reports(reports)).await.map_err(|_| {
        ApiError::internal("starting the sandbox", format!("not ready after {limit:?}"))
    })?;
    let text = text.map_err(|e| ApiError::internal("reading the sandbox's report", e))?;
    let (partition, partition_wait_ns) = understand(&text).map_err(|error| {
        if entry.stopping.get() {
            ApiError::new(ErrorCode::Unavailable, "the instance was stopped while it was starting")
        } else {
            error
        }
    })?;
    if spec.port.is_some() {
        // This fails if it has already ended, but then its server cannot be reached anyway.
        let _ = entry.remember_networks(pid);
    }
    entry.start.set(Start {
        pid,
        partition,
        partition_oom_kills: partition.and_then(sysfs::oom_kills).unwrap_or(0),
        start_ns: begin.elapsed().as_nanos() as u64,
        partition_wait_ns,
    });
    Ok(exited)
}

/// Everything up to the new process's own work. Does not wait.
fn begin_sandbox(
    reaper: &Reaper,
    entry: &Entry,
    spec: &InstanceSpec,
    lower: Vec<String>,
) -> io::Result<(u32, oneshot::Receiver<ExitStatus>, Receiver)> {
    let plan =
        plan_file(&Plan { spec: spec.clone(), lower, user: entry.user, address: entry.address })?;
    let (output, writers) = Output::start(spec.output)?;
    let (reports, report) = pipe_with(PipeFlags::CLOEXEC)?;
    let reports = Receiver::from_owned_fd(reports)?;
    let cgroup = Cgroup::create(spec)?;
    let directory = cgroup.open()?;
    // An entry is launched only once, so neither is set yet.
    let _ = entry.cgroup.set(cgroup);
    let _ = entry.output.set(output);
    let pid = spawn(&Files {
        cgroup: directory.as_fd(),
        output: writers.output(),
        error: writers.error(),
        plan: plan.as_fd(),
        report: report.as_fd(),
    })?;
    Ok((pid, reaper.end_of(pid), reports))
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
