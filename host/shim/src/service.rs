//! containerd's task API: its messages to and from [`Tasks`].
//!
//! Version 2 and 3 of the API have the same messages and differ in the service's name alone, so that one service
//! answers both. What it does not have is [UNIMPLEMENTED](crate::error::ErrorKind::Unimplemented), never the
//! "not found" of the generated code, which containerd takes for a task that is gone.

mod limits;

use crate::{
    Id,
    error::{Error, Result},
    spec::{self, Role, Spec},
    tasks::{Create, Exit, Phase, Root, Streams, Tasks, What},
    vm::Signal,
};
use async_trait::async_trait;
use containerd_shim_protos::{
    api,
    cgroups_v2::metrics::{CPUStat, MemoryStat, Metrics, PidsStat},
    protobuf::{EnumOrUnknown, Message, MessageField, well_known_types::any::Any},
    shim_async::{Task, create_task},
    ttrpc::{
        self,
        r#async::{Service as TtrpcService, TtrpcContext},
    },
};
use std::{collections::HashMap, path::PathBuf, process, sync::Arc};
use tokio::sync::Notify;

/// The task API of one server.
pub struct Service {
    tasks: Arc<Tasks>,
    /// Told when containerd says that a task's shim may end.
    shutdown: Arc<Notify>,
}

impl Service {
    /// The services to register with a ttrpc server.
    pub fn services(tasks: Arc<Tasks>, shutdown: Arc<Notify>) -> HashMap<String, TtrpcService> {
        let service = Arc::new(Self { tasks, shutdown });
        let mut services = create_task(service.clone());
        services.extend(
            create_task(service)
                .into_values()
                .map(|service| ("containerd.task.v2.Task".to_owned(), service)),
        );
        services
    }

    /// Makes a call to its end, also if containerd does not wait for it: a task is never left between two states.
    async fn to_end<T: Send + 'static>(
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> ttrpc::Result<T> {
        match tokio::spawn(call).await {
            Ok(result) => Ok(result?),
            Err(error) => Err(Error::failed(format_args!("the shim has a bug: {error}")).into()),
        }
    }
}

/// The id of a task, not of a process that was added to it.
fn id_of(id: &str, exec_id: &str) -> Result<Id> {
    if exec_id.is_empty() {
        id.parse()
    } else {
        Err(Error::unimplemented("exec is not supported by this runtime"))
    }
}

fn unimplemented<T>(what: &str) -> ttrpc::Result<T> {
    Err(Error::unimplemented(format_args!("{what} is not supported by this runtime")).into())
}

fn create_of(request: &api::CreateTaskRequest) -> Result<Create> {
    if request.terminal {
        return Err(Error::unimplemented(
            "a terminal (tty: true) is not supported by this runtime",
        ));
    }
    if !request.checkpoint.is_empty() {
        return Err(Error::unimplemented(
            "starting from a checkpoint is not supported by this runtime",
        ));
    }
    let id = request.id.parse()?;
    let bundle = PathBuf::from(&request.bundle);
    let spec = Spec::read(&bundle)?;
    let root = |process| Ok::<_, Error>(Root { process, layers: spec::layers(&request.rootfs)? });
    let what = match (spec.role, spec.process) {
        (Role::Pod(pod), _) => What::Pod(pod),
        (Role::Container(pod), Some(process)) => What::Container(pod, root(process)?),
        (Role::Single(pod), Some(process)) => What::Single(pod, root(process)?),
        (Role::Container(_) | Role::Single(_), None) => {
            return Err(Error::invalid("the spec has no process"));
        }
    };
    let streams = Streams {
        stdin: request.stdin.clone(),
        stdout: request.stdout.clone(),
        stderr: request.stderr.clone(),
    };
    Ok(Create { id, what, bundle, streams })
}

fn times(
    exit: Option<&Exit>,
) -> (u32, MessageField<containerd_shim_protos::protobuf::well_known_types::timestamp::Timestamp>) {
    (exit.map_or(0, |exit| exit.status.into()), exit.map(|exit| exit.at.clone()).into())
}

#[async_trait]
impl Task for Service {
    async fn create(
        &self,
        _: &TtrpcContext,
        request: api::CreateTaskRequest,
    ) -> ttrpc::Result<api::CreateTaskResponse> {
        let tasks = self.tasks.clone();
        let pid =
            Self::to_end(async move { tasks.create(create_of(&request)?, request.rootfs).await })
                .await?;
        Ok(api::CreateTaskResponse { pid, ..Default::default() })
    }

    async fn start(
        &self,
        _: &TtrpcContext,
        request: api::StartRequest,
    ) -> ttrpc::Result<api::StartResponse> {
        let id = id_of(&request.id, &request.exec_id)?;
        let tasks = self.tasks.clone();
        let pid = Self::to_end(async move { tasks.start(&id).await }).await?;
        Ok(api::StartResponse { pid, ..Default::default() })
    }

    async fn state(
        &self,
        _: &TtrpcContext,
        request: api::StateRequest,
    ) -> ttrpc::Result<api::StateResponse> {
        let task = self.tasks.snapshot(&id_of(&request.id, &request.exec_id)?)?;
        let status = match task.phase {
            Phase::Creating | Phase::Created => api::Status::CREATED,
            Phase::Running => api::Status::RUNNING,
            Phase::Stopped => api::Status::STOPPED,
        };
        let (exit_status, exited_at) = times(task.exit.as_ref());
        Ok(api::StateResponse {
            id: request.id,
            bundle: task.bundle.display().to_string(),
            pid: task.pid,
            status: EnumOrUnknown::new(status),
            stdin: task.streams.stdin,
            stdout: task.streams.stdout,
            stderr: task.streams.stderr,
            exit_status,
            exited_at,
            ..Default::default()
        })
    }

    async fn wait(
        &self,
        _: &TtrpcContext,
        request: api::WaitRequest,
    ) -> ttrpc::Result<api::WaitResponse> {
        let exit = self.tasks.wait(&id_of(&request.id, &request.exec_id)?).await?;
        let (exit_status, exited_at) = times(Some(&exit));
        Ok(api::WaitResponse { exit_status, exited_at, ..Default::default() })
    }

    async fn kill(&self, _: &TtrpcContext, request: api::KillRequest) -> ttrpc::Result<api::Empty> {
        let id = id_of(&request.id, &request.exec_id)?;
        let signal = Signal::new(request.signal).ok_or_else(|| {
            Error::invalid(format_args!("{} is no signal: they are 1 to 64", request.signal))
        })?;
        let tasks = self.tasks.clone();
        Self::to_end(async move { tasks.kill(&id, signal, request.all).await }).await?;
        Ok(api::Empty::new())
    }

    async fn delete(
        &self,
        _: &TtrpcContext,
        request: api::DeleteRequest,
    ) -> ttrpc::Result<api::DeleteResponse> {
        let id = id_of(&request.id, &request.exec_id)?;
        let tasks = self.tasks.clone();
        let (pid, exit) = Self::to_end(async move { tasks.delete(&id).await }).await?;
        let (exit_status, exited_at) = times(Some(&exit));
        Ok(api::DeleteResponse { pid, exit_status, exited_at, ..Default::default() })
    }

    async fn pids(
        &self,
        _: &TtrpcContext,
        request: api::PidsRequest,
    ) -> ttrpc::Result<api::PidsResponse> {
        let pid = self.tasks.snapshot(&id_of(&request.id, "")?)?.pid;
        let process = api::ProcessInfo { pid, ..Default::default() };
        Ok(api::PidsResponse { processes: vec![process], ..Default::default() })
    }

    async fn stats(
        &self,
        _: &TtrpcContext,
        request: api::StatsRequest,
    ) -> ttrpc::Result<api::StatsResponse> {
        let usage = self.tasks.usage(&id_of(&request.id, "")?).await?;
        // Those of cgroup v2, whichever the host has: all that ask understand them.
        let metrics = Metrics {
            memory: MessageField::some(MemoryStat {
                usage: usage.memory_bytes,
                usage_limit: usage.memory_limit_bytes,
                ..Default::default()
            }),
            cpu: MessageField::some(CPUStat { usage_usec: usage.cpu_us, ..Default::default() }),
            pids: MessageField::some(PidsStat { current: usage.processes, ..Default::default() }),
            ..Default::default()
        };
        let value = metrics
            .write_to_bytes()
            .map_err(|error| Error::failed(format_args!("metrics: {error}")))?;
        let stats = Any {
            type_url: "io.containerd.cgroups.v2.Metrics".to_owned(),
            value,
            ..Default::default()
        };
        Ok(api::StatsResponse { stats: MessageField::some(stats), ..Default::default() })
    }

    async fn update(
        &self,
        _: &TtrpcContext,
        request: api::UpdateTaskRequest,
    ) -> ttrpc::Result<api::Empty> {
        let id = id_of(&request.id, "")?;
        let limits = limits::parse(&request.resources.value)?;
        let tasks = self.tasks.clone();
        Self::to_end(async move { tasks.update(&id, limits).await }).await?;
        Ok(api::Empty::new())
    }

    async fn connect(
        &self,
        _: &TtrpcContext,
        request: api::ConnectRequest,
    ) -> ttrpc::Result<api::ConnectResponse> {
        let task_pid = self.tasks.snapshot(&id_of(&request.id, "")?)?.pid;
        Ok(api::ConnectResponse { shim_pid: process::id(), task_pid, ..Default::default() })
    }

    /// containerd says this for each task that it has deleted. The server ends with the last.
    async fn shutdown(
        &self,
        _: &TtrpcContext,
        _: api::ShutdownRequest,
    ) -> ttrpc::Result<api::Empty> {
        self.shutdown.notify_one();
        Ok(api::Empty::new())
    }

    /// Processes have no standard input, so that there is nothing to close.
    async fn close_io(
        &self,
        _: &TtrpcContext,
        request: api::CloseIORequest,
    ) -> ttrpc::Result<api::Empty> {
        self.tasks.snapshot(&id_of(&request.id, &request.exec_id)?)?;
        Ok(api::Empty::new())
    }

    async fn pause(&self, _: &TtrpcContext, _: api::PauseRequest) -> ttrpc::Result<api::Empty> {
        unimplemented("pause")
    }

    async fn resume(&self, _: &TtrpcContext, _: api::ResumeRequest) -> ttrpc::Result<api::Empty> {
        unimplemented("resume")
    }

    async fn exec(
        &self,
        _: &TtrpcContext,
        _: api::ExecProcessRequest,
    ) -> ttrpc::Result<api::Empty> {
        unimplemented("exec")
    }

    async fn resize_pty(
        &self,
        _: &TtrpcContext,
        _: api::ResizePtyRequest,
    ) -> ttrpc::Result<api::Empty> {
        unimplemented("a terminal")
    }

    async fn checkpoint(
        &self,
        _: &TtrpcContext,
        _: api::CheckpointTaskRequest,
    ) -> ttrpc::Result<api::Empty> {
        unimplemented("checkpoint")
    }
}
