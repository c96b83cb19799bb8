//! How many instances and requests a function has.

use crate::InstanceState;

/// Instances and requests of one function at one moment, and their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instances whose memory is being plugged or whose processes start.
    pub starting: usize,
    /// Instances that wait for a request, frozen ones included.
    pub idle: usize,
    /// Of these, the frozen ones.
    pub frozen: usize,
    /// Instances that work on one.
    pub busy: usize,
    /// Instances whose processes are being stopped.
    pub stopping: usize,
    /// Ended instances whose memory is on its way back to the host.
    pub reclaiming: usize,
    /// Ended instances whose memory the guest kept.
    pub stranded: usize,
    /// Requests that wait for an instance.
    pub queued: usize,
    /// Memory of the budget that all of these have together, in bytes.
    pub promised_bytes: u64,
}

impl Counts {
    /// Whether no instance lives or is on its way out. What a guest keeps does not count.
    pub fn is_quiet(&self) -> bool {
        self.alive() == 0
    }

    /// Instances of which there are, or will be, processes.
    pub fn alive(&self) -> usize {
        self.starting + self.idle + self.busy + self.stopping + self.reclaiming
    }

    /// The count that an instance in this state belongs to.
    pub(super) fn of(&mut self, state: InstanceState) -> &mut usize {
        match state {
            InstanceState::Starting => &mut self.starting,
            InstanceState::Idle { .. } => &mut self.idle,
            InstanceState::Busy { .. } => &mut self.busy,
            InstanceState::Stopping => &mut self.stopping,
            InstanceState::Reclaiming => &mut self.reclaiming,
            InstanceState::Stranded { .. } => &mut self.stranded,
        }
    }
}
