//! What VMs and starts cost, from recorded lines.

use crate::{
    error::{BenchError, Result},
    experiments::{coldstart, footprint},
    report::{median, of_function, sorted},
};
use std::time::Duration;

/// The function whose lines are used.
const FUNCTION: &str = "html";

/// What VMs take beside what their pods are promised.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sizes {
    /// A VM that pods share, without them.
    pub(super) vm_bytes: u64,
    /// A VM that has one pod.
    pub(super) lone_vm_bytes: u64,
    /// What each partition takes outside of it, relative to its size: its memory map, and what an instance leaves.
    pub(super) of_partition: f64,
}

impl Sizes {
    /// What a pod takes whose partition has this size.
    pub(super) fn partition_bytes(&self, partition_bytes: u64) -> u64 {
        partition_bytes + (partition_bytes as f64 * self.of_partition) as u64
    }

    /// The same with VMs that are so many times as large.
    pub(super) fn times(&self, factor: f64) -> Self {
        let scaled = |bytes: u64| (bytes as f64 * factor) as u64;
        Self {
            vm_bytes: scaled(self.vm_bytes),
            lone_vm_bytes: scaled(self.lone_vm_bytes),
            of_partition: self.of_partition * factor,
        }
    }

    /// From lines of `footprint`: what is added by each instance, and what is there without any.
    pub(super) fn of(lines: &[footprint::Line]) -> Result<Self> {
        let missing = || {
            BenchError::Arguments(
                "the recorded lines of footprint do not have what VMs of `html` take".to_owned(),
            )
        };
        let line = |method, value: fn(&footprint::Line) -> u64| {
            let of: Vec<_> = of_function(lines, method, FUNCTION).collect();
            let counts = sorted(&of, |line| line.instances);
            let (first, last) = (*counts.first()?, *counts.last()?);
            let at = |count| {
                let of_count = of.iter().filter(|line| line.instances == count);
                median(of_count.map(|line| value(line) as f64))
            };
            let each =
                (at(last)? - at(first)?) / f64::from(last.checked_sub(first).filter(|&n| n > 0)?);
            Some((at(first)? - each * f64::from(first), each))
        };
        let of_squeezy = |value| line("squeezy", value).ok_or_else(missing);
        let (vm_bytes, of_instance) = of_squeezy(|line| line.base_bytes)?;
        let (_, instance) = of_squeezy(|line| line.resident_bytes - line.base_bytes)?;
        let (_, size) = of_squeezy(|line| line.plugged_bytes)?;
        let (_, lone) = line("microvm", |line| line.resident_bytes).ok_or_else(missing)?;
        Ok(Self {
            vm_bytes: vm_bytes as u64,
            lone_vm_bytes: (lone - instance) as u64,
            of_partition: of_instance / size,
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
    /// In a VM of its own, whose image the host has read before.
    pub(super) alone: Duration,
}

impl Starts {
    /// From lines of `coldstart`.
    pub(super) fn of(lines: &[coldstart::Line]) -> Result<Self> {
        let of = |method, was_there: bool| {
            let lines = of_function(lines, method, FUNCTION);
            let lines = lines.filter(|line| line.vm_was_there == was_there);
            median(lines.map(|line| line.total_ns as f64 / 1e9))
                .map(Duration::from_secs_f64)
                .ok_or_else(|| {
                    BenchError::Arguments(format!(
                        "the recorded lines of coldstart do not have how `{FUNCTION}` starts with `{method}`"
                    ))
                })
        };
        Ok(Self {
            in_vm: of("squeezy", true)?,
            with_vm: of("squeezy", false)?,
            alone: of("microvm", true)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{harness::Experiment, record::tests::recorded};

    #[test]
    fn recorded_lines_have_what_is_needed() {
        let sizes = Sizes::of(&recorded(footprint::Arguments::NAME)).unwrap();
        let mib = |bytes: u64| bytes >> 20;
        assert!((40..200).contains(&mib(sizes.vm_bytes)), "{sizes:?}");
        assert!((40..200).contains(&mib(sizes.lone_vm_bytes)), "{sizes:?}");
        // The memory map alone is a sixty-fourth.
        assert!((0.0156..0.03).contains(&sizes.of_partition), "{sizes:?}");
        let starts = Starts::of(&recorded(coldstart::Arguments::NAME)).unwrap();
        assert!(starts.in_vm < starts.alone && starts.in_vm < starts.with_vm, "{starts:?}");
    }
}
