//! What VMs and starts cost, from the recorded lines of pods.

use crate::{
    error::{BenchError, Result},
    experiments::pods::{APART, Figures, Line, TOGETHER},
    report::{median, of_method},
};
use std::time::Duration;

/// A partition's memory map is this part of it: 64 bytes for each page of 4 KiB.
const MEMORY_MAP: u64 = 64;

/// What VMs take beside what their pods are promised.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sizes {
    /// A VM that pods share, without them.
    pub(super) vm_bytes: u64,
    /// A VM that has one pod.
    pub(super) lone_vm_bytes: u64,
    /// What each further pod takes outside of its partition, without the partition's memory map. What the recorded
    /// pods had in theirs is in it, and in `lone_vm_bytes`, too: lines do not tell it apart.
    pub(super) pod_bytes: u64,
}

impl Sizes {
    /// What a pod takes whose partition has this size.
    pub(super) fn partition_bytes(&self, partition_bytes: u64) -> u64 {
        partition_bytes + partition_bytes / MEMORY_MAP + self.pod_bytes
    }

    /// The same with VMs that are so many times as large.
    pub(super) fn times(&self, factor: f64) -> Self {
        let scaled = |bytes: u64| (bytes as f64 * factor) as u64;
        Self {
            vm_bytes: scaled(self.vm_bytes),
            lone_vm_bytes: scaled(self.lone_vm_bytes),
            pod_bytes: scaled(self.pod_bytes),
        }
    }

    /// From lines of `pods`: what is added by each further pod of a VM, and what a VM with one pod takes.
    pub(super) fn of(lines: &[Line]) -> Result<Self> {
        Self::recorded(lines).ok_or_else(|| missing("what VMs of pods take"))
    }

    fn recorded(lines: &[Line]) -> Option<Self> {
        let memory = |method: &'static str| {
            of_method(lines, method).filter_map(|line| match line.figures {
                Figures::Memory { pods_count, all_bytes, .. } => {
                    Some((f64::from(pods_count), all_bytes as f64))
                }
                _ => None,
            })
        };
        let pods = median(memory(TOGETHER).map(|(pods, _)| pods))?;
        let together = median(memory(TOGETHER).map(|(_, bytes)| bytes))?;
        let alone = median(memory(APART).map(|(pods, bytes)| bytes / pods))?;
        let further = (together - alone) / (pods - 1.0);
        let partition = lines.iter().find_map(|line| match line.figures {
            Figures::Reclaim { size_bytes, .. } => Some(size_bytes),
            _ => None,
        })?;
        Some(Self {
            vm_bytes: (alone - further) as u64,
            lone_vm_bytes: alone as u64,
            pod_bytes: (further as u64).saturating_sub(partition / MEMORY_MAP),
        })
    }
}

/// How long the first answer of a pod takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Starts {
    /// In a VM that is there.
    pub(super) in_vm: Duration,
    /// In a new VM for several.
    pub(super) with_vm: Duration,
    /// In a VM of its own.
    pub(super) alone: Duration,
}

impl Starts {
    /// From lines of `pods`.
    pub(super) fn of(lines: &[Line]) -> Result<Self> {
        let of = |method: &'static str, was_there: bool| {
            let totals = of_method(lines, method).filter_map(|line| match line.figures {
                Figures::Start { vm_was_there, total_ns, .. } if vm_was_there == was_there => {
                    Some(total_ns as f64 / 1e9)
                }
                _ => None,
            });
            median(totals)
                .map(Duration::from_secs_f64)
                .ok_or_else(|| missing(&format!("how pods of `{method}` start")))
        };
        Ok(Self {
            in_vm: of(TOGETHER, true)?,
            with_vm: of(TOGETHER, false)?,
            alone: of(APART, false)?,
        })
    }
}

fn missing(what: &str) -> BenchError {
    BenchError::Arguments(format!("the recorded lines of pods do not have {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        experiments::pods::Arguments,
        harness::Experiment,
        record::tests::{header, recorded},
    };

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_vm_with_one_pod_and_further_pods_are_told_apart() {
        let line = |method, figures| Line { header: header("pods", method, 0), figures };
        let memory = |pods_count, mib: u64| Figures::Memory {
            pods_count,
            all_bytes: mib * MIB,
            vmm_bytes: 0,
            servers_bytes: 0,
        };
        let reclaim = Figures::Reclaim {
            size_bytes: 256 * MIB,
            back_ns: 1,
            request_ns: 1,
            empty_ns: None,
            migrated_pages: 0,
        };
        let lines = [
            line(TOGETHER, memory(11, 350)),
            line(APART, memory(11, 11 * 200)),
            line(TOGETHER, reclaim),
        ];
        let sizes = Sizes::of(&lines).unwrap();
        let expected = Sizes { vm_bytes: 185 * MIB, lone_vm_bytes: 200 * MIB, pod_bytes: 11 * MIB };
        assert_eq!(sizes, expected);
        assert_eq!(sizes.partition_bytes(512 * MIB), (512 + 8 + 11) * MIB);
        assert!(Sizes::of(&lines[..2]).is_err() && Starts::of(&lines).is_err());
    }

    #[test]
    fn recorded_lines_have_what_is_needed() {
        let lines: Vec<Line> = recorded(Arguments::NAME);
        let sizes = Sizes::of(&lines).unwrap();
        assert!((64..400).contains(&(sizes.vm_bytes / MIB)), "{sizes:?}");
        assert!(sizes.vm_bytes < sizes.lone_vm_bytes, "{sizes:?}");
        assert!((1..64).contains(&(sizes.pod_bytes / MIB)), "{sizes:?}");
        let starts = Starts::of(&lines).unwrap();
        assert!(starts.in_vm < starts.alone && starts.in_vm < starts.with_vm, "{starts:?}");
    }
}
