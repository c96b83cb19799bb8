//! Pods through CRI, with our shim: in one VM, and in a VM each. See README.md.

mod report;
mod steps;

use crate::{
    error::Result,
    harness::{Experiment, Session},
    record::Measured,
    rigs::containerd::Containerd,
};
use serde::{Deserialize, Serialize};
use steps::Step;

/// All pods in one VM.
pub(crate) const TOGETHER: &str = "squeezy";
/// A VM for each pod, with room for no other, with the same shim.
pub(crate) const APART: &str = "microvm";

/// For how many pods a VM of the shim has room, unless it is told otherwise.
pub(crate) const ROOM: u32 = 32;

/// Time, memory and reclaim of pods through containerd, in one VM and in a VM each.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Pods of one image
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u32).range(2..=i64::from(ROOM)))]
    pods: u32,
}

/// One of the things that are measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Figures {
    /// A pod has answered.
    Start {
        /// How many there were before.
        pods_count: u32,
        /// Whether its VM was running.
        vm_was_there: bool,
        /// From the request for the pod to its container's first answer.
        total_ns: u64,
        /// Until there was a pod.
        pod_ns: u64,
        /// From there until its container was started.
        container_ns: u64,
        /// From there to the answer.
        answer_ns: u64,
    },
    /// Pods that wait hold this on the host.
    Memory {
        pods_count: u32,
        /// Of all processes that are there for them, each with its part of what several have.
        all_bytes: u64,
        /// Of these, of QEMU.
        vmm_bytes: u64,
        /// Of these, of the shim's servers.
        servers_bytes: u64,
    },
    /// A server of the shim whose VM has as many pods as it has room for. In lines from before 2026-11-30, those of
    /// `squeezy` have 16.
    Server {
        pods_count: u32,
        /// What it shares with others counted in full.
        resident_bytes: u64,
        /// The most that this was until then. Lines from before 2026-11-30 do not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        most_bytes: Option<u64>,
    },
    /// A pod that had filled its memory was deleted.
    Reclaim {
        /// Of the pod.
        size_bytes: u64,
        /// From the end of its sandbox until its memory was the host's. In lines from before 2026-12-01, from the deletion
        /// of its sandbox, a moment later.
        back_ns: u64,
        /// Of these, the request to the device.
        request_ns: u64,
        /// Before these, from the end of its last container. Lines from before 2026-11-30 do not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        empty_ns: Option<u64>,
        /// By the guest's kernel, in all of the VM, meanwhile.
        migrated_pages: u64,
    },
    /// The last container of a pod that had filled its memory has ended, and its sandbox stays.
    Emptied {
        /// Of the pod.
        size_bytes: u64,
        /// From the end of the container until the host began to take its memory, or its guest to report it: that the shim
        /// puts off for 2 s, as another container may come.
        empty_ns: u64,
        /// From then on until it was the host's.
        back_ns: u64,
        /// How much that was, without what the host had taken before.
        freed_bytes: u64,
        /// By the guest's kernel, in all of the VM, meanwhile.
        migrated_pages: u64,
    },
}

/// A record.
pub(crate) type Line = Measured<Figures>;

impl Experiment for Arguments {
    const NAME: &'static str = "pods";

    async fn measure(&self, session: &mut Session<Figures>) -> Result {
        let mut containerd = Containerd::enter(session).await?;
        let steps: Vec<Step> = (0..session.options.trials_or(1, 5))
            .flat_map(|trial| {
                let mut methods = [TOGETHER, APART];
                methods.rotate_left(trial as usize % 2);
                methods.map(|method| Step { method, trial, pods: self.pods })
            })
            .collect();
        session
            .each(&steps, async |session, step| {
                // Of a step that has failed.
                containerd.clear().await?;
                step.take(session, &mut containerd).await?;
                containerd.clear().await
            })
            .await
    }
}
