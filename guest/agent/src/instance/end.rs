//! Why an instance ended.

use super::reaper::ExitStatus;
use squeezy_protocol::ExitReason;

/// The reason, from the first process's status, whether the host asked for the end, and how many of the
/// instance's processes were OOM-killed.
///
/// An instance that loses a process to the OOM killer often ends with an error of its own; what its owner
/// needs to know is still that it ran out of memory.
pub fn reason(status: ExitStatus, stopping: bool, oom_kills: u64) -> ExitReason {
    match status {
        _ if stopping => ExitReason::Stopped,
        ExitStatus::Exited(0) => ExitReason::Exited(0),
        _ if oom_kills > 0 => ExitReason::ExceededMemory,
        ExitStatus::Exited(code) => ExitReason::Exited(code),
        ExitStatus::Killed(signal) => ExitReason::Killed(signal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_explains_an_end_that_nobody_asked_for() {
        use ExitStatus::{Exited, Killed};
        assert_eq!(reason(Killed(9), false, 1), ExitReason::ExceededMemory);
        assert_eq!(reason(Exited(1), false, 1), ExitReason::ExceededMemory);
        assert_eq!(reason(Exited(0), false, 1), ExitReason::Exited(0));
        assert_eq!(reason(Killed(9), false, 0), ExitReason::Killed(9));
        assert_eq!(reason(Exited(3), false, 0), ExitReason::Exited(3));
        assert_eq!(reason(Killed(9), true, 0), ExitReason::Stopped);
        assert_eq!(reason(Exited(0), true, 0), ExitReason::Stopped);
    }
}
