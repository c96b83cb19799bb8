//! Shows the progress of a run: live if the output is a terminal, otherwise as lines.

pub mod lines;
mod live;

use super::record::{Outcome, RequestRecord, ResizeRecord, Sample};
use crate::{interrupt::Interrupt, output::Output};
use squeezy_load::Load;
use std::{io::IsTerminal, sync::Arc, time::Duration};

/// What a view shows about the current turn.
#[derive(Clone, Debug, Default)]
struct Heading {
    /// The function.
    function: String,
    /// The policy, and its position among those to run.
    turn: String,
    /// The maximum number of instances in the VM.
    concurrency: u16,
    /// Describes the load; empty before it begins.
    load: String,
    /// How long requests are sent.
    length: Duration,
    /// Requests that will be sent.
    requests: usize,
}

impl Heading {
    fn new(function: &str, turn: &str, concurrency: u16) -> Self {
        Self {
            function: function.to_owned(),
            turn: turn.to_owned(),
            concurrency,
            ..Self::default()
        }
    }

    fn load(&mut self, load: &Load, length: Duration) {
        self.load.clone_from(&load.source);
        self.length = length;
        self.requests = load.arrivals.len();
    }
}

/// Something that displays a run.
pub trait View: Send + Sync {
    /// The turn of a policy begins, with at most `concurrency` instances.
    fn begin(&self, function: &str, turn: &str, concurrency: u16);
    /// The load begins; requests are sent for `length`.
    fn load(&self, load: &Load, length: Duration);
    /// A message to show.
    fn note(&self, text: &str);
    /// A sample of the state, several times a second.
    fn sample(&self, sample: &Sample);
    /// A request has ended.
    fn request(&self, request: &RequestRecord);
    /// A resize of the VM's memory has ended, successfully or not.
    fn resize(&self, resize: &ResizeRecord);
}

/// The view that suits the output.
pub fn open(plain: bool, interrupt: &Interrupt, output: &Output) -> Arc<dyn View> {
    if !plain && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        // If the terminal cannot be drawn on, lines can still be written to it.
        if let Ok(live) = live::Live::open(interrupt.clone(), output.clone()) {
            return Arc::new(live);
        }
    }
    Arc::new(lines::Lines::new(output.clone()))
}

/// Counts requests by outcome.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    right: usize,
    wrong: usize,
    failed: usize,
    rejected: usize,
}

impl Totals {
    fn count(&mut self, outcome: &Outcome) {
        *match outcome {
            Outcome::Right => &mut self.right,
            Outcome::Wrong(_) => &mut self.wrong,
            Outcome::Failed(_) => &mut self.failed,
            Outcome::Rejected(_) => &mut self.rejected,
        } += 1;
    }

    fn all(&self) -> usize {
        self.right + self.wrong + self.failed + self.rejected
    }
}

/// A resize, on one line.
fn describe(resize: &ResizeRecord) -> String {
    use super::record::Direction;
    let what = match resize.direction {
        Direction::Plug => "plug",
        Direction::Reclaim => "reclaim",
    };
    let size = resize.size_bytes >> 20;
    let time = milliseconds(resize.latency_ns);
    match (&resize.error, resize.direction) {
        (Some(error), _) => format!("{what} {size} MiB of instance {}: {error}", resize.instance),
        (None, Direction::Plug) => {
            format!("{what} {size} MiB for instance {}: {time}", resize.instance)
        }
        (None, Direction::Reclaim) => format!(
            "{what} {size} MiB of instance {}: {time}, {} MiB less resident",
            resize.instance,
            resize.resident_drop_bytes >> 20
        ),
    }
}

/// A latency in milliseconds, as text.
pub fn milliseconds(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    match ms {
        _ if ms < 10.0 => format!("{ms:.1} ms"),
        _ if ms < 10_000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1e3),
    }
}
