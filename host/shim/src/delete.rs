//! `delete`: what became of a task whose server is gone, or never was.

use crate::{error::Result, flags::Task, registry::Registry, timestamp, vm::Signal};
use containerd_shim_protos::{
    api::DeleteResponse,
    protobuf::{Message, MessageField},
};
use std::path::Path;

/// Gives back the place of a pod. Everything else of a task was in its server, and went with it. Returns what to print.
///
/// # Errors
/// The registry cannot be written.
pub fn delete(task: &Task, state: &Path) -> Result<Vec<u8>> {
    Registry::lock(state, &task.address, &task.namespace)?.release(&task.id)?;
    let response = DeleteResponse {
        exit_status: Signal::KILL.status().into(),
        exited_at: MessageField::some(timestamp::now()),
        ..Default::default()
    };
    Ok(response.write_to_bytes().expect("a message of three fields can be written to memory"))
}
