//! Line output for logs and pipes: events as they happen, and the state every few seconds.

use super::{Heading, Totals, View, describe};
use crate::{
    mutex::lock,
    output::Output,
    run::record::{Direction, Outcome, RequestRecord, ResizeRecord, Sample},
};
use squeezy_load::Load;
use std::{sync::Mutex, time::Duration};

/// Seconds between two lines about the state.
const INTERVAL_SECONDS: f64 = 5.0;

/// Prints lines to standard output.
pub struct Lines {
    output: Output,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    heading: Heading,
    totals: Totals,
    at_seconds: f64,
    next_seconds: f64,
}

impl Lines {
    /// A view that prints to `output`.
    pub fn new(output: Output) -> Self {
        Self { output, state: Mutex::default() }
    }

    fn with(&self, work: impl FnOnce(&mut State)) {
        work(&mut lock(&self.state));
    }
}

impl View for Lines {
    fn begin(&self, function: &str, turn: &str, concurrency: u16) {
        self.with(|state| {
            self.output.print(format_args!("{function}: {turn}"));
            let heading = Heading::new(function, turn, concurrency);
            *state = State { heading, ..State::default() };
        });
    }

    fn load(&self, load: &Load, length: Duration) {
        self.with(|state| {
            let (seconds, source) = (length.as_secs_f64(), &load.source);
            self.output.print(format_args!("         load for {seconds} s: {source}"));
            state.heading.load(load, length);
        });
    }

    fn note(&self, text: &str) {
        self.with(|state| self.output.print(format_args!("{:6.1} s  {text}", state.at_seconds)));
    }

    fn sample(&self, sample: &Sample) {
        self.with(|state| {
            state.at_seconds = sample.at_seconds;
            if sample.at_seconds < state.next_seconds {
                return;
            }
            state.next_seconds = sample.at_seconds + INTERVAL_SECONDS;
            self.output.print(format_args!(
                "{:6.1} s  instances {} ({} starting, {} idle, {} busy), requests {} of {} done, {} waiting; \
                 memory asked {} plugged {} resident {} MiB",
                sample.at_seconds,
                sample.alive(),
                sample.starting,
                sample.idle,
                sample.busy,
                state.totals.all(),
                state.heading.requests,
                sample.queued,
                sample.asked_bytes >> 20,
                sample.plugged_bytes >> 20,
                sample.resident_bytes >> 20,
            ));
        });
    }

    fn request(&self, request: &RequestRecord) {
        self.with(|state| {
            state.totals.count(&request.outcome);
            let (what, reason) = match &request.outcome {
                Outcome::Right => return,
                Outcome::Wrong(reason) => ("was answered wrongly", reason),
                Outcome::Failed(reason) => ("failed", reason),
                Outcome::Rejected(reason) => ("was rejected", reason),
            };
            let at = state.at_seconds;
            self.output.print(format_args!("{at:6.1} s  a request {what}: {reason}"));
        });
    }

    fn resize(&self, resize: &ResizeRecord) {
        self.with(|state| {
            if resize.direction == Direction::Reclaim || resize.error.is_some() {
                let at = resize.at_seconds.max(state.at_seconds);
                self.output.print(format_args!("{at:6.1} s  {}", describe(resize)));
            }
        });
    }
}
