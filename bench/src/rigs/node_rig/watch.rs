//! Observes a node during a measurement.

use squeezy_node::{MachineDetails, NodeEvent, Observer, SqueezeReport, StartTimes};
use squeezy_scaler::{FunctionIndex, Moment};
use squeezy_vmm::BootStep;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// An event of an instance or its VM.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// How long a VM took to boot until it takes instances.
    Booted(Duration),
    /// How long plugging an instance's memory took, successfully or not: the resize alone, as in
    /// [`Seen::Reclaimed`], or the boot of a VM of its own. Asking the guest whether it agrees with
    /// its device overlaps with the start, and counts as part of that.
    Plugged(Duration),
    /// An instance takes calls.
    Started(StartTimes),
    /// The memory of a stopped instance was reclaimed, or could not be.
    Reclaimed { member: usize, stop: Duration, latency: Option<Duration>, failed: bool },
    /// A frozen instance was squeezed, or could not be.
    Squeezed(std::result::Result<Box<SqueezeReport>, String>),
    /// A VM in which nothing runs was paused.
    Paused,
}

/// Observes a node.
#[derive(Default)]
pub(super) struct Watch {
    seen: Mutex<Seeing>,
}

/// The observations so far.
#[derive(Default)]
pub(super) struct Seeing {
    pub(super) details: Option<MachineDetails>,
    pub(super) seen: Vec<(Moment, Seen)>,
    pub(super) trouble: Vec<String>,
}

impl Watch {
    pub(super) fn lock(&self) -> MutexGuard<'_, Seeing> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Watch {
    fn observe(&self, at: Moment, event: NodeEvent<'_>) {
        let mut seeing = self.lock();
        let seen = match event {
            // Its time would be that of two boots.
            NodeEvent::Booting { step: step @ BootStep::Crashed(_), .. } => {
                return seeing.trouble.push(step.to_string());
            }
            NodeEvent::Booted { machine: details, took, .. } => {
                seeing.details.get_or_insert_with(|| details.clone());
                Seen::Booted(took)
            }
            NodeEvent::Plugged { took, outcome, .. } => {
                Seen::Plugged(outcome.latency.unwrap_or(took))
            }
            NodeEvent::Started { result: Ok(times), .. } => Seen::Started(times),
            NodeEvent::Started { instance, result: Err(error), .. } => {
                return seeing.trouble.push(format!("instance {instance}: {error}"));
            }
            NodeEvent::Reclaimed { function: FunctionIndex(member), stop, outcome, .. } => {
                Seen::Reclaimed {
                    stop: stop.unwrap_or_default(),
                    member: member as usize,
                    latency: outcome.latency,
                    failed: outcome.error.is_some(),
                }
            }
            NodeEvent::Squeezed { result, .. } => {
                Seen::Squeezed(result.cloned().map(Box::new).map_err(ToString::to_string))
            }
            NodeEvent::Paused { .. } => Seen::Paused,
            NodeEvent::Died { instance, .. } => {
                return seeing.trouble.push(format!("instance {instance} has ended on its own"));
            }
            NodeEvent::Note(note) => return seeing.trouble.push(note.to_owned()),
            _ => return,
        };
        seeing.seen.push((at, seen));
    }
}
