//! How many instances and requests a function has.

use crate::InstanceState;

/// Instances and requests of one function at one moment, and their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instances whose memory is being plugged or whose processes are starting.
    pub starting: usize,
    /// Instances without a request, including frozen ones.
    pub idle: usize,
    /// The frozen ones among these.
    pub frozen: usize,
    /// Instances of paused VMs that have lost their memory, or are losing it.
    pub condemned: usize,
    /// Instances serving a request.
    pub busy: usize,
    /// Instances whose processes are being stopped.
    pub stopping: usize,
    /// Stopped instances whose memory is on its way back to the host.
    pub reclaiming: usize,
    /// Stopped instances whose memory the guest kept.
    pub stranded: usize,
    /// Requests waiting for an instance.
    pub queued: usize,
    /// Instances that are kept up while calls leave memory for them.
    pub minimum: usize,
    /// Memory charged to all of these together, in bytes.
    pub promised_bytes: u64,
}

impl Counts {
    /// Whether no instance is alive or being removed. Memory that a guest kept does not count.
    pub fn is_quiet(&self) -> bool {
        self.alive() == 0
    }

    /// Instances that are not stranded: they exist, are coming up or are being removed.
    pub fn alive(&self) -> usize {
        self.starting + self.idle + self.condemned + self.busy + self.stopping + self.reclaiming
    }

    /// The count that an instance in this state belongs to.
    pub(super) fn of(&mut self, state: InstanceState) -> &mut usize {
        match state {
            InstanceState::Starting => &mut self.starting,
            InstanceState::Idle { .. } => &mut self.idle,
            InstanceState::Condemned { .. } => &mut self.condemned,
            InstanceState::Busy { .. } => &mut self.busy,
            InstanceState::Stopping => &mut self.stopping,
            InstanceState::Reclaiming => &mut self.reclaiming,
            InstanceState::Stranded { .. } => &mut self.stranded,
        }
    }
}
