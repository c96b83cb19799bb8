//! Shows the progress of an experiment on standard error.

use std::{
    cell::Cell,
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

/// Minimum interval between lines about a continuously changing state.
const TICK: Duration = Duration::from_secs(10);

/// Counts completed steps, and estimates the remaining time from them.
pub(crate) struct Progress {
    start: Instant,
    /// Total weight of all steps; heavier ones take longer.
    total: f64,
    done: f64,
    terminal: bool,
    /// When `tick` last printed a line.
    ticked: Cell<Option<Instant>>,
}

impl Progress {
    /// No step is complete.
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            total: 0.0,
            done: 0.0,
            terminal: std::io::stderr().is_terminal(),
            ticked: Cell::new(None),
        }
    }

    /// Sets the total weight of all steps.
    pub(crate) fn plan(&mut self, total: f64) {
        self.total = total;
    }

    /// Shows the current step.
    pub(crate) fn say(&self, what: &str) {
        let head = line(self.start.elapsed(), self.done, self.total);
        let mut stderr = std::io::stderr().lock();
        // Standard error may be closed; there is nothing to do about that.
        let _ = if self.terminal {
            write!(stderr, "\r\x1b[K{head} {what}").and_then(|()| stderr.flush())
        } else {
            writeln!(stderr, "{head} {what}")
        };
    }

    /// Shows a continuously changing state; rarely if each time is a new line.
    pub(crate) fn tick(&self, what: &str) {
        if self.terminal || self.ticked.get().is_none_or(|at| at.elapsed() >= TICK) {
            self.ticked.set(Some(Instant::now()));
            self.say(what);
        }
    }

    /// Prints a line that stays on the screen.
    pub(crate) fn note(&self, what: &str) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        let _ = writeln!(std::io::stderr().lock(), "{clear}{what}");
    }

    /// Adds a completed step.
    pub(crate) fn advance(&mut self, weight: f64) {
        self.done = (self.done + weight).min(self.total);
    }

    /// Sets the completed weight.
    pub(crate) fn reach(&mut self, done: f64) {
        self.done = done;
    }

    /// Ends the terminal's current line.
    pub(crate) fn finish(&self) {
        if self.terminal {
            self.note(&format!("took {}", duration(self.start.elapsed())));
        }
    }
}

fn line(elapsed: Duration, done: f64, total: f64) -> String {
    let percent = if total > 0.0 { 100.0 * done / total } else { 0.0 };
    let mut line = format!("[{percent:3.0}%, {}", duration(elapsed));
    // The first step says little about the others.
    if done > 0.0 && percent >= 2.0 {
        let left = elapsed.mul_f64((total - done) / done);
        line += &format!(", about {} left", duration(left));
    }
    line + "]"
}

fn duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_in_proportion() {
        assert_eq!(line(Duration::from_secs(30), 1.0, 4.0), "[ 25%, 30 s, about 1 min 30 s left]");
        assert_eq!(line(Duration::from_secs(3), 0.0, 4.0), "[  0%, 3 s]");
        assert_eq!(line(Duration::ZERO, 0.0, 0.0), "[  0%, 0 s]");
        assert_eq!(duration(Duration::from_secs(3723)), "1 h 02 min");
    }
}
