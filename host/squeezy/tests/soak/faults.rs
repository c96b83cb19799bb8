//! The faults, and the failures that each one explains.

use crate::ledger::Kind;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    InstanceEnds,
    InstanceExceedsMemory,
    InstanceHangs,
    BaseMemoryIsShort,
    PartitionsAreShort,
    HostMemoryIsShort,
    VmIsKilled,
    VmHangs,
    VmStalls,
    GuestHangs,
    DaemonIsKilled,
    DaemonStalls,
    DaemonIsTold,
    ActionChanges,
    DiskIsFull,
    ClientsVanish,
    TooManyCall,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InstanceEnds => "an instance ends on its own",
            Self::InstanceExceedsMemory => "an instance exceeds its memory",
            Self::InstanceHangs => "an instance does not answer",
            Self::BaseMemoryIsShort => "instances take base memory",
            Self::PartitionsAreShort => "ended instances keep partitions",
            Self::HostMemoryIsShort => "another VM needs the memory",
            Self::VmIsKilled => "the VM is killed",
            Self::VmHangs => "the VM hangs for good",
            Self::VmStalls => "the VM stalls for 3 s",
            Self::GuestHangs => "the guest and its agent hang",
            Self::DaemonIsKilled => "the daemon is killed",
            Self::DaemonStalls => "the daemon stalls for 3 s",
            Self::DaemonIsTold => "the daemon is told to end",
            Self::ActionChanges => "the function is changed",
            Self::DiskIsFull => "no space for log and actions",
            Self::ClientsVanish => "clients vanish",
            Self::TooManyCall => "too many calls at once",
        })
    }
}

impl Fault {
    pub const ALL: [Self; 17] = [
        Self::InstanceEnds,
        Self::InstanceExceedsMemory,
        Self::InstanceHangs,
        Self::BaseMemoryIsShort,
        Self::PartitionsAreShort,
        Self::HostMemoryIsShort,
        Self::VmIsKilled,
        Self::VmHangs,
        Self::VmStalls,
        Self::GuestHangs,
        Self::DaemonIsKilled,
        Self::DaemonStalls,
        Self::DaemonIsTold,
        Self::ActionChanges,
        Self::DiskIsFull,
        Self::ClientsVanish,
        Self::TooManyCall,
    ];

    /// Whether a call in progress during the fault may end like this. What an instance does may
    /// only affect its own call.
    pub fn explains(self, kind: Kind) -> bool {
        match self {
            Self::VmIsKilled => matches!(kind, Kind::VmEnded | Kind::VmFailed),
            Self::VmHangs => matches!(kind, Kind::VmEnded | Kind::VmFailed | Kind::Late),
            // The VM ends a moment after the calls that it does not answer.
            Self::GuestHangs => matches!(
                kind,
                Kind::VmEnded | Kind::VmFailed | Kind::Late | Kind::StartFailed | Kind::AgentLost
            ),
            Self::DaemonIsKilled => {
                matches!(kind, Kind::Refused | Kind::Broken | Kind::EndedWithDaemon)
            }
            Self::DaemonIsTold => {
                matches!(kind, Kind::Refused | Kind::Broken | Kind::EndedWithDaemon | Kind::Ending)
            }
            Self::DiskIsFull => kind == Kind::NotWritten,
            Self::TooManyCall => kind == Kind::Busy,
            Self::InstanceEnds
            | Self::InstanceExceedsMemory
            | Self::InstanceHangs
            | Self::BaseMemoryIsShort
            | Self::PartitionsAreShort
            | Self::HostMemoryIsShort
            | Self::VmStalls
            | Self::DaemonStalls
            | Self::ActionChanges
            | Self::ClientsVanish => false,
        }
    }

    /// Whether long calls must be in progress when the fault occurs.
    pub fn meets_work(self) -> bool {
        matches!(
            self,
            Self::VmIsKilled
                | Self::VmHangs
                | Self::VmStalls
                | Self::GuestHangs
                | Self::DaemonIsKilled
                | Self::DaemonStalls
                | Self::ActionChanges
        )
    }
}
