//! What waits to be sent: bounded, and never waited for by those who put it there.

use super::span::Span;
use crate::mutex::lock;
use prometheus_client::metrics::counter::Counter;
use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Spans that may wait; beyond that, spans are dropped and counted. They take a few MiB.
pub const MOST_WAITING: usize = 4096;

/// Spans that are sent at a time.
pub const BATCH: usize = 512;

/// How long a span waits for others to be sent with it.
const DELAY: Duration = Duration::from_secs(2);

/// The queue.
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Spans that did not fit.
    dropped: Counter,
}

#[derive(Default)]
struct State {
    spans: VecDeque<Span>,
    /// Metrics, in the OpenMetrics format: only the latest are of interest.
    metrics: Option<String>,
    /// When everything has to be over.
    end: Option<Instant>,
    /// Whether nobody sends any more.
    is_over: bool,
}

/// What to send next.
pub struct Work {
    /// Spans, at most [`BATCH`].
    pub spans: Vec<Span>,
    /// Metrics.
    pub metrics: Option<String>,
    /// Until when this may take, if the daemon is ending.
    pub end: Option<Instant>,
}

impl Queue {
    /// An empty queue.
    pub fn new(dropped: Counter) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), dropped }
    }

    /// Adds spans, or drops them.
    pub fn push(&self, spans: impl IntoIterator<Item = Span>) {
        let mut state = self.lock();
        let before = state.spans.len();
        for span in spans {
            if state.spans.len() < MOST_WAITING && !state.is_over {
                state.spans.push_back(span);
            } else {
                self.dropped.inc();
            }
        }
        // Only a full batch is worth waking somebody.
        if before < BATCH && state.spans.len() >= BATCH {
            self.changed.notify_all();
        }
    }

    /// Puts metrics in the place of those that have not been sent yet.
    pub fn set_metrics(&self, text: String) {
        self.lock().metrics = Some(text);
        self.changed.notify_all();
    }

    /// Waits for something to send; `None` once the daemon is ending and nothing is left.
    pub fn next(&self) -> Option<Work> {
        let is_quiet = |state: &mut State| {
            state.spans.len() < BATCH && state.metrics.is_none() && state.end.is_none()
        };
        loop {
            let waited = self.changed.wait_timeout_while(self.lock(), DELAY, is_quiet);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            let count = state.spans.len().min(BATCH);
            let work = Work {
                spans: state.spans.drain(..count).collect(),
                metrics: state.metrics.take(),
                end: state.end,
            };
            if !work.spans.is_empty() || work.metrics.is_some() {
                return Some(work);
            }
            if state.end.is_some() {
                return None;
            }
            if state.spans.capacity() > BATCH {
                state.spans.shrink_to_fit();
            }
        }
    }

    /// Waits this long, or until the daemon is ending; returns when that has to be over.
    pub fn pause(&self, time: Duration) -> Option<Instant> {
        let goes_on = |state: &mut State| state.end.is_none();
        let waited = self.changed.wait_timeout_while(self.lock(), time, goes_on);
        waited.unwrap_or_else(PoisonError::into_inner).0.end
    }

    /// When everything has to be over, if the daemon is ending.
    pub fn end(&self) -> Option<Instant> {
        self.lock().end
    }

    /// Nobody sends any more; drops what is left.
    pub fn finish(&self) {
        let mut state = self.lock();
        self.dropped.inc_by(state.spans.len() as u64);
        *state = State { end: state.end, is_over: true, ..State::default() };
        self.changed.notify_all();
    }

    /// Has what is there sent, for at most `limit`, and waits for that.
    pub fn close(&self, limit: Duration) {
        let mut state = self.lock();
        state.end = Some(Instant::now() + limit);
        self.changed.notify_all();
        let goes_on = |state: &mut State| !state.is_over;
        let _ = self.changed.wait_timeout_while(state, limit, goes_on);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squeezy_node::{SpanId, TraceId};
    use squeezy_scaler::Moment;

    fn span(id: u64) -> Span {
        Span::root(TraceId(1), SpanId(id), "a", Moment::START, Moment::START)
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let dropped = Counter::default();
        let queue = Queue::new(dropped.clone());
        let count = MOST_WAITING as u64 + 10;
        let begin = Instant::now();
        queue.push((1..=count).map(span));
        assert_eq!(dropped.get(), 10);
        let first = queue.next().unwrap();
        assert!(begin.elapsed() < DELAY, "a full batch does not wait");
        let ids: Vec<_> = first.spans.iter().map(|span| span.id.0).collect();
        assert_eq!(ids, (1..=BATCH as u64).collect::<Vec<_>>());
        queue.push([span(1)]);
        assert_eq!(dropped.get(), 10);
    }

    #[test]
    fn only_the_latest_metrics_are_sent() {
        let queue = Queue::new(Counter::default());
        queue.set_metrics("old".to_owned());
        queue.set_metrics("new".to_owned());
        assert_eq!(queue.next().unwrap().metrics.as_deref(), Some("new"));
    }

    #[test]
    fn at_the_end_everything_is_sent_or_dropped() {
        let dropped = Counter::default();
        let queue = Queue::new(dropped.clone());
        queue.push((0..BATCH as u64 + 1).map(span));
        let begin = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let sent: Vec<_> = std::iter::from_fn(|| queue.next())
                    .map(|work| (work.spans.len(), work.end.is_some()))
                    .collect();
                assert_eq!(sent.last(), Some(&(1, true)));
                queue.finish();
            });
            queue.close(Duration::from_secs(60));
        });
        assert!(begin.elapsed() < Duration::from_secs(30));
        queue.push([span(1)]);
        assert_eq!(dropped.get(), 1);

        let queue = Queue::new(dropped);
        let begin = Instant::now();
        queue.close(Duration::from_millis(50));
        assert!(begin.elapsed() < Duration::from_secs(5), "nobody sends");
        assert!(queue.pause(Duration::from_secs(60)).is_some());
    }
}
