//! What goes on in the node, as lines for a log.

use squeezy_node::{Happening, Observer, Tried};
use squeezy_runtime::Moment;
use squeezy_vmm::BootStep;
use std::{
    io::{self, Write},
    time::Duration,
};

/// Writes a line for each happening to standard output.
pub struct Log;

impl Observer for Log {
    fn observe(&self, at: Moment, happening: Happening<'_>) {
        if let Some(line) = describe(&happening) {
            say(&format!("{:10.3} {line}", at.0.as_secs_f64()));
        }
    }
}

/// Writes a line to standard output. That nobody reads there any more is no reason to end.
pub fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn describe(happening: &Happening<'_>) -> Option<String> {
    Some(match happening {
        Happening::Booting(vm, step @ BootStep::Accelerator(_)) => format!("vm {vm}: {step}"),
        Happening::Booting(..) => return None,
        Happening::Booted(vm, machine, took) => {
            format!(
                "vm {vm}: {} runs Linux {} after {}",
                machine.vmm_version,
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
        Happening::Died(instance, Some(reason)) => format!("instance {instance}: {reason}"),
        Happening::Died(instance, None) => format!("instance {instance}: its VM has ended"),
        Happening::Frozen(instance) => format!("instance {instance}: frozen"),
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
        Happening::Reclaimed(_, _, None) | Happening::Lost(_) | Happening::Called(..) => {
            return None;
        }
        Happening::Settled(instance) => format!("instance {instance}: memory back after all"),
        Happening::Note(text) => (*text).to_owned(),
    })
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
