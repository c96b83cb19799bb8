//! What happens on a node while it is measured.

use squeezy_node::{MachineDetails, NodeEvent, Observer, SqueezeReport, StartTimes};
use squeezy_scaler::{FunctionIndex, Moment};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Something that happened to an instance or to its VM.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// A VM takes instances after so long.
    Booted(Duration),
    /// An instance's memory is there, or is not, after so long: what its resize took, as [`Seen::Reclaimed`]
    /// has it, or the boot of a VM of its own. That the guest is asked whether it has what its device has
    /// goes on beside the start, and is part of that.
    Plugged(Duration),
    /// An instance takes calls.
    Started(StartTimes),
    /// The memory of a function's instance was asked back when it was stopped, and came or did not.
    Reclaimed { member: usize, stop: Duration, latency: Option<Duration>, failed: bool },
    /// A frozen instance was squeezed, or could not be.
    Squeezed(std::result::Result<Box<SqueezeReport>, String>),
}

/// Sees what happens on a node.
#[derive(Default)]
pub(super) struct Watch {
    seen: Mutex<Seeing>,
}

/// What has been seen so far.
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
            NodeEvent::Died { instance, .. } => {
                return seeing.trouble.push(format!("instance {instance} has ended by itself"));
            }
            NodeEvent::Note(note) => return seeing.trouble.push(note.to_owned()),
            _ => return,
        };
        seeing.seen.push((at, seen));
    }
}
