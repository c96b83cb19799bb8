//! What was measured: what the JSON file holds and the plot shows.

use serde::Serialize;
use squeezy_node::WaitedFor;

/// A whole run: one load, replayed for each policy.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Names the format.
    pub kind: &'static str,
    /// The version of this program.
    pub version: &'static str,
    /// The function's name.
    pub function: String,
    /// An instance's memory, in bytes.
    pub instance_bytes: u64,
    /// Instances that the VM may hold.
    pub concurrency: u16,
    /// How long an instance without a request was kept.
    pub keep_alive_seconds: f64,
    /// What the load is, and whether it is a real trace.
    pub load: String,
    /// How long requests were sent.
    pub load_seconds: f64,
    /// How many times as fast as recorded it was replayed.
    pub load_speed: f64,
    /// The seed of everything that was drawn.
    pub seed: u64,
    /// What ran the guest's code.
    pub accelerator: String,
    /// Why it was that.
    pub accelerator_reason: String,
    /// What backed the guest's memory.
    pub memory_backend: String,
    /// The guest's kernel.
    pub kernel: String,
    /// The version of QEMU.
    pub vmm: String,
    /// What must be known to read the figures right.
    pub notes: Vec<String>,
    /// One for each policy, in the order they ran.
    pub policies: Vec<PolicyRecord>,
}

/// What one policy did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PolicyRecord {
    /// The policy.
    pub policy: String,
    /// Why it ended before the load did, if it did.
    pub ended_early: Option<String>,
    /// From the start of the VMM until the agent answered.
    pub boot_seconds: f64,
    /// From there until a first instance had started and answered a request. It is ended before
    /// the load begins, and leaves the function's files in the page cache.
    pub first_answer_seconds: f64,
    /// From the first moment of the load until the last instance's memory was back.
    pub length_seconds: f64,
    /// The state of things, several times a second.
    pub samples: Vec<Sample>,
    /// Every request.
    pub requests: Vec<RequestRecord>,
    /// Every instance that was started, or tried to.
    pub starts: Vec<StartRecord>,
    /// Every change of the VM's memory.
    pub resizes: Vec<ResizeRecord>,
}

/// The state of things at one moment.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Sample {
    /// Since the load began.
    pub at_seconds: f64,
    /// Instances that start.
    pub starting: usize,
    /// Instances that wait for a request.
    pub idle: usize,
    /// Instances that work on one.
    pub busy: usize,
    /// Instances that are being stopped.
    pub stopping: usize,
    /// Ended instances whose memory is on its way back.
    pub reclaiming: usize,
    /// Ended instances whose memory the guest has kept.
    pub stranded: usize,
    /// Requests that wait for an instance.
    pub queued: usize,
    /// Memory the host asked the guest to have, with its base.
    pub asked_bytes: u64,
    /// Memory the guest has, with its base.
    pub plugged_bytes: u64,
    /// Memory of the guest that is resident on the host.
    pub resident_bytes: u64,
}

impl Sample {
    /// Instances that have processes.
    pub fn alive(&self) -> usize {
        self.starting + self.idle + self.busy + self.stopping
    }
}

/// One request.
#[derive(Clone, Debug, Serialize)]
pub struct RequestRecord {
    /// When it came, since the load began.
    pub at_seconds: f64,
    /// From then until its answer.
    pub latency_seconds: f64,
    /// The part of it that passed before an instance took it.
    pub wait_seconds: f64,
    /// What it waited for; nothing where no instance has taken it.
    pub waited_for: Option<WaitedFor>,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "reason")]
pub enum Outcome {
    /// It was answered correctly.
    Right,
    /// It was answered, but not as it should be.
    Wrong(String),
    /// It was not answered, because the instance or the VM failed.
    Failed(String),
    /// It was turned away.
    Rejected(String),
}

/// One instance's start.
#[derive(Clone, Debug, Serialize)]
pub struct StartRecord {
    /// When it was decided on, since the load began.
    pub at_seconds: f64,
    /// Which instance.
    pub instance: u64,
    /// Until its memory was plugged.
    pub plug_seconds: f64,
    /// From there until its command was executed.
    pub spawn_seconds: f64,
    /// From there until its server had answered `/init`.
    pub init_seconds: f64,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// Which way memory went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the guest.
    Plug,
    /// Back to the host.
    Reclaim,
}

/// One change of the VM's memory.
#[derive(Clone, Debug, Serialize)]
pub struct ResizeRecord {
    /// When it was asked for, since the load began.
    pub at_seconds: f64,
    /// Which way.
    pub direction: Direction,
    /// For which instance.
    pub instance: u64,
    /// What was asked for.
    pub size_bytes: u64,
    /// From the request to the device until the device was done.
    pub latency_ns: u64,
    /// How much less was resident after than before.
    pub resident_drop_bytes: u64,
    /// Why it did not come about, or not wholly.
    pub error: Option<String>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A made-up report, for tests of what is done with one.
    pub(crate) fn example() -> Report {
        let policies = ["squeezy", "virtio-mem", "static"].map(|policy| PolicyRecord {
            policy: policy.to_owned(),
            boot_seconds: 2.0,
            length_seconds: 60.0,
            samples: (0..240).map(|i| sample(policy, f64::from(i) / 4.0)).collect(),
            requests: (0..10_u32)
                .map(|i| RequestRecord {
                    at_seconds: f64::from(i),
                    latency_seconds: 0.2 + f64::from(i % 3),
                    wait_seconds: f64::from(i % 3),
                    waited_for: Some(if i % 3 > 0 { WaitedFor::Start } else { WaitedFor::Nothing }),
                    outcome: if i == 9 {
                        Outcome::Rejected("queue full".into())
                    } else {
                        Outcome::Right
                    },
                })
                .collect(),
            resizes: (1..4)
                .map(|i| ResizeRecord {
                    at_seconds: 40.0,
                    direction: Direction::Reclaim,
                    instance: i,
                    size_bytes: 128 << 20,
                    latency_ns: i * 2_000_000,
                    resident_drop_bytes: 48 << 20,
                    error: None,
                })
                .collect(),
            ..PolicyRecord::default()
        });
        Report {
            kind: "squeezy_run",
            version: "0.0.0",
            function: "html".into(),
            instance_bytes: 128 << 20,
            concurrency: 8,
            keep_alive_seconds: 15.0,
            load: "synthetic (no real trace): an example".into(),
            load_seconds: 50.0,
            load_speed: 1.0,
            seed: 1,
            accelerator: "tcg".into(),
            accelerator_reason: "no /dev/kvm".into(),
            memory_backend: "ram".into(),
            kernel: "6.12".into(),
            vmm: "7.2".into(),
            notes: vec!["Emulated: absolute times mean nothing.".into()],
            policies: policies.into(),
        }
    }

    fn sample(policy: &str, at_seconds: f64) -> Sample {
        let alive = (8.0 * (at_seconds / 9.0).sin()).max(0.0) as usize;
        let kept = if policy == "squeezy" { alive } else { 8.min(at_seconds as usize) };
        Sample {
            at_seconds,
            starting: alive / 2,
            busy: alive / 2,
            queued: alive / 3,
            asked_bytes: (256 + 128 * alive as u64) << 20,
            plugged_bytes: (256 + 128 * kept as u64) << 20,
            resident_bytes: (120 + 50 * kept as u64) << 20,
            ..Sample::default()
        }
    }
}
