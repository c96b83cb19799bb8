//! What the log says of the node's events.

use super::{Entry, Level};
use squeezy_node::{CallError, NodeEvent, ResizeOutcome, SqueezeReport, VmEnd};
use squeezy_scaler::{FunctionIndex, StopReason};
use squeezy_vmm::BootStep;
use std::time::Duration;

/// The entry for an event, if it is worth one.
pub fn entry(event: &NodeEvent<'_>, name: impl Fn(FunctionIndex) -> String) -> Option<Entry> {
    let message = describe(event, &name)?;
    let level = if is_trouble(event) { Level::Warning } else { Level::Info };
    let (vm, instance, function) = subjects(event);
    Some(Entry { vm, instance, function: function.map(name), ..Entry::new(level, message) })
}

/// Whether somebody should look at it.
fn is_trouble(event: &NodeEvent<'_>) -> bool {
    match event {
        NodeEvent::Booting { step, .. } => step.is_trouble(),
        NodeEvent::Plugged { outcome, .. } | NodeEvent::Reclaimed { outcome, .. } => {
            outcome.error.is_some()
        }
        NodeEvent::Started { result, .. } => result.is_err(),
        NodeEvent::Squeezed { result, .. } => result.is_err(),
        NodeEvent::Called { result, .. } => result.is_err(),
        NodeEvent::Died { .. } | NodeEvent::NotPrewarmed { .. } => true,
        NodeEvent::Ended { reason, .. } => !matches!(reason, VmEnd::Unneeded),
        _ => false,
    }
}

/// The VM, the instance and the function that it is about.
fn subjects(event: &NodeEvent<'_>) -> (Option<u32>, Option<u64>, Option<FunctionIndex>) {
    match event {
        NodeEvent::Booting { vm, .. }
        | NodeEvent::Booted { vm, .. }
        | NodeEvent::Paused { vm, .. }
        | NodeEvent::Resumed { vm }
        | NodeEvent::Ended { vm, .. } => (Some(vm.0), None, None),
        NodeEvent::Starting { instance, function }
        | NodeEvent::Plugged { instance, function, .. }
        | NodeEvent::Started { instance, function, .. }
        | NodeEvent::Condemned { instance, function, .. }
        | NodeEvent::Died { instance, function, .. }
        | NodeEvent::Frozen { instance, function, .. }
        | NodeEvent::Squeezed { instance, function, .. }
        | NodeEvent::Stopping { instance, function, .. }
        | NodeEvent::Reclaimed { instance, function, .. } => {
            (None, Some(instance.0), Some(*function))
        }
        NodeEvent::Called { function, instance, .. } => {
            (None, instance.map(|instance| instance.0), Some(*function))
        }
        NodeEvent::NotPrewarmed { function, .. } => (None, None, Some(*function)),
        NodeEvent::Settled { instance } => (None, Some(instance.0), None),
        NodeEvent::Lost { .. } | NodeEvent::Note(_) => (None, None, None),
    }
}

fn describe(event: &NodeEvent<'_>, name: impl Fn(FunctionIndex) -> String) -> Option<String> {
    Some(match event {
        NodeEvent::Booting {
            vm,
            step: step @ (BootStep::Accelerator(_) | BootStep::Memory { .. } | BootStep::Crashed(_)),
        } => {
            format!("vm {vm}: {step}")
        }
        NodeEvent::Booting { .. } => return None,
        NodeEvent::Booted { vm, machine, took } => {
            format!(
                "vm {vm}: {} runs Linux {} after {}",
                machine.vmm_version,
                machine.kernel,
                ms(*took)
            )
        }
        NodeEvent::Paused { vm, resident_bytes: bytes } => {
            format!("vm {vm}: no instance is running; paused, {} MiB resident", bytes >> 20)
        }
        NodeEvent::Resumed { vm } => format!("vm {vm}: runs again"),
        NodeEvent::Ended { vm, reason } => format!("vm {vm}: ended: {reason}"),
        NodeEvent::Starting { instance, function } => {
            format!("instance {instance}: starting for {}", name(*function))
        }
        NodeEvent::Plugged { instance, took, outcome, .. } => match &outcome.error {
            None => format!("instance {instance}: memory plugged after {}", ms(*took)),
            Some(error) => format!("instance {instance}: no memory: {error}"),
        },
        NodeEvent::Started { instance, result: Ok(times), .. } => {
            format!(
                "instance {instance}: spawned after {}, init {}",
                ms(times.spawn),
                ms(times.init)
            )
        }
        NodeEvent::Started { instance, result: Err(reason), .. } => {
            format!("instance {instance}: cannot be started: {reason}")
        }
        NodeEvent::Condemned { instance, freed_bytes, took, .. } => {
            format!(
                "instance {instance}: condemned; {} MiB back after {}",
                freed_bytes >> 20,
                ms(*took)
            )
        }
        NodeEvent::Died { instance, reason: Some(reason), .. } => {
            format!("instance {instance}: {reason}")
        }
        NodeEvent::Died { instance, reason: None, .. } => {
            format!("instance {instance}: its VM has ended")
        }
        NodeEvent::Frozen { instance, taken: Some(taken), .. } if taken.bytes > 0 => {
            format!("instance {instance}: frozen; free memory taken: {taken}")
        }
        NodeEvent::Frozen { instance, .. } => format!("instance {instance}: frozen"),
        NodeEvent::Squeezed {
            instance,
            result: Ok(SqueezeReport { before_bytes, resident_bytes, took, .. }),
            ..
        } => {
            format!(
                "instance {instance}: squeezed in {}, {} MiB of {} left",
                ms(*took),
                resident_bytes >> 20,
                before_bytes >> 20
            )
        }
        NodeEvent::Squeezed { instance, result: Err(reason), .. } => {
            format!("instance {instance}: not squeezed: {reason}")
        }
        NodeEvent::Stopping { instance, reason, .. } => {
            format!("instance {instance}: stopping: {}", why(*reason))
        }
        NodeEvent::Reclaimed { instance, outcome, .. } => {
            let ResizeOutcome { latency, resident_drop_bytes, error, .. } = outcome;
            let latency = latency.map_or("-".to_owned(), ms);
            match error {
                None => format!(
                    "instance {instance}: memory back after {latency}, {} MiB less resident",
                    resident_drop_bytes >> 20
                ),
                Some(error) => format!("instance {instance}: memory not back: {error}"),
            }
        }
        NodeEvent::Called {
            function,
            instance: Some(instance),
            result: Err(CallError::Failed { reason, .. }),
            ..
        } => {
            format!("instance {instance}: a call of {} failed: {reason}", name(*function))
        }
        NodeEvent::NotPrewarmed { function, reason } => {
            let why = CallError::Rejected(*reason);
            format!("{}: no instance could be started ahead of calls: {why}", name(*function))
        }
        NodeEvent::Lost { .. } | NodeEvent::Called { .. } => return None,
        NodeEvent::Settled { instance } => format!("instance {instance}: memory back after all"),
        NodeEvent::Note(text) => (*text).to_owned(),
    })
}

/// Why an instance is stopped. What failed is in the line before.
fn why(reason: StopReason) -> &'static str {
    match reason {
        StopReason::KeepAliveOver => "it was idle for its keep-alive",
        StopReason::Evicted => "its memory is needed",
        StopReason::Broken => "it takes no more calls",
        StopReason::Retired => "its function was removed or changed",
        StopReason::Draining => "the node is shutting down",
        StopReason::Overdrawn => "it, or its paused VM, holds more memory than it may",
    }
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::failed_call;
    use squeezy_scaler::{InstanceNumber, Moment, VmIndex};
    use squeezy_vmm::{MemoryBackend, SHARED_HUGE_PAGES_ON};

    fn entry_of(event: &NodeEvent<'_>) -> Entry {
        entry(event, |FunctionIndex(index)| format!("f{index}")).unwrap()
    }

    fn line(event: &NodeEvent<'_>) -> String {
        entry_of(event).message
    }

    #[test]
    fn functions_have_their_names() {
        let (instance, function) = (InstanceNumber(7), FunctionIndex(5));
        let starting = line(&NodeEvent::Starting { instance, function });
        assert_eq!(starting, "instance 7: starting for f5");
        let failed = Err(failed_call("it took too long"));
        let failed = line(&NodeEvent::Called {
            function,
            instance: Some(instance),
            came: Moment::START,
            trace: None,
            result: &failed,
        });
        assert_eq!(failed, "instance 7: a call of f5 failed: it took too long");
        let starting = entry_of(&NodeEvent::Starting { instance, function });
        assert_eq!((starting.instance, starting.function.as_deref()), (Some(7), Some("f5")));
        assert_eq!(starting.level, Level::Info);
        let reason = squeezy_scaler::RejectReason::NoRoomAhead;
        let refused = entry_of(&NodeEvent::NotPrewarmed { function, reason });
        let right = "f5: no instance could be started ahead of calls: there is not enough memory for it beside what runs";
        assert_eq!((refused.level, refused.message.as_str()), (Level::Warning, right));
        let died = entry_of(&NodeEvent::Died { instance, function, reason: None });
        assert_eq!(died.level, Level::Warning);
    }

    #[test]
    fn a_file_in_small_pages_is_warned_of_with_the_way_out() {
        for (backend, are_huge, level) in [
            (MemoryBackend::Memfd, false, Level::Warning),
            (MemoryBackend::Memfd, true, Level::Info),
            (MemoryBackend::Ram, false, Level::Info),
            (MemoryBackend::Ram, true, Level::Info),
        ] {
            let step = BootStep::Memory { backend, are_huge, setting: "never".to_owned() };
            let entry = entry_of(&NodeEvent::Booting { vm: VmIndex(3), step });
            assert_eq!((entry.level, entry.vm), (level, Some(3)), "{backend}, huge: {are_huge}");
            let has_way_out = entry.message.contains(SHARED_HUGE_PAGES_ON);
            assert_eq!(has_way_out, !are_huge, "{}", entry.message);
        }
    }

    #[test]
    fn why_an_instance_is_stopped_is_said_in_words() {
        for reason in [
            StopReason::KeepAliveOver,
            StopReason::Evicted,
            StopReason::Broken,
            StopReason::Retired,
            StopReason::Draining,
            StopReason::Overdrawn,
        ] {
            let (instance, function) = (InstanceNumber(7), FunctionIndex(5));
            let said = line(&NodeEvent::Stopping { instance, function, reason });
            assert!(!said.contains(&format!("{reason:?}")) && said.contains(' '), "{said}");
        }
    }
}
