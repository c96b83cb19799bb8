//! A server that was found in the registry, and whether it answers.

use crate::{
    Id,
    error::{Error, Result},
    owner,
    registry::{Registry, ServerName},
};
use containerd_shim_protos::{
    api::StateRequest,
    shim_async::{Client, TaskClient},
    ttrpc::{self, r#async::transport::Socket, context},
};
use std::{fs::File, io, path::PathBuf, time::Duration};
use tokio::{
    net::UnixStream,
    runtime::{Builder, Runtime},
    time::{sleep, timeout},
};

/// How long to wait before a server is connected to again that has as many connections as it can have without looking.
const CONNECT_INTERVAL: Duration = Duration::from_millis(50);

/// A server as it was while the registry was locked: its name may be another's later.
pub(crate) struct Found {
    pub(crate) server: ServerName,
    pub(crate) socket: PathBuf,
    /// The file that it owns, if it has begun to.
    pub(crate) owned: Option<File>,
}

impl Found {
    pub(crate) fn new(registry: &Registry, server: ServerName) -> Result<Self> {
        let owned = owner::open(&registry.owner(&server)).map_err(|error| {
            Error::failed(format_args!("cannot open the owner of {}: {error}", server.as_str()))
        })?;
        Ok(Self { socket: registry.socket(&server), owned, server })
    }

    /// Whether it answers within this time, whatever it says. One that has just been started need not.
    pub(crate) fn answers(&self, task: &Id, limit: Duration) -> Result<bool> {
        if self.owned.is_none() {
            return Ok(true);
        }
        Ok(runtime()?.block_on(async { self.answer(task, limit).await.is_some() }))
    }

    /// Waits until it answers, whatever it says; nothing if it has not within this time.
    pub(crate) async fn answer(&self, task: &Id, limit: Duration) -> Option<TaskClient> {
        timeout(limit, self.ask(task, limit)).await.ok()?.ok()
    }

    async fn ask(&self, task: &Id, limit: Duration) -> ttrpc::Result<TaskClient> {
        let stream = loop {
            match UnixStream::connect(&self.socket).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    sleep(CONNECT_INTERVAL).await;
                }
                connected => break connected,
            }
        };
        let stream = stream.map_err(|error| ttrpc::Error::Socket(error.to_string()))?;
        let client = TaskClient::new(Client::new(Socket::new(stream)));
        let state = StateRequest { id: task.to_string(), ..Default::default() };
        match client.state(context::with_duration(limit), &state).await {
            Ok(_) | Err(ttrpc::Error::RpcStatus(_)) => Ok(client),
            Err(error) => Err(error),
        }
    }
}

/// What asks servers, in a program that does nothing else meanwhile.
pub(crate) fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().map_err(Error::failed)
}
