//! `delete`: what became of a task whose server is gone, hangs, or never was.

use crate::{
    error::{Error, Result},
    flags::Task,
    owner,
    registry::Registry,
    timestamp,
    vm::Signal,
};
use containerd_shim_protos::{
    api::{DeleteResponse, StateRequest},
    protobuf::{Message, MessageField},
    shim_async::{Client, TaskClient},
    ttrpc::{self, context},
};
use std::{path::Path, time::Duration};
use tokio::{runtime, time::timeout};

/// How long a server may take to answer before it is ended. containerd has waited for it in vain already, and waits 5 s for
/// this program.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// Ends the server of a task if it does not answer, with its VM, and gives back the place of a pod. Everything else of a
/// task was in its server, and went with it. Returns what to print.
///
/// # Errors
/// The registry cannot be written, or the server does not end.
pub fn delete(task: &Task, state: &Path) -> Result<Vec<u8>> {
    let registry = || Registry::lock(state, &task.address, &task.namespace);
    // Only a pod has a place there, and only its server is not found any more: others of the registry are not held up.
    let found = {
        let registry = registry()?;
        let server = registry.server_of(&task.id).ok();
        server.map(|server| (registry.socket(&server), registry.owner(&server), server))
    };
    if let Some((socket, file, server)) = found
        && !answers(&socket, task)?
    {
        let killed = owner::kill(&file).map_err(|error| {
            Error::failed(format_args!("the server {} hangs: {error}", server.as_str()))
        })?;
        if killed {
            eprintln!("the server {} has not answered, and was killed", server.as_str());
        }
    }
    registry()?.release(&task.id)?;
    let response = DeleteResponse {
        exit_status: Signal::KILL.status().into(),
        exited_at: MessageField::some(timestamp::now()),
        ..Default::default()
    };
    Ok(response.write_to_bytes().expect("a message of three fields can be written to memory"))
}

/// Whether the server at a socket answers, whatever it says.
fn answers(socket: &Path, task: &Task) -> Result<bool> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Error::failed)?;
    let state = StateRequest { id: task.id.to_string(), ..Default::default() };
    let asked = async {
        let client = Client::connect(&format!("unix://{}", socket.display())).await?;
        let limit = context::with_duration(ANSWER_LIMIT);
        TaskClient::new(client).state(limit, &state).await
    };
    let answer = runtime.block_on(async { timeout(ANSWER_LIMIT, asked).await });
    Ok(matches!(answer, Ok(Ok(_) | Err(ttrpc::Error::RpcStatus(_)))))
}
