//! What is measured with the pods of one method.

use super::{APART, Figures, TOGETHER};
use crate::{
    error::{BenchError, Result},
    harness::{self, Session},
    record::{Guest, Header, nanoseconds},
    rigs::containerd::{Containerd, Pod, Role, back, booted, failed, processes, until},
};
use squeezy_vmm::Kernel;
use std::{fmt, time::Duration};

/// The size of a pod, and how much of it one fills, in bytes.
const POD_BYTES: u64 = 256 << 20;
const FILLED_BYTES: u64 = 200 << 20;
/// How often a pod that has filled its memory is deleted.
const RECLAIMS: u32 = 4;
/// How long pods are left alone before their memory is counted.
const SETTLE: Duration = Duration::from_secs(2);

const SERVE: &str = "busybox httpd -f -p 80";

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

impl harness::Step for Step {
    fn weight(&self) -> f64 {
        if self.method == TOGETHER { 1.0 } else { 3.0 }
    }
}

impl Step {
    /// Starts them one after the other, and counts what they hold. With those of one VM, others come and go.
    pub(super) async fn take(
        &self,
        session: &mut Session<Figures>,
        containerd: &mut Containerd,
    ) -> Result {
        let mut first = String::new();
        for before in 0..self.pods {
            let name = format!("pod-{before}");
            let vm = if self.method == APART { name.clone() } else { self.method.to_owned() };
            session.progress.tick(&format!("{self}: pod {}", before + 1));
            let pod = Pod { name: &name, vm: &vm, memory_bytes: POD_BYTES, script: SERVE };
            let started = containerd.start(&pod).await?;
            let figures = Figures::Start {
                pods_count: before,
                vm_was_there: self.method == TOGETHER && before > 0,
                total_ns: nanoseconds(started.pod + started.container_started + started.answered),
                pod_ns: nanoseconds(started.pod),
                container_ns: nanoseconds(started.container_started),
                answer_ns: nanoseconds(started.answered),
            };
            session.keep(self.header(session)?, figures)?;
            if before == 0 {
                first = started.container;
            }
        }
        tokio::time::sleep(SETTLE).await;
        self.count(session)?;
        if self.method == TOGETHER {
            for number in 0..RECLAIMS {
                session.progress.tick(&format!("{self}: reclaim {}", number + 1));
                self.reclaim(session, containerd, &first).await?;
            }
        }
        Ok(())
    }

    /// What all of them hold on the host.
    fn count(&self, session: &mut Session<Figures>) -> Result {
        let pods_count = self.pods;
        let (mut all_bytes, mut vmm_bytes, mut servers_bytes) = (0, 0, 0);
        let mut servers = Vec::new();
        for process in processes()? {
            let bytes = process.proportional_bytes()?;
            all_bytes += bytes;
            match process.role {
                Role::Vmm => vmm_bytes += bytes,
                Role::Server => {
                    servers_bytes += bytes;
                    servers.push(process.resident_bytes()?);
                }
                Role::Holder => {}
            }
        }
        let header = self.header(session)?;
        let memory = Figures::Memory { pods_count, all_bytes, vmm_bytes, servers_bytes };
        session.keep(header.clone(), memory)?;
        let pods_count = pods_count / u32::try_from(servers.len()).unwrap_or(1).max(1);
        for resident_bytes in servers {
            session.keep(header.clone(), Figures::Server { pods_count, resident_bytes })?;
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
        // dd has memory for all of it before it writes any, and nobody reads more of it than a byte.
        let script = format!(
            "busybox dd if=/dev/zero bs={FILLED_BYTES} count=1 | {{ busybox head -c 1 >/dev/null; {SERVE} </dev/null; }}"
        );
        let name = "full";
        let pod = Pod { name, vm: self.method, memory_bytes: POD_BYTES, script: &script };
        containerd.start(&pod).await?;
        let before = migrated(containerd, other).await?;
        let known = back()?.len();
        containerd.remove(name).await?;
        until("the memory of a pod is back", || Ok(back()?.len() > known)).await?;
        let migrated_pages = migrated(containerd, other).await?.saturating_sub(before);
        let Some(back) = back()?.pop() else { return Ok(()) };
        let figures = Figures::Reclaim {
            size_bytes: POD_BYTES,
            back_ns: back.after_us * 1000,
            request_ns: back.latency_us * 1000,
            migrated_pages,
        };
        session.keep(self.header(session)?, figures)
    }

    /// The header of a line, by what the servers say of their VMs, which are all the same.
    fn header(&self, session: &Session<Figures>) -> Result<Header> {
        let Some(vm) = booted()?.pop() else {
            return Err(failed(
                "that was first",
                "no server says that its VM has booted".to_owned(),
            ));
        };
        let memory_backend = session.options.memory_backend.to_string();
        if vm.accelerator != session.accelerator().to_string()
            || vm.memory_backend != memory_backend
        {
            return Err(BenchError::Arguments(format!(
                "the shim's VMs have the accelerator {} and the memory backend {} on this machine, and take no other",
                vm.accelerator, vm.memory_backend
            )));
        }
        let guest = Guest::new(&vm.kernel, Kernel::Release, &vm.vmm);
        Ok(session.header(self.method, self.trial, Some(&guest)))
    }
}

/// Pages that the guest has migrated so far, as a container sees it.
async fn migrated(containerd: &Containerd, container: &str) -> Result<u64> {
    let text = containerd.execute(container, &["cat", "/proc/vmstat"]).await?;
    let found = text.lines().find_map(|line| line.strip_prefix("pgmigrate_success "));
    found
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| failed(container, "its /proc/vmstat has no pgmigrate_success".to_owned()))
}
