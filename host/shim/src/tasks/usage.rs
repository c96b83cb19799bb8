//! What tasks use.
//!
//! containerd asks for all tasks of a node, whoever's they are, one after the other, and kubelet waits for all answers
//! together. So a VM that does not answer has a few seconds once, and not for each of its tasks.

use super::Tasks;
use crate::{
    Name,
    error::{Error, Result},
    mutex::lock,
    vm::Usage,
};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long the VM may take.
pub(super) const LIMIT: Duration = Duration::from_secs(3);
/// How long it is not asked again after it has taken longer. One that answers nothing at all is ended by then.
pub(super) const PAUSE: Duration = Duration::from_secs(20);

impl Tasks {
    /// What a task uses now.
    ///
    /// # Errors
    /// It is not there or does not run, or its VM does not say so in time, or did not shortly before, for whichever task.
    pub async fn usage(&self, name: &Name) -> Result<Usage> {
        self.running(name)?;
        let late_at = *lock(&self.usage_late_at);
        if late_at.is_some_and(|at| at.elapsed() < PAUSE) {
            return Err(late());
        }
        let asked = timeout(LIMIT, self.of_vm(self.vm.usage(&name.task)));
        asked.await.unwrap_or_else(|_| {
            *lock(&self.usage_late_at) = Some(Instant::now());
            Err(late())
        })
    }
}

fn late() -> Error {
    Error::failed(format_args!(
        "the VM has not said within {} s what its tasks use: it is asked again {} s later",
        LIMIT.as_secs(),
        PAUSE.as_secs()
    ))
}
