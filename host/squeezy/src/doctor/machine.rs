//! The machine: processors, memory and limits.

use super::finding::Finding;
use crate::serve::{Config, LESS_MEMORY, MOST_FILES, beyond_machine};
use bytesize::ByteSize;
use rustix::process::{Resource, getrlimit};
use squeezy_protocol::NetworkAccess;
use squeezy_vmm::{
    AcceleratorChoice, MemoryBackend, SHARED_HUGE_PAGES_ON, SharedHugePages, available_bytes,
    machine_bytes, network, probe_kvm, transparent_huge_pages,
};
use std::fs;

/// Open files that connections and VMs need, at least, for a daemon that is more than a trial.
const FEW_FILES: u64 = 4096;

/// Whether khugepaged fills pages that were taken out of a huge one: how many of 512 may be missing.
const FILLS_HOLES: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none";

/// Looks at everything.
pub fn examine(config: &Config) -> Vec<Finding> {
    let backend = config.memory_backend.resolve(config.policy.mechanism());
    let mut findings = vec![
        kvm(config.accelerator, probe_kvm()),
        huge_pages(&transparent_huge_pages()),
        shared_huge_pages(&SharedHugePages::of_host()),
    ];
    if backend == MemoryBackend::Memfd {
        findings.push(holes(fs::read_to_string(FILLS_HOLES).ok().as_deref()));
    }
    findings.push(memory(config.memory_bytes, machine_bytes().ok(), available_bytes().ok()));
    findings.push(files(getrlimit(Resource::Nofile).maximum));
    findings.push(network(config.network, network::problem()));
    findings
}

fn kvm(choice: AcceleratorChoice, probe: Result<f64, String>) -> Finding {
    let subject = "KVM";
    match (probe, choice) {
        (Ok(ns), AcceleratorChoice::Tcg) => Finding::slow(
            subject,
            format!(
                "works ({ns:.1} ns per loop iteration), but accelerator = \"tcg\" does without"
            ),
            "set accelerator = \"auto\"",
        ),
        (Ok(ns), _) => Finding::good(subject, format!("works, at {ns:.1} ns per loop iteration")),
        (Err(reason), AcceleratorChoice::Kvm) => Finding::wrong(
            subject,
            format!("not usable: {reason}"),
            "set accelerator = \"auto\" to do without, or use a machine with KVM",
        ),
        (Err(reason), _) => Finding::slow(
            subject,
            format!(
                "not usable: {reason}; functions are emulated, ten to several hundred times slower"
            ),
            "use a machine with KVM, or turn on nested virtualization; /dev/kvm has to be open to this user",
        ),
    }
}

fn huge_pages(setting: &str) -> Finding {
    let subject = "huge pages";
    if setting == "never" {
        return Finding::slow(
            subject,
            "off: giving memory back takes the host several times as long",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        );
    }
    Finding::good(subject, format!("on (`{setting}`)"))
}

fn shared_huge_pages(pages: &SharedHugePages) -> Finding {
    let subject = "shared huge pages";
    let SharedHugePages { are_available, setting } = pages;
    if *are_available {
        return Finding::good(
            subject,
            format!("on (`{setting}`): the host takes free memory by itself"),
        );
    }
    Finding::slow(
        subject,
        format!(
            "off (`{setting}`): the host asks guests for free memory instead of taking it by itself"
        ),
        SHARED_HUGE_PAGES_ON,
    )
}

fn holes(most_missing: Option<&str>) -> Finding {
    let subject = "khugepaged";
    match most_missing.map(str::trim) {
        None | Some("0") => {
            Finding::good(subject, "leaves pages alone that were taken out of huge ones")
        }
        Some(_) => Finding::slow(
            subject,
            "may fill single pages again that were taken out of huge ones",
            format!("echo 0 > {FILLS_HOLES}"),
        ),
    }
}

fn memory(budget_bytes: u64, machine_bytes: Option<u64>, available_bytes: Option<u64>) -> Finding {
    let subject = "memory";
    if let Some(problem) = beyond_machine(budget_bytes, machine_bytes) {
        return Finding::wrong(subject, problem, LESS_MEMORY);
    }
    match available_bytes {
        Some(available_bytes) if available_bytes < budget_bytes => Finding::slow(
            subject,
            format!(
                "memory = {}, but only {} of it is free at the moment: VMs that need more are not started",
                ByteSize(budget_bytes),
                ByteSize(available_bytes)
            ),
            "set `memory` to less, or end what uses the rest",
        ),
        _ => Finding::good(subject, format!("{} for VMs and instances", ByteSize(budget_bytes))),
    }
}

fn files(most: Option<u64>) -> Finding {
    let subject = "open files";
    match most {
        Some(most) if most < FEW_FILES => Finding::slow(
            subject,
            format!("at most {most}: connections and VMs need some {FEW_FILES}"),
            format!("ulimit -Hn {MOST_FILES}, or LimitNOFILE={MOST_FILES} in the unit"),
        ),
        Some(most) => Finding::good(subject, format!("at most {most}")),
        None => Finding::good(subject, "unlimited"),
    }
}

fn network(access: NetworkAccess, problem: Option<String>) -> Finding {
    let subject = "network";
    match (problem, access) {
        (None, _) => Finding::good(subject, "functions can have one, and only what it allows"),
        (Some(problem), NetworkAccess::Outbound) => {
            Finding::wrong(subject, problem, "or set network = \"none\"")
        }
        (Some(problem), NetworkAccess::None) => {
            Finding::slow(subject, problem, "functions without a network are served")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict::{Good, Slow, Wrong};
    use super::*;

    #[test]
    fn a_machine_without_network_serves_functions_that_need_none() {
        let problem = || Some("no network".to_owned());
        assert_eq!(network(NetworkAccess::Outbound, None).verdict, Good);
        assert_eq!(network(NetworkAccess::None, problem()).verdict, Slow);
        assert_eq!(network(NetworkAccess::Outbound, problem()).verdict, Wrong);
    }

    #[test]
    fn a_machine_without_kvm_is_slow_unless_kvm_is_required() {
        let without = || Err("/dev/kvm: no such file".to_owned());
        assert_eq!(kvm(AcceleratorChoice::Auto, Ok(0.5)).verdict, Good);
        assert_eq!(kvm(AcceleratorChoice::Tcg, Ok(0.5)).verdict, Slow);
        assert_eq!(kvm(AcceleratorChoice::Auto, without()).verdict, Slow);
        let wrong = kvm(AcceleratorChoice::Kvm, without());
        assert!(wrong.verdict == Wrong && wrong.found.contains("no such file"), "{wrong:?}");
    }

    #[test]
    fn what_makes_reclaims_slow_is_named_with_what_turns_it_on() {
        let off = SharedHugePages { are_available: false, setting: "never".to_owned() };
        for slow in [huge_pages("never"), shared_huge_pages(&off), holes(Some("511\n"))] {
            assert_eq!(slow.verdict, Slow);
            assert!(slow.remedy.as_ref().unwrap().starts_with("echo "), "{slow:?}");
        }
        let on = SharedHugePages { are_available: true, setting: "advise".to_owned() };
        for good in [huge_pages("madvise"), shared_huge_pages(&on), holes(Some("0\n")), holes(None)]
        {
            assert_eq!((good.verdict, good.remedy), (Good, None));
        }
    }

    #[test]
    fn a_budget_beyond_the_machine_is_wrong() {
        assert_eq!(memory(4 << 30, Some(8 << 30), Some(6 << 30)).verdict, Good);
        assert_eq!(memory(4 << 30, Some(8 << 30), Some(2 << 30)).verdict, Slow);
        let wrong = memory(16 << 30, Some(8 << 30), Some(6 << 30));
        assert_eq!((wrong.verdict, wrong.remedy.as_deref()), (Wrong, Some("set `memory` to less")));
        assert_eq!(files(Some(1024)).verdict, Slow);
        assert_eq!((files(Some(1 << 20)).verdict, files(None).verdict), (Good, Good));
    }
}
