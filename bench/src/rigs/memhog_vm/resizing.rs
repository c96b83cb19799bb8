//! Takes the memory of an ended instance and gives it back, beside a program or on its own.

use super::{MemhogVm, counters::cpu_delta, hog};
use crate::{
    error::{BenchError, Result},
    rigs::program_vm::run_to_end,
};
use serde::de::DeserializeOwned;
use squeezy_vmm::{VmError, mechanism::Slot};
use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// From the beginning of one resize to that of the next, if the VM has followed by then.
const INTERVAL: Duration = Duration::from_millis(500);

/// A program has run, perhaps while its VM was resized.
pub(crate) struct Beside<T> {
    /// The lines of JSON that it has printed.
    pub(crate) printed: Vec<T>,
    /// CPU time of the VM's virtual processors until it ended.
    pub(crate) vcpus_ns: u64,
    /// How often memory was taken or given back meanwhile.
    pub(crate) resizes: u64,
}

impl<T> Beside<T> {
    /// Both runs as one.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.printed.extend(other.printed);
        self.vcpus_ns += other.vcpus_ns;
        self.resizes += other.resizes;
        self
    }
}

/// What taking memory and giving it back takes in a VM that does nothing else.
pub(crate) struct ResizeTimes {
    /// CPU time of the VM's virtual processors.
    pub(crate) vcpus_ns: u64,
    /// CPU time of the VMM's device threads.
    pub(crate) devices_ns: u64,
}

impl MemhogVm {
    /// Runs a program in memory that is nobody's to its end. Meanwhile, if `is_resized`, takes and
    /// gives back the memory of the first instance, which is not running, again and again.
    pub(crate) async fn run_beside<T: DeserializeOwned>(
        &mut self,
        command: Vec<String>,
        limit: Duration,
        is_resized: bool,
    ) -> Result<Beside<T>> {
        let spec = hog::instance(self.slots.len() as u16, command)?;
        let is_running = Cell::new(true);
        let mut slot = self.slots[0].take();
        let before = self.vm.cpu_times()?;
        let program = async {
            let printed = run_to_end(self.agent()?, &spec, limit).await?;
            is_running.set(false);
            Ok::<_, BenchError>((printed, cpu_delta(&before, &self.vm.cpu_times()?).vcpus_ns))
        };
        let goes_on_at = async |next: Instant| {
            tokio::time::sleep_until(next.into()).await;
            is_running.get()
        };
        let resizing = async {
            let mut resizes = 0;
            let mut next = Instant::now() + INTERVAL;
            while is_resized && goes_on_at(next).await {
                self.resize_once(&mut slot).await?;
                resizes += 1;
                next = Instant::now().max(next + INTERVAL);
            }
            Ok::<u64, BenchError>(resizes)
        };
        let ((printed, vcpus_ns), resizes) = tokio::try_join!(program, resizing)?;
        self.slots[0] = slot;
        Ok(Beside { printed, vcpus_ns, resizes })
    }

    /// Takes the memory of the first instance, which is not running, and gives it back.
    pub(crate) async fn resize_alone(&mut self) -> Result<ResizeTimes> {
        let mut slot = self.slots[0].take();
        let before = self.vm.cpu_times()?;
        for _ in 0..2 {
            self.resize_once(&mut slot).await?;
        }
        let times = cpu_delta(&before, &self.vm.cpu_times()?);
        self.slots[0] = slot;
        Ok(ResizeTimes { vcpus_ns: times.vcpus_ns, devices_ns: times.devices_ns })
    }

    /// Takes the memory of a slot, or gives it back.
    async fn resize_once(&self, slot: &mut Option<Slot>) -> Result {
        let resize = match slot.take() {
            Some(full) => {
                self.mechanism.slots().free(full)?;
                self.mechanism.reclaim(&self.vm, full).await?
            }
            None => {
                let empty = self.mechanism.slots().take()?;
                *slot = Some(empty);
                self.mechanism.plug(&self.vm, empty).await?
            }
        };
        resize.map(drop).ok_or_else(|| VmError::NotResizable("nothing was resized").into())
    }
}
