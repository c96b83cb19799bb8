//! How fast a VM's memory shrinks and grows (Figure 4 of the HyperAlloc paper). See README.md.

mod report;
mod steps;

use crate::{
    error::Result,
    harness::{Experiment, Session, Step as Weighted},
    size,
};
use serde::{Deserialize, Serialize};
use squeezy_vmm::{MemoryBackend, mechanism::MechanismName};
use std::fmt;

/// How fast a VM's memory shrinks and grows, by method.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Memory that is taken and given back
    #[arg(long, value_name = "SIZE", value_parser = size::parse_instance)]
    size: Option<u64>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// The VM's size changes, by this mechanism.
    Resize(MechanismName),
    /// As HyperAlloc, while the VM's processors are stopped.
    Stopped,
    /// HyperAlloc takes what is free, and the VM keeps its size.
    Soft,
    /// A frozen instance's partition of a VM whose processors are stopped.
    Frozen,
    /// The host discards as much memory without a guest.
    Floor,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resize(mechanism) => mechanism.fmt(f),
            Self::Stopped => f.write_str("hyperalloc, stopped"),
            Self::Soft => f.write_str("hyperalloc, soft"),
            Self::Frozen => f.write_str("frozen instance"),
            Self::Floor => f.write_str("floor"),
        }
    }
}

/// A trial of a method. Those of all methods alternate, so that what changes on the machine meanwhile meets all.
#[derive(Clone, Copy, Debug)]
struct Trial {
    method: Method,
    number: u32,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: trial {}", self.method, self.number + 1)
    }
}

impl Weighted for Trial {
    fn weight(&self) -> f64 {
        match self.method {
            Method::Resize(MechanismName::Balloon) => 2.0,
            Method::Floor => 0.2,
            _ => 1.0,
        }
    }
}

const METHODS: [Method; 7] = [
    Method::Resize(MechanismName::HyperAlloc),
    Method::Stopped,
    Method::Soft,
    Method::Frozen,
    Method::Resize(MechanismName::VirtioMem),
    Method::Resize(MechanismName::Balloon),
    Method::Floor,
];

/// A step of a trial: memory is taken or given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Step {
    /// Memory that a process in the guest has used and freed is taken.
    TakeTouched,
    /// It is given back.
    GiveTouched,
    /// Memory that the guest has not touched since is taken.
    TakeUntouched,
    /// It is given back.
    GiveUntouched,
}

/// Memory was taken or given back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    step: Step,
    size_bytes: u64,
    /// From the request until the VM had the size.
    latency_ns: u64,
    /// The part of that in which the host's kernel discarded memory, where it is known.
    discard_ns: Option<u64>,
    /// By how much the VM's size changed; what was free, where the size stays the same.
    moved_bytes: u64,
    /// By how much host memory behind the guest's memory decreased.
    resident_drop_bytes: u64,
    /// Host memory of the VM that was in huge pages before.
    huge_bytes: u64,
    /// CPU time of the VM's virtual processors meanwhile.
    vcpus_ns: u64,
    /// CPU time of the VMM's device threads meanwhile.
    devices_ns: u64,
}

impl Experiment for Arguments {
    const NAME: &'static str = "inflate";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        // Only memory that the host shares can be taken from outside, so all methods have it.
        session.options.memory_backend = MemoryBackend::Memfd;
        let quick = session.options.quick;
        let size_bytes = self.size.unwrap_or(if quick { 256 << 20 } else { 1536 << 20 });
        let trials: Vec<_> = (0..session.options.trials_or(2, 15))
            .flat_map(|number| METHODS.map(|method| Trial { method, number }))
            .collect();
        session
            .each(&trials, async |session, &Trial { method, number }| match method {
                Method::Floor => steps::floor(session, size_bytes, number).await,
                Method::Frozen => steps::frozen(session, number).await,
                _ => steps::one_vm(session, method, size_bytes, number).await,
            })
            .await
    }
}
