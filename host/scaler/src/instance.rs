//! VMs and instances, as the scaler sees them.

use crate::{FunctionIndex, Moment, RequestNumber, VmIndex};

/// Where a VM stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmState {
    /// There is none; it is booted when it is needed.
    Absent,
    /// It is being booted.
    Booting,
    /// It takes instances.
    Up {
        /// Since when it has no living instance, if it has none.
        empty_since: Option<Moment>,
    },
    /// It is stopped, with frozen instances or none, and keeps the memory that it holds.
    Paused {
        /// Since when nothing in it is used.
        since: Moment,
    },
    /// It is being ended.
    Ending,
}

/// Where an instance stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// Its memory is being plugged and its processes start.
    Starting,
    /// It waits for a request.
    Idle {
        /// Since when.
        since: Moment,
        /// Whether its processes are frozen.
        frozen: bool,
    },
    /// It works on a request.
    Busy {
        /// The request.
        request: RequestNumber,
        /// Whether it is known not to survive it.
        dying: bool,
    },
    /// Its processes are being stopped.
    Stopping,
    /// Its memory is on its way back to the host.
    Reclaiming,
    /// It is gone, but the guest kept its memory. The next instance in the VM takes it, or the host
    /// asks for it again after a while.
    Stranded {
        /// Since when.
        since: Moment,
    },
}

/// One instance, or what is left of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Instance {
    /// What it is an instance of.
    pub function: FunctionIndex,
    /// Where it runs.
    pub vm: VmIndex,
    /// Where it stands.
    pub state: InstanceState,
    /// Bytes of the budget it has: what it may take, or while it is frozen what it holds.
    pub charged_bytes: u64,
}
