//! What is measured with the pods of one method.

use super::{APART, Figures, ROOM, TOGETHER};
use crate::{
    error::{BenchError, Result},
    harness::{self, Session},
    record::{Guest, Header, nanoseconds},
    rigs::containerd::{Back, Containerd, Pod, Role, Started, failed, processes, set, until},
};
use squeezy_vmm::Kernel;
use std::{fmt, time::Duration};

/// The size of a pod.
const POD_BYTES: u64 = 256 << 20;
/// How much of it one fills.
const FILLED_BYTES: u64 = 200 << 20;
/// How often a pod that has filled its memory is deleted, and how often only its container ends.
const RECLAIMS: u32 = 4;
/// How long pods are left alone before their memory is counted.
const SETTLE: Duration = Duration::from_secs(2);
/// The same for servers, which return what making pods has taken every 10 s.
const SERVER_SETTLE: Duration = Duration::from_secs(12);

/// What a pod's shell does: it answers.
const SERVE: &str = "busybox httpd -f -p 80";
/// The name of the pod that has filled its memory.
const FULL: &str = "full";

/// The pods of one method, once.
pub(super) struct Step {
    pub(super) method: &'static str,
    pub(super) trial: u32,
    pub(super) pods: u32,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trial {}: {}, {} pods", self.trial + 1, self.method, self.pods)
    }
}

impl harness::Step for Step {}

impl Step {
    /// Starts them one after the other, and counts what they hold. In a VM that they share, others come and go.
    pub(super) async fn take(
        &self,
        session: &mut Session<Figures>,
        containerd: &mut Containerd,
    ) -> Result {
        // The namespace of the pods may have a VM for each.
        set(&match self.method {
            APART => format!("pods = 1\nvms_per_namespace = {ROOM}\n"),
            _ => String::new(),
        })?;
        let mut first = String::new();
        for before in 0..self.pods {
            let started = self.start(session, containerd, before).await?;
            let figures = Figures::Start {
                pods_count: before,
                vm_was_there: self.method == TOGETHER && before > 0,
                total_ns: nanoseconds(started.pod + started.container_started + started.answered),
                pod_ns: nanoseconds(started.pod),
                container_ns: nanoseconds(started.container_started),
                answer_ns: nanoseconds(started.answered),
            };
            session.keep(self.header(session, containerd, &name(before))?, figures)?;
            if before == 0 {
                first = started.container;
            }
        }
        tokio::time::sleep(SETTLE).await;
        self.count_memory(session, containerd)?;
        if self.method == TOGETHER {
            let last = self.pods - 1;
            // The VM may be full.
            remove(containerd, &name(last)).await?;
            for number in 0..RECLAIMS {
                session.progress.tick(&format!("{self}: reclaim {}", number + 1));
                self.reclaim(session, containerd, &first).await?;
                self.empty(session, containerd, &first).await?;
            }
            for before in last..ROOM {
                self.start(session, containerd, before).await?;
            }
        }
        tokio::time::sleep(SERVER_SETTLE).await;
        self.count_servers(session, containerd)
    }

    /// Starts the next pod.
    async fn start(
        &self,
        session: &mut Session<Figures>,
        containerd: &mut Containerd,
        before: u32,
    ) -> Result<Started> {
        session.progress.tick(&format!("{self}: pod {}", before + 1));
        let name = name(before);
        let vm = if self.method == APART { name.as_str() } else { self.method };
        containerd.start(&Pod { name: &name, vm, memory_bytes: POD_BYTES, script: SERVE }).await
    }

    /// What all of them hold on the host. Fails if they have another number of VMs than the lines are about.
    fn count_memory(&self, session: &mut Session<Figures>, containerd: &Containerd) -> Result {
        let (mut vms, mut all_bytes, mut vmm_bytes, mut servers_bytes) = (0, 0, 0, 0);
        for process in processes()? {
            let bytes = process.proportional_bytes()?;
            all_bytes += bytes;
            match process.role {
                Role::Vmm => {
                    vms += 1;
                    vmm_bytes += bytes;
                }
                Role::Server => servers_bytes += bytes,
                Role::Holder => {}
            }
        }
        let expected = if self.method == TOGETHER { 1 } else { self.pods };
        if vms != expected {
            let reason = format!("{} pods are in {vms} VMs instead of {expected}", self.pods);
            return Err(failed("that was last", reason));
        }
        let memory = Figures::Memory { pods_count: self.pods, all_bytes, vmm_bytes, servers_bytes };
        session.keep(self.header(session, containerd, &name(0))?, memory)
    }

    /// What each server has resident.
    fn count_servers(&self, session: &mut Session<Figures>, containerd: &Containerd) -> Result {
        let pods_count = if self.method == TOGETHER { ROOM } else { 1 };
        for process in processes()?.into_iter().filter(|process| process.role == Role::Server) {
            let server = Figures::Server {
                pods_count,
                resident_bytes: process.resident_bytes()?,
                most_bytes: Some(process.most_resident_bytes()?),
            };
            session.keep(self.header(session, containerd, &name(0))?, server)?;
        }
        Ok(())
    }

    /// Deletes a pod that has filled its memory, beside the others of its VM, one of whose containers is `other`.
    async fn reclaim(
        &self,
        session: &mut Session<Figures>,
        containerd: &mut Containerd,
        other: &str,
    ) -> Result {
        self.start_full(containerd).await?;
        let header = self.header(session, containerd, FULL)?;
        let before = migrated(containerd, other).await?;
        let back = remove(containerd, FULL).await?;
        let migrated_pages = migrated(containerd, other).await?.saturating_sub(before);
        let figures = Figures::Reclaim {
            size_bytes: POD_BYTES,
            back_ns: back.after_us * 1000,
            request_ns: back.latency_us * 1000,
            empty_ns: Some(back.empty_us * 1000),
            migrated_pages,
        };
        session.keep(header, figures)
    }

    /// Ends the container of such a pod, and deletes the pod only when its memory is back.
    async fn empty(
        &self,
        session: &mut Session<Figures>,
        containerd: &mut Containerd,
        other: &str,
    ) -> Result {
        let container = self.start_full(containerd).await?.container;
        let header = self.header(session, containerd, FULL)?;
        let before = migrated(containerd, other).await?;
        let log = containerd.log(FULL)?;
        let known = log.freed()?.len();
        containerd.kill(&container).await?;
        let what = "the free memory of a pod without containers is back";
        let freed = next(what, known, || log.freed()).await?;
        let migrated_pages = migrated(containerd, other).await?.saturating_sub(before);
        let figures = Figures::Emptied {
            size_bytes: POD_BYTES,
            empty_ns: freed.empty_us * 1000,
            back_ns: freed.latency_us * 1000,
            freed_bytes: freed.bytes,
            migrated_pages,
        };
        session.keep(header, figures)?;
        remove(containerd, FULL).await?;
        Ok(())
    }

    /// Starts a pod that has filled its memory when it answers.
    async fn start_full(&self, containerd: &mut Containerd) -> Result<Started> {
        // dd has memory for all of it before it writes any, and nobody reads more of it than a byte.
        let script = format!(
            "busybox dd if=/dev/zero bs={FILLED_BYTES} count=1 | {{ busybox head -c 1 >/dev/null; {SERVE} </dev/null; }}"
        );
        let pod = Pod { name: FULL, vm: self.method, memory_bytes: POD_BYTES, script: &script };
        containerd.start(&pod).await
    }

    /// The header of a line about a pod that is there, by what its server says of its VM.
    fn header(
        &self,
        session: &Session<Figures>,
        containerd: &Containerd,
        pod: &str,
    ) -> Result<Header> {
        let vm = containerd.log(pod)?.booted()?;
        let memory_backend = session.options.memory_backend.to_string();
        if vm.accelerator != session.accelerator().to_string()
            || vm.memory_backend != memory_backend
        {
            return Err(BenchError::Arguments(format!(
                "the shim's VMs have the accelerator {} on this machine, and the memory backend {}, by \
                 /sys/kernel/mm/transparent_hugepage/shmem_enabled: measure these, with --memory-backend {1}, or change it",
                vm.accelerator, vm.memory_backend
            )));
        }
        let guest = Guest::new(&vm.kernel, Kernel::Release, &vm.vmm);
        Ok(session.header(self.method, self.trial, Some(&guest)))
    }
}

/// The name of the pod before which so many were started.
fn name(before: u32) -> String {
    format!("pod-{before}")
}

/// Removes a pod, and waits until its memory is back.
async fn remove(containerd: &mut Containerd, pod: &str) -> Result<Back> {
    let log = containerd.log(pod)?;
    let known = log.back()?.len();
    containerd.remove(pod).await?;
    next("the memory of a pod is back", known, || log.back()).await
}

/// Waits for what is said next, after so many others.
async fn next<T>(what: &str, known: usize, said: impl Fn() -> Result<Vec<T>>) -> Result<T> {
    let mut found = None;
    until(what, || {
        found = said()?.into_iter().nth(known);
        Ok(found.is_some())
    })
    .await?;
    found.ok_or_else(|| failed("that was last", format!("not said: {what}")))
}

/// Pages that the guest has migrated so far, as a container sees it.
async fn migrated(containerd: &Containerd, container: &str) -> Result<u64> {
    let text = containerd.execute(container, &["cat", "/proc/vmstat"]).await?;
    let found = text.lines().find_map(|line| line.strip_prefix("pgmigrate_success "));
    found
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| failed(container, "its /proc/vmstat has no pgmigrate_success".to_owned()))
}
