//! Traces and metrics for an OpenTelemetry collector.
//!
//! [`TracedCall`] and [`Traced`] make [`span`]s of calls and of the node's events, and put them in the [`queue`]. A
//! thread ([`export`]) takes them out in batches and sends them. Nobody waits for it: what it does not get rid of is
//! dropped and counted. Metrics are what `/metrics` has.

mod call;
mod clock;
mod events;
mod export;
mod headers;
mod ids;
mod metrics;
mod queue;
mod span;
#[cfg(test)]
mod tests;
mod trouble;

use super::{config::Collector, key::random, metrics::Watch, web::Page};
pub use call::TracedCall;
use clock::Clock;
pub use events::Traced;
use export::{Counts, Exporter};
use http::HeaderMap;
use ids::Ids;
use queue::Queue;
use span::Span;
use squeezy_scaler::Moment;
use squeezy_trust::{SYSTEM, trusting};
use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tokio::time::{MissedTickBehavior, interval};

/// How long sending the last spans may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// Names another file with certificates of authorities, as for OpenSSL.
const CERTIFICATES: &str = "SSL_CERT_FILE";

/// What is to be done about a file that cannot be used.
const OTHER_HEADERS: &str = "mend it, or name another `otlp_headers_file`";
const OTHER_CERTIFICATES: &str = "install ca-certificates, or name another file in $SSL_CERT_FILE";

/// Why nothing can be sent.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// A file cannot be used.
    #[error("{}: {reason}; {remedy}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// Why.
        reason: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The system has no thread or no random number for it.
    #[error("traces cannot be sent: {0}")]
    System(#[from] std::io::Error),
}

/// What is sent to a collector.
pub struct Telemetry {
    queue: Arc<Queue>,
    ids: Ids,
    /// The part of the calls that is traced.
    sampling: f64,
    /// How often metrics are sent.
    metrics_interval: Option<Duration>,
    /// The origin of moments.
    begin: Instant,
}

impl Telemetry {
    /// Sends to this collector from now on. Moments count from `begin`.
    pub fn start(
        collector: Collector,
        begin: Instant,
        watch: &Watch,
    ) -> Result<Arc<Self>, TelemetryError> {
        let (headers, agent) = client(&collector)?;
        let Collector { endpoint, sampling, metrics_interval, .. } = collector;
        let counts = Counts {
            sent: watch.metrics.spans_sent.clone(),
            dropped: watch.metrics.spans_dropped.clone(),
            failed: watch.metrics.exports_failed.clone(),
        };
        let queue = Arc::new(Queue::new(counts.dropped.clone()));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let exporter = Exporter {
            queue: queue.clone(),
            endpoint,
            headers,
            agent,
            resource: export::resource(uuid(&random(16)?).into(), host.into()),
            clock: Clock::new(begin),
            counts,
            trouble: trouble::Trouble::default(),
        };
        thread::Builder::new().name("otlp".to_owned()).spawn(|| exporter.run())?;
        let seed = u64::from_str_radix(&random(8)?, 16).unwrap_or_default();
        Ok(Arc::new(Self { queue, ids: Ids::new(seed), sampling, metrics_interval, begin }))
    }

    /// Sends metrics at their interval, for ever.
    pub async fn send_metrics(self: Arc<Self>, page: Arc<Page>) {
        let Some(pause) = self.metrics_interval else { return };
        let mut ticks = interval(pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.queue.set_metrics(page.metrics_text().await);
        }
    }

    /// Sends what waits, for a limited time.
    pub async fn close(self: Arc<Self>) {
        let _ = tokio::task::spawn_blocking(move || self.queue.close(CLOSE_LIMIT)).await;
    }

    fn now(&self) -> Moment {
        Moment(self.begin.elapsed())
    }

    fn send(&self, spans: impl IntoIterator<Item = Span>) {
        self.queue.push(spans);
    }
}

/// Whether something can be sent to this collector, for all that can be known without asking it.
pub fn check_collector(collector: &Collector) -> Result<(), TelemetryError> {
    client(collector).map(drop)
}

/// What sends requests to a collector, and the headers of each.
fn client(collector: &Collector) -> Result<(HeaderMap, ureq::Agent), TelemetryError> {
    let headers = match &collector.headers_file {
        Some(path) => {
            let text = fs::read_to_string(path).map_err(|error| error.to_string());
            let headers = text.and_then(|text| headers::parse(&text));
            headers.map_err(|reason| failed(path, reason, OTHER_HEADERS))?
        }
        None => HeaderMap::new(),
    };
    let mut agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .user_agent(concat!("squeezy/", env!("CARGO_PKG_VERSION")));
    if collector.endpoint.is_secure() {
        let file = env::var_os(CERTIFICATES).map_or_else(|| SYSTEM.into(), PathBuf::from);
        let trusted = trusting(&file);
        agent = agent.tls_config(trusted.map_err(|r| failed(&file, r, OTHER_CERTIFICATES))?);
    }
    Ok((headers, agent.build().new_agent()))
}

fn failed(path: &Path, reason: String, remedy: &'static str) -> TelemetryError {
    TelemetryError::File { path: path.to_owned(), reason, remedy }
}

/// 32 hexadecimal digits as a UUID of random numbers.
fn uuid(digits: &str) -> String {
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    format!("{}-{}-4{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}
