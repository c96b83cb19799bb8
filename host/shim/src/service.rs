//! containerd's task API: its messages to and from [`Tasks`].
//!
//! Version 2 and 3 of the API have the same messages and differ in the service's name alone, so that one service
//! answers both. What it does not have is [UNIMPLEMENTED](crate::error::ErrorKind::Unimplemented), never the
//! "not found" of the generated code, which containerd takes for a task that is gone.

mod metrics;

use crate::{
    Name,
    error::{Error, Result},
    spec::{self, Process, Spec},
    tasks::{Create, Exit, Parts, Phase, Streams, Tasks, What},
    vm::Signal,
};
use async_trait::async_trait;
use containerd_shim_protos::{
    api,
    protobuf::{EnumOrUnknown, MessageField},
    shim_async::{Task, create_task},
    ttrpc::{
        self,
        r#async::{Service as TtrpcService, TtrpcContext},
    },
};
use squeezy_protocol::TerminalSize;
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

/// A task, or a process that was added to it.
fn name_of(id: &str, exec_id: &str) -> Result<Name> {
    let added = if exec_id.is_empty() { None } else { Some(exec_id.parse()?) };
    Ok(Name { task: id.parse()?, added })
}

/// What a request says of a process's terminal has to be what its spec says.
fn check_terminal(asked: bool, process: &Process) -> Result<()> {
    if asked == process.terminal.is_some() {
        return Ok(());
    }
    Err(Error::invalid("whether the process has a terminal is not what its spec says"))
}

fn unimplemented<T>(what: &str) -> ttrpc::Result<T> {
    Err(Error::unimplemented(format_args!("{what} is not supported by this runtime")).into())
}

fn create_of(request: &api::CreateTaskRequest) -> Result<Create> {
    if !request.checkpoint.is_empty() {
        return Err(Error::unsupported(
            "starting from a checkpoint is not supported by this runtime",
        ));
    }
    let id = request.id.parse()?;
    let bundle = PathBuf::from(&request.bundle);
    let spec = Spec::read(&bundle)?;
    let parts = |spec: spec::Container| {
        check_terminal(request.terminal, &spec.process)?;
        Ok::<_, Error>(Parts { spec, layers: spec::layers(&request.rootfs)? })
    };
    let what = match spec {
        Spec::Pod(pod) => What::Pod(pod),
        Spec::Container(pod, container) => What::Container(pod, parts(container)?),
        Spec::Single(pod, container) => What::Single(pod, parts(container)?),
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
        let name = name_of(&request.id, &request.exec_id)?;
        let tasks = self.tasks.clone();
        let pid = Self::to_end(async move { tasks.start(&name).await }).await?;
        Ok(api::StartResponse { pid, ..Default::default() })
    }

    async fn state(
        &self,
        _: &TtrpcContext,
        request: api::StateRequest,
    ) -> ttrpc::Result<api::StateResponse> {
        let task = self.tasks.snapshot(&name_of(&request.id, &request.exec_id)?)?;
        let status = match task.phase {
            Phase::Creating | Phase::Created => api::Status::CREATED,
            Phase::Running => api::Status::RUNNING,
            Phase::Pausing => api::Status::PAUSING,
            Phase::Paused => api::Status::PAUSED,
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
            terminal: task.has_terminal,
            exit_status,
            exited_at,
            exec_id: request.exec_id,
            ..Default::default()
        })
    }

    async fn wait(
        &self,
        _: &TtrpcContext,
        request: api::WaitRequest,
    ) -> ttrpc::Result<api::WaitResponse> {
        let exit = self.tasks.wait(&name_of(&request.id, &request.exec_id)?).await?;
        let (exit_status, exited_at) = times(Some(&exit));
        Ok(api::WaitResponse { exit_status, exited_at, ..Default::default() })
    }

    async fn kill(&self, _: &TtrpcContext, request: api::KillRequest) -> ttrpc::Result<api::Empty> {
        let name = name_of(&request.id, &request.exec_id)?;
        let signal = Signal::new(request.signal).ok_or_else(|| {
            Error::invalid(format_args!("{} is no signal: they are 1 to 64", request.signal))
        })?;
        let tasks = self.tasks.clone();
        Self::to_end(async move { tasks.kill(&name, signal, request.all).await }).await?;
        Ok(api::Empty::new())
    }

    async fn delete(
        &self,
        _: &TtrpcContext,
        request: api::DeleteRequest,
    ) -> ttrpc::Result<api::DeleteResponse> {
        let name = name_of(&request.id, &request.exec_id)?;
        let tasks = self.tasks.clone();
        let (pid, exit) = Self::to_end(async move { tasks.delete(&name).await }).await?;
        let (exit_status, exited_at) = times(Some(&exit));
        Ok(api::DeleteResponse { pid, exit_status, exited_at, ..Default::default() })
    }

    async fn pids(
        &self,
        _: &TtrpcContext,
        request: api::PidsRequest,
    ) -> ttrpc::Result<api::PidsResponse> {
        let listed = self.tasks.processes(&name_of(&request.id, "")?).await?;
        let processes = listed.into_iter().map(metrics::process).collect();
        Ok(api::PidsResponse { processes, ..Default::default() })
    }

    async fn stats(
        &self,
        _: &TtrpcContext,
        request: api::StatsRequest,
    ) -> ttrpc::Result<api::StatsResponse> {
        let usage = self.tasks.usage(&name_of(&request.id, "")?).await?;
        let stats = metrics::metrics(usage)?;
        Ok(api::StatsResponse { stats: MessageField::some(stats), ..Default::default() })
    }

    async fn update(
        &self,
        _: &TtrpcContext,
        request: api::UpdateTaskRequest,
    ) -> ttrpc::Result<api::Empty> {
        let name = name_of(&request.id, "")?;
        let limits = spec::update(&request.resources.value)?;
        let tasks = self.tasks.clone();
        Self::to_end(async move { tasks.update(&name, limits).await }).await?;
        Ok(api::Empty::new())
    }

    async fn connect(
        &self,
        _: &TtrpcContext,
        request: api::ConnectRequest,
    ) -> ttrpc::Result<api::ConnectResponse> {
        let task_pid = self.tasks.snapshot(&name_of(&request.id, "")?)?.pid;
        Ok(api::ConnectResponse { shim_pid: process::id(), task_pid, ..Default::default() })
    }

    /// containerd says this for each task that it has deleted. The server ends with the last. `now` is said by
    /// [`delete`](crate::delete) alone, of a task that containerd has given up on: it is removed first.
    async fn shutdown(
        &self,
        _: &TtrpcContext,
        request: api::ShutdownRequest,
    ) -> ttrpc::Result<api::Empty> {
        let removed = if request.now { Some(name_of(&request.id, "")?) } else { None };
        let (tasks, shutdown) = (self.tasks.clone(), self.shutdown.clone());
        Self::to_end(async move {
            if let Some(name) = removed {
                tasks.remove(&name).await;
            }
            shutdown.notify_one();
            Ok(())
        })
        .await?;
        Ok(api::Empty::new())
    }

    /// Only standard input is ever closed so.
    async fn close_io(
        &self,
        _: &TtrpcContext,
        request: api::CloseIORequest,
    ) -> ttrpc::Result<api::Empty> {
        let name = name_of(&request.id, &request.exec_id)?;
        if request.stdin {
            self.tasks.close_input(&name)?;
        } else {
            self.tasks.snapshot(&name)?;
        }
        Ok(api::Empty::new())
    }

    async fn pause(
        &self,
        _: &TtrpcContext,
        request: api::PauseRequest,
    ) -> ttrpc::Result<api::Empty> {
        let name = name_of(&request.id, "")?;
        let tasks = self.tasks.clone();
        Self::to_end(async move { tasks.pause(&name).await }).await?;
        Ok(api::Empty::new())
    }

    async fn resume(
        &self,
        _: &TtrpcContext,
        request: api::ResumeRequest,
    ) -> ttrpc::Result<api::Empty> {
        let name = name_of(&request.id, "")?;
        let tasks = self.tasks.clone();
        Self::to_end(async move { tasks.resume(&name).await }).await?;
        Ok(api::Empty::new())
    }

    async fn exec(
        &self,
        _: &TtrpcContext,
        request: api::ExecProcessRequest,
    ) -> ttrpc::Result<api::Empty> {
        let name = name_of(&request.id, &request.exec_id)?;
        if name.added.is_none() {
            return Err(Error::invalid("a process that is added to a task has an id").into());
        }
        let process = spec::added_process(&request.spec.value)?;
        check_terminal(request.terminal, &process)?;
        let streams =
            Streams { stdin: request.stdin, stdout: request.stdout, stderr: request.stderr };
        let tasks = self.tasks.clone();
        Self::to_end(async move { tasks.add(&name, process, streams).await }).await?;
        Ok(api::Empty::new())
    }

    async fn resize_pty(
        &self,
        _: &TtrpcContext,
        request: api::ResizePtyRequest,
    ) -> ttrpc::Result<api::Empty> {
        let name = name_of(&request.id, &request.exec_id)?;
        let number = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        let size = TerminalSize { columns: number(request.width), rows: number(request.height) };
        let tasks = self.tasks.clone();
        Self::to_end(async move { tasks.resize(&name, size).await }).await?;
        Ok(api::Empty::new())
    }

    async fn checkpoint(
        &self,
        _: &TtrpcContext,
        _: api::CheckpointTaskRequest,
    ) -> ttrpc::Result<api::Empty> {
        unimplemented("checkpoint")
    }
}
