//! A VM with instances of memhog, and measurements of reclaiming their memory.

mod counters;
mod floor;
mod hog;
mod methods;
mod reclaim;
mod resizing;

pub(crate) use floor::floor;
pub(crate) use hog::{hog_bytes, id, instance};
pub(crate) use methods::{EVERY_METHOD, Methods};
pub(crate) use reclaim::Reclaimed;
pub(crate) use resizing::{Beside, ResizeTimes};

use crate::{
    error::{BenchError, Result},
    harness::Session,
    record::{Guest, Recorded, nanoseconds},
};
use counters::workers_ns;
use futures_util::future::try_join_all;
use squeezy_protocol::{Instance, InstanceSpec};
use squeezy_vmm::{
    AgentClient, BootStep, BoxFuture, Resize, Vm, VmConfig,
    mechanism::{Mechanism, MechanismName, Sizing, Slot},
    round_up,
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// How long the guest is left alone before a measurement, so that earlier work does not count.
const SETTLE: Duration = Duration::from_millis(400);

/// A VM for instances of one size.
pub(crate) struct MemhogVm {
    vm: Vm,
    mechanism: Box<dyn Mechanism>,
    guest: Guest,
    slots: Vec<Option<Slot>>,
    /// Running instances, with the bytes that each one uses.
    running: BTreeMap<u16, u64>,
}

impl MemhogVm {
    /// Boots a VM with room for the instances, but without any.
    pub(crate) async fn start<F: Recorded>(
        session: &Session<F>,
        name: MechanismName,
        sizing: Sizing,
        arguments: &[String],
    ) -> Result<Self> {
        Self::start_with(session, name, sizing, arguments, |_| ()).await
    }

    /// The same, with a change of its configuration.
    pub(crate) async fn start_with<F: Recorded>(
        session: &Session<F>,
        name: MechanismName,
        sizing: Sizing,
        arguments: &[String],
        change: impl FnOnce(&mut VmConfig),
    ) -> Result<Self> {
        let mechanism = name.mechanism(sizing).ok_or_else(|| {
            BenchError::Arguments(format!("the method `{name}` does not use a VM"))
        })?;
        let kernel = mechanism.kernel();
        let mut config = VmConfig::new(
            format!("bench-{name}"),
            session.files.kernel(kernel),
            session.files.initramfs(),
        );
        config.base_bytes = base_bytes(sizing);
        config.command_line = arguments.to_vec();
        session.configure(&mut config);
        let mut config = mechanism.configure(config);
        change(&mut config);
        let mut crash = None;
        let vm = Vm::start_with(config, |step| {
            if let BootStep::Crashed(error) = step {
                crash = Some(error);
            }
        });
        let vm = vm.await?;
        // Its time would be that of two boots.
        if let Some(error) = crash {
            return Err(error.into());
        }
        let release = vm.agent()?.info().await?.kernel_release;
        let guest = Guest::new(&release, kernel, vm.vmm_version());
        Ok(Self {
            vm,
            mechanism,
            guest,
            slots: vec![None; sizing.instances.into()],
            running: BTreeMap::new(),
        })
    }

    /// The guest, for the header of lines.
    pub(crate) fn guest(&self) -> &Guest {
        &self.guest
    }

    /// The VM.
    pub(crate) fn vm(&self) -> &Vm {
        &self.vm
    }

    fn agent(&self) -> Result<&AgentClient> {
        Ok(self.vm.agent()?)
    }

    /// Plugs memory for an instance that has none; returns the resize.
    pub(crate) async fn plug(&mut self, index: u16) -> Result<Option<Resize>> {
        let slot = &mut self.slots[usize::from(index)];
        if slot.is_some() {
            return Ok(None);
        }
        let taken = self.mechanism.slots().take()?;
        let resize = self.mechanism.plug(&self.vm, taken).await?;
        *slot = Some(taken);
        Ok(resize)
    }

    /// Plugs memory for all these instances and starts them at the same time, so that their pages
    /// are interleaved, and waits until each has its bytes. Returns how long each took to touch
    /// them, in nanoseconds, as measured in the guest.
    pub(crate) async fn fill(&mut self, bytes: &BTreeMap<u16, u64>) -> Result<BTreeMap<u16, u64>> {
        for &index in bytes.keys() {
            self.plug(index).await?;
        }
        let mut starting = JoinSet::new();
        for (&index, &bytes) in bytes {
            let (agent, spec) = (self.agent()?.clone(), self.spec(index, bytes)?);
            starting.spawn(async move {
                agent.start(&spec).await?;
                let touch_ns = hog::touched(&agent, &spec.id).await?;
                Ok::<_, BenchError>((index, touch_ns))
            });
        }
        let mut took = BTreeMap::new();
        while let Some(done) = starting.join_next().await {
            let (index, touch_ns) =
                done.map_err(|e| BenchError::Arguments(format!("a task failed: {e}")))??;
            took.insert(index, touch_ns);
        }
        self.running.extend(bytes);
        Ok(took)
    }

    /// Plugs memory for an instance and runs a command of memhog in it, until it has touched its memory.
    pub(crate) async fn run(&mut self, index: u16, command: Vec<String>) -> Result<Instance> {
        self.plug(index).await?;
        let spec = InstanceSpec { command, ..self.spec(index, 0)? };
        let instance = self.agent()?.start(&spec).await?;
        hog::touched(self.agent()?, &spec.id).await?;
        Ok(instance)
    }

    /// Reclaims the memory of an instance that has ended; returns the resize.
    pub(crate) async fn take_back(&mut self, index: u16) -> Result<Option<Resize>> {
        let Some(slot) = self.slots[usize::from(index)].take() else { return Ok(None) };
        self.mechanism.slots().free(slot)?;
        Ok(self.mechanism.reclaim(&self.vm, slot).await?)
    }

    fn spec(&self, index: u16, bytes: u64) -> Result<InstanceSpec> {
        let slot = self.slots[usize::from(index)]
            .ok_or_else(|| BenchError::Arguments(format!("instance {index} has no memory")))?;
        let mut spec = hog::instance(index, vec!["/bin/memhog".to_owned(), bytes.to_string()])?;
        self.mechanism.place(slot, &mut spec);
        spec.wait_ms = 20_000;
        Ok(spec)
    }

    /// Kills an instance; returns once its processes are gone.
    pub(crate) async fn kill(&mut self, index: u16) -> Result {
        if self.running.remove(&index).is_some() {
            self.agent()?.stop(&hog::id(index)?, Duration::ZERO).await?;
        }
        Ok(())
    }

    /// Kills all instances.
    pub(crate) async fn kill_all(&mut self) -> Result {
        for index in self.running.keys().copied().collect::<Vec<_>>() {
            self.kill(index).await?;
        }
        Ok(())
    }

    /// Bytes that the running instances hold.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.running.values().sum()
    }

    /// Waits until earlier work is done.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(SETTLE).await;
    }

    /// Plugs memory for all instances at once; returns the duration in nanoseconds and the number
    /// of requests to the device.
    pub(crate) async fn plug_all(&mut self) -> Result<(u64, u64)> {
        for slot in &mut self.slots {
            *slot = Some(self.mechanism.slots().take()?);
        }
        let slots = self.slots.iter().flatten();
        self.at_once(slots.map(|&slot| self.mechanism.plug(&self.vm, slot)).collect()).await
    }

    /// Reclaims the memory of all instances, which have ended, at once; returns the same as
    /// [`Self::plug_all`].
    pub(crate) async fn reclaim_all(&mut self) -> Result<(u64, u64)> {
        let slots: Vec<_> = self.slots.iter_mut().filter_map(Option::take).collect();
        for &slot in &slots {
            self.mechanism.slots().free(slot)?;
        }
        self.at_once(slots.iter().map(|&slot| self.mechanism.reclaim(&self.vm, slot)).collect())
            .await
    }

    async fn at_once(
        &self,
        resizes: Vec<BoxFuture<'_, squeezy_vmm::Result<Option<Resize>>>>,
    ) -> Result<(u64, u64)> {
        let start = Instant::now();
        let done = try_join_all(resizes).await?;
        let took = nanoseconds(start.elapsed());
        // Each resize counts the requests of all that overlap with it.
        let requests = |resize: &Resize| resize.device.map_or(0, |d| d.plug + d.unplug);
        Ok((took, done.iter().flatten().map(requests).max().unwrap_or(0)))
    }

    /// Has an instance in each slot use its memory and end.
    pub(crate) async fn touch_all(&mut self, size_bytes: u64) -> Result {
        let count = self.slots.len() as u16;
        // A few at a time: all at once would take as long, and more host memory.
        for first in (0..count).step_by(4) {
            let some = first..count.min(first + 4);
            self.fill(&some.map(|index| (index, hog_bytes(size_bytes))).collect()).await?;
            self.kill_all().await?;
        }
        Ok(())
    }

    /// CPU time of the guest's kworkers, in nanoseconds since boot.
    pub(crate) async fn workers_ns(&self) -> Result<u64> {
        Ok(workers_ns(&self.agent()?.memory().await?))
    }

    /// Ends the VM.
    pub(crate) async fn stop(self) -> Result {
        Ok(self.vm.stop().await?)
    }
}

/// Base memory: what the kernel, the agent and the memory map need, and no more, because free base
/// memory is room that a VM in real use does not have.
fn base_bytes(sizing: Sizing) -> u64 {
    let all = sizing.shared_bytes + u64::from(sizing.instances) * sizing.instance_bytes;
    round_up((160 << 20) + all / 40, 2 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_what_a_vm_needs_and_little_more() {
        let sizing = Sizing { instance_bytes: 512 << 20, instances: 4, shared_bytes: 0 };
        let bytes = base_bytes(sizing);
        assert!(
            (192 << 20..256 << 20).contains(&bytes) && bytes.is_multiple_of(2 << 20),
            "{bytes}"
        );
    }
}
