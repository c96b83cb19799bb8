//! Freezing, sweeping and squeezing idle instances.

use super::{actor::Actor, message::Completion, table::InstanceEntry};
use crate::{Guest, InstanceError, NodeEvent, SqueezeReport, instance::Instance};
use squeezy_scaler::{Event, InstanceNumber};
use squeezy_vmm::{Grain, Taken};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{sync::watch, time::sleep};

/// How long an instance is frozen before single pages of it are taken, too. That costs tens of milliseconds, and the huge
/// pages that its next call would find: too much where calls come soon.
const FOR_LONG: Duration = Duration::from_secs(60);

/// What is known of an instance that has just been frozen.
#[derive(Default)]
pub(super) struct AtRest {
    /// The instance as its guest describes it, if it is frozen.
    seen: Option<squeezy_protocol::Instance>,
    /// Free memory of it that the host has taken, if it could.
    taken: Option<Taken>,
    /// Its resident memory on the host in bytes, if it was measured.
    resident_bytes: Option<u64>,
}

/// Since when an instance is frozen.
struct Rest {
    generation: watch::Receiver<u64>,
    stopping: Arc<AtomicBool>,
}

impl Rest {
    /// In the generation that it is of now.
    fn of(entry: &InstanceEntry) -> Self {
        Self { generation: entry.generation.subscribe(), stopping: entry.stopping.clone() }
    }

    /// Whether it still is, and is not to end.
    fn lasts(&self) -> bool {
        !self.stopping.load(Relaxed) && matches!(self.generation.has_changed(), Ok(false))
    }

    /// Waits until it is not, or is gone.
    async fn ended(&mut self) {
        let _ = self.generation.changed().await;
    }
}

async fn at_rest(
    guest: &dyn Guest,
    instance: squeezy_protocol::Instance,
    measures: bool,
) -> AtRest {
    // That it could not be taken has been logged, and costs nothing but memory.
    let taken = guest.take_free(&instance, Grain::Area, Box::new(|| true)).await;
    let taken = taken.and_then(Result::ok);
    let resident_bytes = if measures { guest.resident(&instance).await } else { None };
    AtRest { seen: Some(instance), taken, resident_bytes }
}

impl Actor {
    pub(super) fn freeze(&mut self, instance: InstanceNumber) {
        let measures = self.measures_frozen;
        self.begin_at_rest(instance, async move |frozen, generation, _| {
            let result = match frozen.freeze().await {
                Ok(Some(seen)) => Ok(at_rest(&*frozen.guest, seen, measures).await),
                other => other.map(|_| AtRest::default()),
            };
            Completion::Frozen { instance, generation, result }
        });
    }

    pub(super) fn squeeze(&mut self, instance: InstanceNumber) {
        self.begin_at_rest(instance, async move |frozen, generation, rest| {
            let result = frozen.squeeze(move || rest.lasts()).await;
            Completion::Squeezed { instance, generation, result }
        });
    }

    /// Begins a task with an idle instance.
    fn begin_at_rest<F: Future<Output = Completion> + Send + 'static>(
        &mut self,
        instance: InstanceNumber,
        work: impl FnOnce(Instance, u64, Rest) -> F,
    ) {
        let Some(entry) = self.instances.get(&instance) else { return };
        let Some(resting) = entry.instance() else { return };
        let work = work(resting, entry.next_generation(), Rest::of(entry));
        let machine = entry.machine.clone();
        self.begin_in(machine, work);
    }

    /// Whether an instance has been neither frozen nor thawed since this generation.
    pub(super) fn is_of(&self, instance: InstanceNumber, generation: u64) -> bool {
        let now = self.instances.get(&instance).map(|entry| *entry.generation.borrow());
        now == Some(generation)
    }

    /// Has all that is free of an instance taken once it has been frozen for long, unless its VM is paused then. One at a
    /// time in its VM, whose memory others may want something of.
    fn sweep_later(&mut self, instance: InstanceNumber) {
        let Some(entry) = self.instances.get(&instance) else { return };
        let resting = entry.instance().zip(entry.seen_frozen.clone());
        let Some(((Instance { guest, .. }, seen), vm)) = resting.zip(self.vms.get(&entry.vm))
        else {
            return;
        };
        let (mut rest, sweeping) = (Rest::of(entry), vm.sweeping.clone());
        self.begin(async move {
            let turn = async {
                sleep(FOR_LONG).await;
                sweeping.lock().await
            };
            let turn = tokio::select! {
                biased;
                () = rest.ended() => return Completion::Nothing,
                turn = turn => turn,
            };
            // The pause of its VM has taken all that is free, or is about to.
            if rest.lasts() && !guest.is_paused() {
                guest.sweep(&seen, Box::new(move || rest.lasts())).await;
            }
            drop(turn);
            Completion::Nothing
        });
    }

    pub(super) fn frozen(
        &mut self,
        instance: InstanceNumber,
        generation: u64,
        result: Result<AtRest, InstanceError>,
    ) {
        let Some(function) = self.instances.get(&instance).map(|entry| entry.function) else {
            return;
        };
        match &result {
            Ok(AtRest { taken, .. }) => {
                self.tell(NodeEvent::Frozen { instance, function, taken: *taken });
            }
            Err(error) => self.note(&format!("instance {instance} could not be frozen: {error}")),
        }
        if self.is_of(instance, generation) {
            let AtRest { seen, taken, resident_bytes } = result.unwrap_or_default();
            if let Some(entry) = self.instances.get_mut(&instance) {
                entry.seen_frozen = seen;
            }
            if taken.is_some() {
                self.sweep_later(instance);
            }
            let resident_bytes = resident_bytes.unwrap_or(u64::MAX);
            self.event(Event::Frozen { instance, resident_bytes });
        }
    }

    pub(super) fn squeezed(
        &mut self,
        instance: InstanceNumber,
        generation: u64,
        result: Result<SqueezeReport, InstanceError>,
    ) {
        let Some(entry) = self.instances.get(&instance) else { return };
        let (vm, function) = (entry.vm, entry.function);
        if result.is_err() && self.has_ended(vm) {
            return;
        }
        self.tell(NodeEvent::Squeezed { instance, function, result: result.as_ref() });
        if self.is_of(instance, generation) {
            self.event(match result {
                Ok(SqueezeReport { resident_bytes, cpu, .. }) => {
                    Event::Squeezed { instance, resident_bytes, cpu }
                }
                Err(_) => Event::SqueezeFailed(instance),
            });
        }
    }
}
