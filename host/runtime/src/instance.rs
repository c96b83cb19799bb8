//! One instance, as the scaler sees it.

use crate::{FunctionIndex, Moment, RequestNumber};

/// Where an instance stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// Its memory is being plugged.
    Plugging,
    /// Its memory is there, its processes start.
    Starting,
    /// It waits for a request.
    Idle {
        /// Since when.
        since: Moment,
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
    /// It is gone, but the guest kept its memory. The next instance of the function takes it, or
    /// the host asks for it again after a while.
    Stranded {
        /// Since when.
        since: Moment,
    },
}

/// One instance, or what is left of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instance {
    /// What it is an instance of.
    pub function: FunctionIndex,
    /// Where it stands.
    pub state: InstanceState,
}
