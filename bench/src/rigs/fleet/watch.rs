//! What happens on a node while it is measured.

use squeezy_node::{Happening, MachineDetails, Observer, SqueezeReport, StartTimes};
use squeezy_runtime::{FunctionIndex, InstanceNumber, Moment};
use std::{
    collections::BTreeMap,
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
    of: BTreeMap<InstanceNumber, usize>,
    stopping: BTreeMap<InstanceNumber, Moment>,
    pub(super) seen: Vec<(Moment, Seen)>,
    pub(super) trouble: Vec<String>,
}

impl Watch {
    pub(super) fn lock(&self) -> MutexGuard<'_, Seeing> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Watch {
    fn observe(&self, at: Moment, happening: Happening<'_>) {
        let mut seeing = self.lock();
        let seen = match happening {
            Happening::Booted(_, details, took) => {
                seeing.details.get_or_insert_with(|| details.clone());
                Seen::Booted(took)
            }
            Happening::Starting(instance, FunctionIndex(index)) => {
                seeing.of.insert(instance, index as usize);
                return;
            }
            Happening::Plugged(_, took, tried) => Seen::Plugged(tried.latency.unwrap_or(took)),
            Happening::Started(_, Ok(times)) => Seen::Started(times),
            Happening::Started(instance, Err(error)) => {
                return seeing.trouble.push(format!("instance {instance}: {error}"));
            }
            Happening::Stopping(instance, _) => {
                seeing.stopping.insert(instance, at);
                return;
            }
            Happening::Reclaimed(instance, asked, Some(tried)) => Seen::Reclaimed {
                stop: seeing.stopping.remove(&instance).map_or(Duration::ZERO, |s| asked.since(s)),
                member: seeing.of.get(&instance).copied().unwrap_or_default(),
                latency: tried.latency,
                failed: tried.error.is_some(),
            },
            Happening::Squeezed(_, result) => {
                Seen::Squeezed(result.cloned().map(Box::new).map_err(str::to_owned))
            }
            Happening::Died(instance, _) => {
                return seeing.trouble.push(format!("instance {instance} has ended by itself"));
            }
            Happening::Note(note) => return seeing.trouble.push(note.to_owned()),
            _ => return,
        };
        seeing.seen.push((at, seen));
    }
}
