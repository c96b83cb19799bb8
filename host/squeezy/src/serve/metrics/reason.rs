//! Reasons as fixed words, which limits the number of series.

use squeezy_scaler::{RejectReason, StopReason};
use squeezy_vmm::VmError;

/// All values of [`refused`].
pub const REFUSED: [&str; 8] = [
    "queue_full",
    "waited_too_long",
    "start_failed",
    "vm_failed",
    "retired",
    "draining",
    "too_many_calls",
    "over_quota",
];

/// Why a call was refused.
pub fn refused(reason: RejectReason) -> &'static str {
    REFUSED[match reason {
        RejectReason::QueueFull => 0,
        RejectReason::WaitedTooLong(_) => 1,
        RejectReason::StartFailed => 2,
        RejectReason::VmFailed => 3,
        RejectReason::Retired => 4,
        RejectReason::Draining => 5,
        RejectReason::TooManyCalls => 6,
        RejectReason::OverQuota => 7,
        // It is never why a call was refused.
        RejectReason::NoRoomAhead => return "no_room_ahead",
    }]
}

/// The instance ended on its own.
pub const DIED: &str = "died";
/// The instance ended with its VM.
pub const VM_ENDED: &str = "vm_ended";

/// All reasons why an instance ends.
pub const ENDED: [&str; 8] =
    ["keep_alive_over", "evicted", "broken", "retired", "draining", "overdrawn", DIED, VM_ENDED];

/// Why an instance was told to end.
pub fn stopped(reason: StopReason) -> &'static str {
    ENDED[match reason {
        StopReason::KeepAliveOver => 0,
        StopReason::Evicted => 1,
        StopReason::Broken => 2,
        StopReason::Retired => 3,
        StopReason::Draining => 4,
        StopReason::Overdrawn => 5,
    }]
}

/// All values of [`not_resized`]. The first three are what the guest reports.
pub const NOT_RESIZED: [&str; 6] = ["quarantined", "draining", "assigned", "guest", "vm", "other"];
const GUEST_SAYS: usize = 3;

/// Why a resize failed. If there are several reasons, the one that lasts longest.
pub fn not_resized(error: &VmError) -> &'static str {
    match error {
        VmError::Resize { reason, .. } => {
            let said = NOT_RESIZED[..GUEST_SAYS].iter().find(|word| reason.contains(**word));
            said.copied().unwrap_or("guest")
        }
        VmError::Held { .. } | VmError::NoPartition { .. } => "quarantined",
        VmError::Disagreement { .. } | VmError::AgentAnswer(_) => "guest",
        VmError::Died { .. }
        | VmError::Hung(_)
        | VmError::Paused(_)
        | VmError::LimitBroken { .. }
        | VmError::MemoryFailed(_)
        | VmError::FrozenGrew { .. }
        | VmError::Panicked(_)
        | VmError::PoweredOff { .. }
        | VmError::AgentLost(_)
        | VmError::Stopped => "vm",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_keeps_memory_is_one_word() {
        let resize = |reason: &str| VmError::Resize {
            requested: 0,
            plugged: 1,
            after: Duration::ZERO,
            reason: reason.to_owned(),
        };
        for (error, word) in [
            (resize("blocked by partitions: assigned 2 draining 1"), "draining"),
            (resize("blocked by partitions: assigned 2"), "assigned"),
            (resize("blocked by partitions: quarantined 1"), "quarantined"),
            (
                resize("it could not free enough memory to unplug (5.0 MiB are available in it)"),
                "guest",
            ),
            (VmError::NoPartition { held: 1, partitions: 2 }, "quarantined"),
            (VmError::Disagreement { device_bytes: 1, guest_bytes: 0 }, "guest"),
            (VmError::AgentAnswer("x".to_owned()), "guest"),
            (VmError::Hung(Duration::from_secs(5)), "vm"),
            (VmError::Config("x".to_owned()), "other"),
        ] {
            assert_eq!(not_resized(&error), word, "{error}");
            assert!(NOT_RESIZED.contains(&word));
        }
    }
}
