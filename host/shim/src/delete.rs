//! `delete`: what becomes of a task that containerd has given up on.
//!
//! containerd executes this when it has lost a task's server, or has deleted the task. Whatever its server still has of
//! the task is nobody's then, and is removed.

use crate::{
    Id, cgroup,
    error::{Error, Result},
    flags::Task,
    found::{Asked, Found, Patience, runtime},
    owner,
    registry::Registry,
    spec::{Pod, Spec},
    timestamp,
    vm::Signal,
};
use containerd_shim_protos::{
    api::{DeleteResponse, ShutdownRequest},
    protobuf::{Message, MessageField},
    ttrpc::context,
};
use std::{env, path::Path, time::Duration};
use tokio::time::{Instant, timeout_at};

/// How long a server may take to answer, which containerd has waited for in vain already, before it is ended, or told what
/// to do without an answer. containerd waits 5 s for this program.
const PATIENCE: Patience =
    Patience { idle: Duration::from_secs(2), longest: Duration::from_millis(3500) };
/// How long a server is waited for until it has removed the task, from the beginning. It goes on after that.
const REMOVAL_LIMIT: Duration = Duration::from_secs(4);
/// How long it takes at the most to tell a server something, whoever may have the processor meanwhile.
const TELL_LIMIT: Duration = Duration::from_millis(100);

/// Removes what is left of a task: its server does that, with the containers of a pod. A server that hangs is
/// ended for a pod, with its VM, and the place of a pod is given back. Returns what to print.
///
/// # Errors
/// The registry cannot be read or written, or the server does not end, or cannot be told.
pub fn delete(task: &Task, state: &Path) -> Result<Vec<u8>> {
    let registry = || Registry::lock(state, &task.address, &task.namespace);
    let spec = spec_of(task);
    let pod = match &spec {
        Some(Spec::Container(pod, _)) => pod.clone(),
        _ => task.id.clone(),
    };
    let found = {
        let registry = registry()?;
        let server = registry.server_of(&pod).ok();
        server.map(|server| Found::new(&registry, server)).transpose()?
    };
    let mut ended = None;
    let is_gone = match &found {
        None => true,
        Some(found) => match found.remove(&task.id)? {
            Answer::Removed => true,
            // It gives back the place when it has done so; until then there is no room.
            Answer::Removes => false,
            Answer::None if pod == task.id => {
                found.end(&pod, registry)?;
                ended = Some(&found.server);
                true
            }
            // Its pod goes, too, if containerd has lost that; the VM of others is not ended for a container.
            Answer::None => {
                eprintln!("the server {} does not answer", found.server.as_str());
                false
            }
        },
    };
    if is_gone {
        registry()?.release(&task.id)?;
    }
    // Last, for it may take longer than containerd waits; the next server does it otherwise.
    if let (Some(server), Some(Spec::Pod(Pod { cgroup_of_pods: Some(pods), .. }))) = (ended, &spec)
        && let Err(error) = cgroup::remove_left(pods, server)
    {
        eprintln!("the control group of {}: {error}", server.as_str());
    }
    let response = DeleteResponse {
        exit_status: Signal::KILL.status().into(),
        exited_at: MessageField::some(timestamp::now()),
        ..Default::default()
    };
    Ok(response.write_to_bytes().expect("a message of three fields can be written to memory"))
}

/// What a task was to be, unless its bundle is gone: it is taken for a pod then.
fn spec_of(task: &Task) -> Option<Spec> {
    let bundle = task.bundle.clone().map_or_else(env::current_dir, Ok);
    Spec::read(&bundle.ok()?).ok()
}

/// What a server says of a task.
enum Answer {
    /// It does not have it, or not any more.
    Removed,
    /// It is on it.
    Removes,
    /// Nothing: it hangs, or is not there any more.
    None,
}

impl Found {
    /// Has the server remove a task.
    fn remove(&self, task: &Id) -> Result<Answer> {
        runtime()?.block_on(async {
            let begin = Instant::now();
            if self.ask(task, PATIENCE).await == Asked::Hangs {
                return Ok(Answer::None);
            }
            let end = || (begin + REMOVAL_LIMIT).max(Instant::now() + TELL_LIMIT);
            // A connection ends with the first answer that nobody takes, and what was not read of it by then is lost. So
            // this has one of its own: one that has not answered reads it when it comes to it, though nobody waits any more.
            let client = match timeout_at(end(), self.connect()).await {
                Ok(Ok(client)) => client,
                // It may have ended with its last task.
                Ok(Err(_)) => return Ok(Answer::Removes),
                Err(_) => {
                    return Err(Error::failed(format_args!(
                        "the server {} is too busy to be told to remove {task}",
                        self.server.as_str()
                    )));
                }
            };
            let shutdown =
                ShutdownRequest { id: task.to_string(), now: true, ..Default::default() };
            let limit = context::with_duration(REMOVAL_LIMIT);
            Ok(match timeout_at(end(), client.shutdown(limit, &shutdown)).await {
                Ok(Ok(_)) => Answer::Removed,
                // It may have ended with its last task.
                Ok(Err(_)) | Err(_) => Answer::Removes,
            })
        })
    }

    /// Ends the server, which hangs, for this pod.
    fn end(&self, pod: &Id, registry: impl FnOnce() -> Result<Registry>) -> Result<()> {
        // One that has not begun to own its file is not there yet, or never was.
        let Some(owned) = &self.owned else { return Ok(()) };
        {
            // No pod is sent there any more, even if it does not end. The place says whether the name is still its own.
            let registry = registry()?;
            if registry.server_of(pod).is_ok_and(|server| server == self.server) {
                registry.forget(&self.server)?;
            }
        }
        let killed = owner::kill(owned).map_err(|error| {
            Error::failed(format_args!("the server {} hangs: {error}", self.server.as_str()))
        })?;
        if killed {
            eprintln!("the server {} has not answered, and was killed", self.server.as_str());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
