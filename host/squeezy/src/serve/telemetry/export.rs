//! Sends what waits in the queue, on a thread of its own: OTLP over HTTP, with protobuf.

use super::{
    clock::Clock,
    metrics::{Times, metrics},
    queue::{MOST_WAITING, Queue, Work},
    span::{Span, attribute},
    trouble::Trouble,
};
use crate::serve::{
    config::Endpoint,
    log::{log_line, log_warning},
};
use http::{HeaderMap, header::RETRY_AFTER};
use opentelemetry_proto::tonic::{
    collector::{
        metrics::v1::ExportMetricsServiceRequest,
        trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    },
    common::v1::InstrumentationScope,
    metrics::v1::{ResourceMetrics, ScopeMetrics},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans},
};
use prometheus_client::metrics::counter::Counter;
use prost::Message;
use squeezy_scaler::Moment;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a request may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// How long spans are tried to be sent, and the pauses in between.
const TRY_LIMIT: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(16);

/// How much of an answer is read, in bytes.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

/// What is counted.
#[derive(Clone)]
pub struct Counts {
    /// Spans that the collector has taken.
    pub sent: Counter,
    /// Spans that it has not, or that could not wait.
    pub dropped: Counter,
    /// Requests that failed.
    pub failed: Counter,
}

/// The sender.
pub struct Exporter {
    /// What to send.
    pub queue: Arc<Queue>,
    /// Where to.
    pub endpoint: Endpoint,
    /// Headers of each request.
    pub headers: HeaderMap,
    /// The client.
    pub agent: ureq::Agent,
    /// What sends.
    pub resource: Resource,
    /// The time of day.
    pub clock: Clock,
    /// What is counted.
    pub counts: Counts,
    /// What the log has said.
    pub trouble: Trouble,
}

/// Why a request failed.
struct Failure {
    reason: String,
    /// Whether another attempt may succeed, and if the collector says so, when.
    again: Option<Option<Duration>>,
}

impl Exporter {
    /// Sends until the daemon has ended.
    pub fn run(mut self) {
        while let Some(Work { spans, metrics, end }) = self.queue.next() {
            self.clock.follow();
            let mut works = true;
            if !spans.is_empty() {
                works = self.send_spans(spans);
            }
            if let Some(text) = metrics {
                works &= self.send_metrics(&text);
            }
            // The daemon does not wait for a collector that fails.
            if end.is_some() && !works {
                break;
            }
        }
        self.queue.finish();
    }

    fn send_metrics(&mut self, text: &str) -> bool {
        let now = self.clock.unix_ns(self.clock.now());
        let times = Times { start: self.clock.unix_ns(Moment::START), now };
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope()),
                    metrics: metrics(text, times),
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        };
        // There will be newer ones.
        let result = self.post("/v1/metrics", &request.encode_to_vec());
        self.judge(result.as_ref().err());
        result.is_ok()
    }

    fn send_spans(&mut self, spans: Vec<Span>) -> bool {
        let count = spans.len() as u64;
        let request = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![ScopeSpans {
                    scope: Some(scope()),
                    spans: spans.into_iter().map(|span| span.message(&self.clock)).collect(),
                    ..ScopeSpans::default()
                }],
                ..ResourceSpans::default()
            }],
        };
        let body = request.encode_to_vec();
        drop(request);
        let (begin, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let failure = match self.post("/v1/traces", &body) {
                Ok(answer) => {
                    let answer = ExportTraceServiceResponse::decode(&*answer).unwrap_or_default();
                    let refused = answer.partial_success.map_or(0, |some| some.rejected_spans);
                    let refused = u64::try_from(refused).unwrap_or(0).min(count);
                    self.counts.sent.inc_by(count - refused);
                    self.counts.dropped.inc_by(refused);
                    self.judge(None);
                    return true;
                }
                Err(failure) => failure,
            };
            self.judge(Some(&failure));
            let again = failure.again.filter(|_| begin.elapsed() < TRY_LIMIT);
            let Some(when) = again.filter(|_| self.queue.end().is_none()) else {
                self.counts.dropped.inc_by(count);
                return false;
            };
            self.queue.pause(when.unwrap_or(pause).min(LONGEST_PAUSE));
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Sends a request; returns the answer's body.
    fn post(&self, path: &str, body: &[u8]) -> Result<Vec<u8>, Failure> {
        let left = self.queue.end().map(|end| end.saturating_duration_since(Instant::now()));
        let limit = left.map_or(REQUEST_LIMIT, |left| left.min(REQUEST_LIMIT));
        let request = self.agent.post(format!("{}{path}", self.endpoint));
        let mut request = request.config().timeout_global(Some(limit)).build();
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.clone());
        }
        let request = request.content_type("application/x-protobuf");
        let unreachable =
            |error: ureq::Error| Failure { reason: error.to_string(), again: Some(None) };
        let mut answer = request.send(body).map_err(unreachable)?;
        let status = answer.status().as_u16();
        if !answer.status().is_success() {
            let wait = answer.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok());
            let wait = wait.and_then(|wait| wait.parse().ok()).map(Duration::from_secs);
            let again = matches!(status, 429 | 502..=504).then_some(wait);
            return Err(Failure { reason: format!("status {status}"), again });
        }
        let body = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES);
        // It has taken it, whatever else it says.
        Ok(body.read_to_vec().unwrap_or_default())
    }

    /// Counts and reports a failure, or that there is none any more.
    fn judge(&mut self, failure: Option<&Failure>) {
        let Self { endpoint, counts, trouble, .. } = self;
        if let Some(Failure { reason, .. }) = failure {
            counts.failed.inc();
            if trouble.begins(Instant::now()) {
                let reason: String = reason.chars().filter(|c| !c.is_control()).take(200).collect();
                log_warning(&format!(
                    "the collector {endpoint} does not take traces and metrics: {reason}; at most {MOST_WAITING} spans wait for it"
                ));
            }
        } else if trouble.ends() {
            let dropped = counts.dropped.get();
            log_line(&format!(
                "the collector {endpoint} takes traces and metrics again; spans dropped until now: {dropped}"
            ));
        }
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "squeezy".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

/// What sends: this daemon, of this version, with this ID.
pub fn resource(instance: Arc<str>, host: Arc<str>) -> Resource {
    let attributes = vec![
        attribute("service.name", "squeezy"),
        attribute("service.version", env!("CARGO_PKG_VERSION")),
        attribute("service.instance.id", instance),
        attribute("host.name", host),
    ];
    Resource { attributes, ..Resource::default() }
}
