//! The daemon's log of the node's events: with the time of day, unless the output is systemd's
//! journal, which records the time itself.

use super::metrics::Watch;
use crate::diagnostics::is_journal;
use humantime::format_rfc3339_millis;
use squeezy_node::{CallError, NodeEvent, Observer, ResizeOutcome, SqueezeReport};
use squeezy_scaler::{FunctionIndex, Moment, StopReason};
use squeezy_vmm::BootStep;
use std::{
    collections::VecDeque,
    io::{self, Write},
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

/// Lines that may wait to be written; beyond that, lines are lost.
const MOST_WAITING: usize = 1000;

/// How long writing the last lines may take.
const LAST_LIMIT: Duration = Duration::from_secs(1);

/// Writes a line for each event to standard output, with functions' names.
pub struct Log(pub Arc<Watch>);

impl Observer for Log {
    fn observe(&self, _: Moment, event: NodeEvent<'_>) {
        let name = |function| self.0.names.of(function).name.0.to_string();
        if let Some(line) = describe(&event, name) {
            log_line(&line);
        }
    }
}

/// Writes a line to standard output in the background. Nobody reading it any more must not end the
/// daemon, and a slow reader or a hanging disk must not make it wait.
pub fn log_line(line: &str) {
    let mut lines = lock();
    if !lines.has_writer {
        lines.has_writer = thread::Builder::new().name("log".to_owned()).spawn(write).is_ok();
    }
    let has_own_time = *lines
        .has_own_time
        .get_or_insert_with(|| is_journal(io::stdout(), std::env::var_os("JOURNAL_STREAM")));
    if lines.waiting.len() < MOST_WAITING {
        let now = (!has_own_time).then(SystemTime::now);
        lines.waiting.push_back(dated(line, now));
    } else {
        lines.lost += 1;
    }
    CHANGED.notify_all();
}

/// A line with the time of day, unless the reader records that.
fn dated(line: &str, now: Option<SystemTime>) -> String {
    now.map_or_else(|| line.to_owned(), |now| format!("{} {line}", format_rfc3339_millis(now)))
}

/// Waits, for a limited time, until everything has been written.
pub fn finish() {
    let is_open = |lines: &mut Lines| lines.is_writing || !lines.waiting.is_empty();
    let _ = CHANGED.wait_timeout_while(lock(), LAST_LIMIT, is_open);
}

/// The buffer between those who log and the thread that writes.
struct Lines {
    waiting: VecDeque<String>,
    /// Lines dropped since the buffer became full.
    lost: u64,
    has_writer: bool,
    is_writing: bool,
    /// Whether the reader records the time itself; unknown before the first line.
    has_own_time: Option<bool>,
}

static LINES: Mutex<Lines> = Mutex::new(Lines {
    waiting: VecDeque::new(),
    lost: 0,
    has_writer: false,
    is_writing: false,
    has_own_time: None,
});
static CHANGED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Lines> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes lines as they come, for ever.
fn write() {
    let mut lines = lock();
    loop {
        let is_quiet = |lines: &mut Lines| lines.waiting.is_empty();
        lines = CHANGED.wait_while(lines, is_quiet).unwrap_or_else(PoisonError::into_inner);
        let (waiting, lost) = (mem::take(&mut lines.waiting), mem::take(&mut lines.lost));
        lines.is_writing = true;
        drop(lines);
        for line in waiting {
            let _ = writeln!(io::stdout(), "{line}");
        }
        if lost > 0 {
            let _ = writeln!(io::stdout(), "({lost} lines lost: they were not read in time)");
        }
        lines = lock();
        lines.is_writing = false;
        CHANGED.notify_all();
    }
}

fn describe(event: &NodeEvent<'_>, name: impl Fn(FunctionIndex) -> String) -> Option<String> {
    Some(match event {
        NodeEvent::Booting {
            vm,
            step: step @ (BootStep::Accelerator(_) | BootStep::Memory { .. }),
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
        } => {
            format!("instance {instance}: a call of {} failed: {reason}", name(*function))
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
    }
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::failed_call;
    use squeezy_scaler::InstanceNumber;

    fn line(event: &NodeEvent<'_>) -> String {
        describe(event, |FunctionIndex(index)| format!("f{index}")).unwrap()
    }

    #[test]
    fn lines_have_the_time_of_day_once() {
        let noon = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_435_200_042);
        assert_eq!(
            dated("vm 0: runs again", Some(noon)),
            "2026-11-23T12:00:00.042Z vm 0: runs again"
        );
        assert_eq!(dated("vm 0: runs again", None), "vm 0: runs again");
    }

    #[test]
    fn functions_have_their_names() {
        let (instance, function) = (InstanceNumber(7), FunctionIndex(5));
        let starting = line(&NodeEvent::Starting { instance, function });
        assert_eq!(starting, "instance 7: starting for f5");
        let failed = Err(failed_call("it took too long"));
        let failed =
            line(&NodeEvent::Called { function, instance: Some(instance), result: &failed });
        assert_eq!(failed, "instance 7: a call of f5 failed: it took too long");
    }

    #[test]
    fn why_an_instance_is_stopped_is_said_in_words() {
        for reason in [
            StopReason::KeepAliveOver,
            StopReason::Evicted,
            StopReason::Broken,
            StopReason::Retired,
            StopReason::Draining,
        ] {
            let (instance, function) = (InstanceNumber(7), FunctionIndex(5));
            let said = line(&NodeEvent::Stopping { instance, function, reason });
            assert!(!said.contains(&format!("{reason:?}")) && said.contains(' '), "{said}");
        }
    }
}
