//! Everything that a run has measured: the contents of the JSON file, and the data of the plot.

use serde::Serialize;
use squeezy_node::WaitedFor;

/// A whole run: the same load, replayed with each policy.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Identifies the format.
    pub kind: &'static str,
    /// The version of this program.
    pub version: &'static str,
    /// The function's name.
    pub function: String,
    /// Memory of an instance, in bytes.
    pub instance_bytes: u64,
    /// The maximum number of instances in the VM.
    pub concurrency: u16,
    /// How long an instance without a request was kept.
    pub keep_alive_seconds: f64,
    /// Describes the load, and says whether it is a real trace.
    pub load: String,
    /// How long requests were sent.
    pub load_seconds: f64,
    /// The factor by which the load was sped up.
    pub load_speed: f64,
    /// The seed of all random choices.
    pub seed: u64,
    /// The accelerator that ran the guest's code.
    pub accelerator: String,
    /// Why it was chosen.
    pub accelerator_reason: String,
    /// What backed the guest's memory on the host; not the same for all policies if one of them needs `memfd`.
    pub memory_backend: String,
    /// Version of the guest's kernel.
    pub kernel: String,
    /// Name and version of the VMM.
    pub vmm: String,
    /// Notes that are needed to interpret the figures.
    pub notes: Vec<String>,
    /// One record per policy, in the order they ran.
    pub policies: Vec<PolicyRecord>,
}

/// Measurements of one policy.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PolicyRecord {
    /// The policy.
    pub policy: String,
    /// Why it ended before the load did, if it did.
    pub ended_early: Option<String>,
    /// From the start of the VMM until the agent answered.
    pub boot_seconds: f64,
    /// From there until a first instance had started and answered a request. That instance is ended
    /// before the load begins, and leaves the function's files in the page cache.
    pub first_answer_seconds: f64,
    /// From the start of the load until the last instance's memory was reclaimed.
    pub length_seconds: f64,
    /// The state, sampled several times a second.
    pub samples: Vec<Sample>,
    /// Every request.
    pub requests: Vec<RequestRecord>,
    /// Every attempt to start an instance.
    pub starts: Vec<StartRecord>,
    /// Every change of the VM's memory.
    pub resizes: Vec<ResizeRecord>,
}

/// The state at one moment.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Sample {
    /// Time since the load began.
    pub at_seconds: f64,
    /// Instances that are starting.
    pub starting: usize,
    /// Instances that are waiting for a request.
    pub idle: usize,
    /// Instances that are processing a request.
    pub busy: usize,
    /// Instances that are being stopped, or will be when their paused VM runs again.
    pub stopping: usize,
    /// Ended instances whose memory is being reclaimed.
    pub reclaiming: usize,
    /// Ended instances whose memory the guest has not given back.
    pub stranded: usize,
    /// Requests that are waiting for an instance.
    pub queued: usize,
    /// Memory requested from the guest, including its base.
    pub asked_bytes: u64,
    /// Memory that the guest has, including its base.
    pub plugged_bytes: u64,
    /// Guest memory that is resident on the host.
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
    /// When it arrived, since the load began.
    pub at_seconds: f64,
    /// From its arrival until its response.
    pub latency_seconds: f64,
    /// The part of it before an instance took the request.
    pub wait_seconds: f64,
    /// What it waited for; `None` if no instance took it.
    pub waited_for: Option<WaitedFor>,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "reason")]
pub enum Outcome {
    /// The response was correct.
    Right,
    /// There was a response, but a wrong one.
    Wrong(String),
    /// There was no response, because the instance or the VM failed.
    Failed(String),
    /// It was refused.
    Rejected(String),
}

/// The start of one instance.
#[derive(Clone, Debug, Serialize)]
pub struct StartRecord {
    /// When it was requested, since the load began.
    pub at_seconds: f64,
    /// Which instance.
    pub instance: u64,
    /// Time until its memory was plugged.
    pub plug_seconds: f64,
    /// From there until its command was executed.
    pub spawn_seconds: f64,
    /// From there until its server had answered `/init`.
    pub init_seconds: f64,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// The direction of a resize.
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
    /// When it was requested, since the load began.
    pub at_seconds: f64,
    /// Which way.
    pub direction: Direction,
    /// The instance whose memory it is.
    pub instance: u64,
    /// The memory requested.
    pub size_bytes: u64,
    /// From the request to the device until the device had finished.
    pub latency_ns: u64,
    /// By how much resident memory decreased.
    pub resident_drop_bytes: u64,
    /// Why it failed or was incomplete, if so.
    pub error: Option<String>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A made-up report, for tests.
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
