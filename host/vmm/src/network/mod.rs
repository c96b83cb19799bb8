//! The network of a VM: what its guest may reach, and how that is enforced on the host.
//!
//! The guest has one virtio-net device, behind which QEMU's own user network makes each connection a socket of QEMU's.
//! No packet passes through here, but each system call of QEMU that says where data is to go does (`filter.rs`,
//! `judge.rs`): what a guest may not reach, it does not reach with its kernel taken over either. See ADR 0035.

mod connections;
mod counts;
mod filter;
mod judge;
mod openable;
mod own;
mod pace;
mod pacing;
mod possible;
mod rate;
mod resolver;
mod rules;
mod tap;

pub use counts::{NetworkCounters, NetworkCounts};
pub use openable::Openable;
pub use possible::problem;
pub use rules::{Destination, InvalidDestination, Refusal, Rules};
pub use tap::{InvalidTapName, TapName};

use crate::{cpu_share::CpuShare, process::Process};
use judge::Judge;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    os::fd::{OwnedFd, RawFd},
    sync::Arc,
};

/// Descriptors that QEMU may still need for other things once its guest has booted.
const SPARE_DESCRIPTORS: u64 = 16;

/// What a guest's network device leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uplink {
    /// QEMU's user network, by which it reaches what is allowed.
    Judged(Network),
    /// A tap device, behind which everything is up to the operator: nothing is judged, limited or counted here.
    Tap(TapName),
}

/// What a guest may reach, and how much of it at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Which addresses.
    pub rules: Rules,
    /// What the owner of what runs in it chooses within them ([`Rules::judge_within`]), of which what is private counts only
    /// while he may allow it ([`Openable`]).
    pub own: Rules,
    /// The most connections at a time. One of UDP lasts as long as QEMU remembers it: 10 s for a query of a name, 4
    /// minutes for others.
    pub connections: u32,
    /// How many connections may be opened in a second.
    pub connections_per_second: u32,
    /// How many bytes may be sent in a second.
    pub bytes_per_second: u64,
}

impl Default for Network {
    fn default() -> Self {
        // Each connection can have 256 KiB of what was not yet delivered in QEMU's memory.
        Self {
            rules: Rules::default(),
            own: Rules::default(),
            connections: 512,
            connections_per_second: 100,
            bytes_per_second: 32 << 20,
        }
    }
}

impl Network {
    /// Starts the judge of a VMM, on a thread that ends with it. `calls` is from [`confine`]. What it uses is of the VM's
    /// share of the processors.
    pub(crate) fn judge(
        &self,
        calls: OwnedFd,
        vmm: &Process,
        openable: Arc<Openable>,
        counters: Arc<NetworkCounters>,
        share: Option<Arc<CpuShare>>,
    ) -> io::Result<()> {
        let judge = Judge::new(calls, vmm.descriptor()?, self.clone(), openable, counters, share);
        std::thread::Builder::new().name("network-judge".to_owned()).spawn(|| judge.run())?;
        Ok(())
    }

    /// Limits how many connections a VMM can have, by how many files it can open beyond those that it has when its guest
    /// has booted, before there is an instance.
    pub(crate) fn limit_connections(&self, vmm: &Process) -> io::Result<()> {
        let open = fs::read_dir(format!("/proc/{}/fd", vmm.id()))?.count() as u64;
        let most = open + SPARE_DESCRIPTORS + u64::from(self.connections);
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
        let limit = Rlimit { current: least(current), maximum: least(maximum) };
        prlimit(Pid::from_raw(vmm.id() as i32), Resource::Nofile, limit)?;
        Ok(())
    }
}

/// Confines this thread, and the processes that it starts from now on, to what a judge allows, whom the result tells
/// of their calls. They may do what they like with two descriptors of their own, except close them.
pub(crate) fn confine(own: [RawFd; 2]) -> io::Result<OwnedFd> {
    filter::install(own)
}

#[cfg(test)]
mod tests;
