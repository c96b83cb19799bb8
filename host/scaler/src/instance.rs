//! VMs and instances, as the scaler sees them.

use crate::{FunctionIndex, Moment, TenantIndex, VmIndex};

/// The state of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmState {
    /// Not running; booted on demand.
    Absent,
    /// Booting.
    Booting,
    /// Running, and can take instances.
    Up {
        /// Since when it has had no live instance; absent while it has one.
        empty_since: Option<Moment>,
    },
    /// Paused, with frozen instances or none. It keeps the memory that it holds.
    Paused {
        /// Since when nothing in it has been used.
        since: Moment,
    },
    /// Shutting down.
    Ending,
}

/// The state of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// Its memory is being plugged and its processes are starting.
    Starting,
    /// It has no request.
    Idle {
        /// Since when.
        since: Moment,
        /// Whether its processes are frozen.
        frozen: bool,
    },
    /// It is frozen in a paused VM, and its memory is taken from it. It is stopped when the VM runs again.
    Condemned {
        /// Since when it has had no request.
        since: Moment,
        /// Whether the host has its memory back.
        done: bool,
    },
    /// It is serving requests.
    Busy {
        /// How many, at least one.
        requests: u16,
        /// Whether it takes no more: it has died, or failed at one of them.
        dying: bool,
    },
    /// Its processes are being stopped.
    Stopping,
    /// Its memory is on its way back to the host.
    Reclaiming,
    /// It is gone, but the guest kept its memory. The next instance in the VM takes it over, or the host asks
    /// for it again after a while.
    Stranded {
        /// Since when.
        since: Moment,
    },
}

/// One instance, or what is left of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Instance {
    /// Its function's tenant.
    pub tenant: TenantIndex,
    /// Its function.
    pub function: FunctionIndex,
    /// The VM it runs in.
    pub vm: VmIndex,
    /// Its state.
    pub state: InstanceState,
    /// Bytes of the budget charged to it: all that it may use, or what it holds while it is frozen or condemned.
    pub charged_bytes: u64,
}
