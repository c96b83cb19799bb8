//! What pods and containers use.
//!
//! The host knows what is behind a partition, and the guest what its processes have: the containers of a pod have what
//! is behind their partition in proportion to the private memory of their processes. Files in memory are there, too, and
//! nobody says whose they are; while no container runs, they are the pod's. All else is the container's own: what is
//! charged to its cgroup in the guest, and its processor time.

use super::{Machine, container::Made, pod::Pod};
use crate::{error::Result, vm::Usage};
use futures_util::future::join_all;
use squeezy_protocol::{self as protocol, InstanceId};
use std::sync::Arc;

impl Machine {
    /// What a pod uses, or one container of it.
    pub(super) async fn usage_of(&self, pod: &Pod, only: Option<&InstanceId>) -> Result<Usage> {
        let booted = self.booted()?;
        let running = self.running_in(pod);
        let partition = match running.first() {
            Some(made) => made.partition(),
            // They may have left files in it.
            None if only.is_none() => pod.partition(),
            None => None,
        };
        let resident_bytes = match partition {
            Some(number) => booted.vm.partition_resident(number).await?,
            None => 0,
        };
        let agent = booted.vm.agent()?;
        let answers = join_all(running.iter().map(|made| agent.usage(made.id()))).await;
        let mut measured = Vec::new();
        for (made, answer) in running.iter().zip(answers) {
            match answer {
                Ok(usage) => measured.push((made.id(), usage)),
                // Others may have ended in the meantime.
                Err(error) if only == Some(made.id()) => return Err(error.into()),
                Err(_) => {}
            }
        }
        let its = running.iter().find(|made| only == Some(made.id()));
        let its_limit_bytes = its.and_then(|made| made.private_limit_bytes());
        let memory_limit_bytes = its_limit_bytes.unwrap_or(self.partition_bytes);
        Ok(Usage { memory_limit_bytes, ..used(resident_bytes, &measured, only) })
    }

    /// The containers of a pod that run.
    fn running_in(&self, pod: &Pod) -> Vec<Arc<Made>> {
        let runs = |made: &&Arc<Made>| made.belongs_to(pod) && made.partition().is_some();
        self.inside().containers.values().filter(runs).cloned().collect()
    }
}

/// What is used of a partition with so much in the host's memory, by containers that are measured, or one of them.
fn used(
    resident_bytes: u64,
    measured: &[(&InstanceId, protocol::Usage)],
    only: Option<&InstanceId>,
) -> Usage {
    let mut sum = Usage::default();
    if measured.is_empty() && only.is_none() {
        // What they have left to others that will come.
        (sum.memory_bytes, sum.partition_bytes) = (resident_bytes, resident_bytes);
    }
    let private: Vec<u64> = measured.iter().map(|(_, usage)| usage.private_bytes).collect();
    for (share, (id, usage)) in shares(resident_bytes, &private).into_iter().zip(measured) {
        if only.is_none_or(|only| only == *id) {
            for (to, number) in [
                (&mut sum.memory_bytes, usage.memory_bytes.saturating_add(share)),
                (&mut sum.partition_bytes, share),
                (&mut sum.cpu_us, usage.cpu_us),
                (&mut sum.user_us, usage.user_us),
                (&mut sum.system_us, usage.system_us),
                (&mut sum.page_faults, usage.page_faults),
                (&mut sum.major_page_faults, usage.major_page_faults),
                (&mut sum.processes, usage.processes),
                (&mut sum.processes_limit, usage.processes_limit),
                (&mut sum.oom_kills, usage.oom_kills),
            ] {
                *to = to.saturating_add(number);
            }
        }
    }
    sum
}

/// Parts of all bytes in proportion to these numbers; the same for each if they are all 0.
fn shares(all_bytes: u64, numbers: &[u64]) -> Vec<u64> {
    let sum: u128 = numbers.iter().map(|&number| u128::from(number)).sum();
    let part = |number: u64| match sum {
        0 => all_bytes / numbers.len() as u64,
        // Not more than all.
        sum => (u128::from(all_bytes) * u128::from(number) / sum) as u64,
    };
    numbers.iter().copied().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_while_no_container_runs_is_the_pods() {
        let id: InstanceId = "container-1".parse().unwrap();
        let of_pod = used(100, &[], None);
        assert_eq!((of_pod.memory_bytes, of_pod.partition_bytes), (100, 100));
        assert_eq!(used(100, &[], Some(&id)), Usage::default());
        let has = protocol::Usage { memory_bytes: 5, private_bytes: 30, ..Default::default() };
        let of_pod = used(100, &[(&id, has)], None);
        assert_eq!((of_pod.memory_bytes, of_pod.partition_bytes), (105, 100));
    }

    #[test]
    fn what_several_have_is_each_ones_in_proportion() {
        assert_eq!(shares(100, &[30, 10]), [75, 25]);
        assert_eq!(shares(100, &[0, 10]), [0, 100]);
        assert_eq!(shares(100, &[0, 0]), [50, 50]);
        assert!(shares(100, &[]).is_empty());
        // Whatever a guest says.
        let most = shares(u64::MAX, &[u64::MAX, u64::MAX, 1]);
        assert!(most.iter().map(|&part| u128::from(part)).sum::<u128>() <= u128::from(u64::MAX));
    }
}
