//! What goes on in the node, as lines for a log.

use squeezy_node::{Happening, Observer, Tried};
use squeezy_runtime::Moment;
use squeezy_vmm::BootStep;
use std::time::Duration;

/// Writes a line for each happening to standard output.
pub struct Log;

impl Observer for Log {
    fn observe(&self, at: Moment, happening: Happening<'_>) {
        if let Some(line) = describe(&happening) {
            println!("{:10.3} {line}", at.0.as_secs_f64());
        }
    }
}

fn describe(happening: &Happening<'_>) -> Option<String> {
    Some(match happening {
        Happening::Booting(vm, BootStep::Accelerator(accelerator)) => {
            format!("vm {vm}: accelerator {}: {}", accelerator.kind, accelerator.reason)
        }
        Happening::Booting(..) => return None,
        Happening::Booted(vm, machine, took) => {
            format!(
                "vm {vm}: {} runs Linux {} after {}",
                machine.vm.vmm_version(),
                machine.kernel,
                ms(*took)
            )
        }
        Happening::Ended(vm, reason) => format!("vm {vm}: ended: {reason}"),
        Happening::Starting(instance, function) => {
            format!("instance {instance}: starting, of function {function}")
        }
        Happening::Plugged(instance, took, Tried { error, .. }) => match error {
            None => format!("instance {instance}: memory plugged after {}", ms(*took)),
            Some(error) => format!("instance {instance}: no memory: {error}"),
        },
        Happening::Started(instance, Ok(times)) => {
            format!(
                "instance {instance}: spawned after {}, init {}",
                ms(times.spawn),
                ms(times.init)
            )
        }
        Happening::Started(instance, Err(reason)) => {
            format!("instance {instance}: cannot be started: {reason}")
        }
        Happening::Died(instance, reason) => format!("instance {instance}: {reason}"),
        Happening::Stopping(instance, reason) => {
            format!("instance {instance}: stopping: {reason:?}")
        }
        Happening::Reclaimed(instance, _, Some(Tried { latency, resident_drop_bytes, error })) => {
            let latency = latency.map_or("-".to_owned(), ms);
            match error {
                None => format!(
                    "instance {instance}: memory back after {latency}, {} MiB less resident",
                    resident_drop_bytes >> 20
                ),
                Some(error) => format!("instance {instance}: memory not back: {error}"),
            }
        }
        Happening::Reclaimed(_, _, None) => return None,
        Happening::Note(text) => (*text).to_owned(),
    })
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
