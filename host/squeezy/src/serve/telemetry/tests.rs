//! What arrives at a collector, and what happens when it does not take it.

use super::*;
use crate::serve::{failed_call, metrics::Name};
use bytes::Bytes;
use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    trace::v1::{Span as Received, span::SpanKind},
};
use prost::Message;
use squeezy_node::{
    Answer, CallError, InstanceError, NodeEvent, Observer, ResizeOutcome, SqueezeReport,
    StartTimes, TraceContext, WaitedFor,
};
use squeezy_openwhisk::{
    QualifiedName,
    activation::{Activation, Called, Explained, ValueSize},
};
use squeezy_scaler::{FunctionIndex, InstanceNumber, RejectReason, StopReason};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
};
use tokio::net::TcpSocket;

const F: FunctionIndex = FunctionIndex(1);
const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A request that a collector got: path, headers and body.
struct Got {
    path: String,
    headers: String,
    body: Vec<u8>,
}

/// A collector that gives this answer to each request; none at all if it is empty.
fn collector(answer: &'static str) -> (String, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let sender = sender.clone();
            thread::spawn(move || serve(connection.unwrap(), answer, &sender));
        }
    });
    (url, requests)
}

fn serve(mut connection: TcpStream, answer: &str, sender: &Sender<Got>) -> Option<()> {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    loop {
        let mut headers = String::new();
        while !headers.ends_with("\r\n\r\n") {
            (reader.read_line(&mut headers).ok()? > 0).then_some(())?;
        }
        let lower = headers.to_ascii_lowercase();
        let length = lower.split_once("content-length: ")?.1.lines().next()?.parse().ok()?;
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let path = headers.split(' ').nth(1)?.to_owned();
        let _ = sender.send(Got { path, headers, body });
        if answer.is_empty() {
            thread::sleep(Duration::from_secs(3600));
        }
        connection.write_all(answer.as_bytes()).ok()?;
        if answer.contains("Connection: close") {
            return None;
        }
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A daemon's telemetry, and the observer of its node.
struct Daemon {
    telemetry: Arc<Telemetry>,
    observer: Traced<Nobody>,
    watch: Arc<Watch>,
}

struct Nobody;

impl Observer for Nobody {
    fn observe(&self, _: Moment, _: NodeEvent<'_>) {}
}

impl Daemon {
    fn start(url: &str, sampling: f64) -> Self {
        let watch = Arc::new(Watch::new(1 << 30));
        let known =
            crate::serve::metrics::Known { name: Name("f".into()), instance_bytes: 1 << 28 };
        watch.names.set(Box::new(move || BTreeMap::from([(F, known.clone())])));
        let collector = Collector {
            endpoint: url.parse().unwrap(),
            headers_file: None,
            sampling,
            metrics_interval: None,
        };
        let begin = Instant::now();
        let telemetry = Telemetry::start(collector, begin, &watch).unwrap();
        let observer = Traced::new(telemetry.clone(), watch.clone(), Nobody);
        Self { telemetry, observer, watch }
    }

    fn tell(&self, event: NodeEvent<'_>) {
        self.observer.observe(self.telemetry.now(), event);
    }

    fn begin(&self, caller: Option<&str>) -> TracedCall {
        let caller = caller.map(|caller| TraceContext::parse(caller, "a=1").unwrap());
        TracedCall::begin(Some(&self.telemetry), caller)
    }

    fn end(&self, call: TracedCall, came: Moment, result: Result<Answer, CallError>) {
        let trace = call.trace();
        let instance = result.is_ok().then_some(InstanceNumber(3));
        let trace = trace.as_ref();
        self.tell(NodeEvent::Called { function: F, instance, came, trace, result: &result });
        let called = Called {
            action: QualifiedName::guest("f"),
            version: "0.0.1".to_owned(),
            kind: "python",
        };
        let explain = |error: &CallError| Explained {
            text: error.to_string(),
            by_code: false,
            lines: Vec::new(),
        };
        let size = ValueSize { bytes: 0, most_bytes: 1 << 20 };
        call.end(&Activation::of("id".to_owned(), called, 0, result, size, explain));
    }

    /// Counters: sent, dropped, failed.
    fn counts(&self) -> (u64, u64, u64) {
        let metrics = &self.watch.metrics;
        (metrics.spans_sent.get(), metrics.spans_dropped.get(), metrics.exports_failed.get())
    }
}

fn answer(waited_for: WaitedFor, waited: Duration) -> Answer {
    let response = http::Response::new(Bytes::from_static(b"{}"));
    let cold = (waited_for == WaitedFor::Start).then(|| ms(2));
    Answer { response, waited, waited_for, took: ms(1), cold, logs: Vec::new() }
}

fn spans(requests: &Receiver<Got>) -> Vec<Received> {
    let got = requests.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(got.path, "/v1/traces");
    let request = ExportTraceServiceRequest::decode(&*got.body).unwrap();
    let [of_resource] = &request.resource_spans[..] else { panic!("{request:?}") };
    of_resource.scope_spans[0].spans.clone()
}

fn named<'a>(spans: &'a [Received], name: &str) -> &'a Received {
    let mut found = spans.iter().filter(|span| span.name == name);
    let span = found.next().unwrap_or_else(|| panic!("no {name}: {spans:?}"));
    assert!(found.next().is_none(), "two {name}: {spans:?}");
    span
}

#[track_caller]
fn is_within(part: &Received, whole: &Received) {
    assert_eq!((&part.trace_id, &part.parent_span_id), (&whole.trace_id, &whole.span_id));
    let times = |span: &Received| (span.start_time_unix_nano, span.end_time_unix_nano);
    let ((start, end), (begin, over)) = (times(part), times(whole));
    assert!(begin <= start && start <= end && end <= over, "{part:?} {whole:?}");
}

#[tokio::test]
async fn a_cold_call_is_a_tree_that_is_linked_with_the_start_of_its_instance() {
    let (url, requests) = collector(OK);
    let daemon = Daemon::start(&url, 1.0);
    let (instance, function) = (InstanceNumber(3), F);
    let call = daemon.begin(Some(CALLER));
    let came = daemon.telemetry.now();
    daemon.tell(NodeEvent::Starting { instance, function });
    thread::sleep(ms(5));
    let outcome =
        ResizeOutcome { latency: Some(ms(3)), resident_drop_bytes: 7, taken: None, error: None };
    daemon.tell(NodeEvent::Plugged { instance, function, took: ms(4), outcome: &outcome });
    let times = StartTimes { spawn: ms(1), init: ms(2) };
    daemon.tell(NodeEvent::Started { instance, function, result: Ok(times) });
    let waited = daemon.telemetry.now().since(came);
    thread::sleep(ms(2));
    let told = call.trace().unwrap().context;
    daemon.end(call, came, Ok(answer(WaitedFor::Start, waited)));
    let reason = StopReason::KeepAliveOver;
    daemon.tell(NodeEvent::Stopping { instance, function, reason });
    let (asked, stop) = (daemon.telemetry.now(), Some(ms(1)));
    thread::sleep(ms(1));
    daemon.tell(NodeEvent::Reclaimed { instance, function, asked, stop, outcome: &outcome });
    daemon.telemetry.clone().close().await;

    let spans = spans(&requests);
    let call = named(&spans, "call");
    assert_eq!(call.kind(), SpanKind::Server);
    let caller = TraceContext::parse(CALLER, "").unwrap();
    assert_eq!(call.trace_id, caller.trace.0.to_be_bytes());
    assert_eq!(call.parent_span_id, caller.span.0.to_be_bytes());
    assert_eq!((call.trace_state.as_str(), call.flags), ("a=1", 0x301));
    let attributes: BTreeMap<_, _> =
        call.attributes.iter().map(|one| (one.key.as_str(), one.value.clone())).collect();
    let value = |value| span::attribute("", value).value;
    assert_eq!(attributes["faas.coldstart"], value(span::Value::from(true)));
    assert_eq!(attributes["faas.invocation_id"], value(Arc::<str>::from("id").into()));
    let (wait, run) = (named(&spans, "wait"), named(&spans, "run"));
    is_within(wait, call);
    is_within(run, call);
    assert!(wait.end_time_unix_nano <= run.start_time_unix_nano);
    // The function's own spans are parts of its run.
    assert_eq!((&run.span_id[..], told.sampled), (&told.span.0.to_be_bytes()[..], true));
    let start = named(&spans, "start");
    assert_ne!(start.trace_id, call.trace_id);
    for name in ["plug", "spawn", "init"] {
        is_within(named(&spans, name), start);
    }
    let links: Vec<_> = wait.links.iter().map(|link| &link.span_id).collect();
    assert_eq!(links, [&start.span_id, &named(&spans, "plug").span_id]);
    let reclaim = named(&spans, "reclaim");
    is_within(named(&spans, "stop"), reclaim);
    is_within(named(&spans, "unplug"), reclaim);
    assert_eq!(reclaim.links[0].span_id, start.span_id);
    assert_eq!((spans.len(), daemon.counts()), (10, (10, 0, 0)));
}

#[tokio::test]
async fn a_call_that_fails_says_so_and_so_does_an_instance_that_never_started() {
    let (url, requests) = collector(OK);
    let daemon = Daemon::start(&url, 1.0);
    let (instance, function) = (InstanceNumber(3), F);
    daemon.tell(NodeEvent::Starting { instance, function });
    let rejected = Err(CallError::Rejected(RejectReason::VmFailed));
    daemon.end(daemon.begin(None), daemon.telemetry.now(), rejected);
    daemon.tell(NodeEvent::Lost { instance, function });
    daemon.end(daemon.begin(None), daemon.telemetry.now(), Err(failed_call(&"x\n".repeat(1000))));
    daemon.telemetry.clone().close().await;
    let spans = spans(&requests);
    let errors: Vec<_> = spans
        .iter()
        .filter_map(|span| Some((span.name.as_str(), span.status.clone()?.message)))
        .collect();
    let names: Vec<_> = errors.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["wait", "call", "start", "run", "call"]);
    assert!(errors.iter().all(|(_, error)| !error.is_empty() && error.len() <= 300), "{errors:?}");
    assert!(!errors[3].1.contains('\n'));
}

#[tokio::test]
async fn what_a_frozen_instance_gives_back_is_told_and_what_it_was_started_by() {
    let (url, requests) = collector(OK);
    let daemon = Daemon::start(&url, 1.0);
    let (instance, function) = (InstanceNumber(3), F);
    daemon.tell(NodeEvent::Starting { instance, function });
    let times = StartTimes { spawn: ms(0), init: ms(0) };
    daemon.tell(NodeEvent::Started { instance, function, result: Ok(times) });
    let report = SqueezeReport {
        heap: Err("it has no squeezer".to_owned()),
        given_back: Ok(5),
        before_bytes: 12,
        resident_bytes: 7,
        cpu: ms(0),
        // No longer than the daemon has been there.
        took: Duration::from_nanos(3),
    };
    daemon.tell(NodeEvent::Squeezed { instance, function, result: Ok(&report) });
    let error = InstanceError::NoVm;
    daemon.tell(NodeEvent::Squeezed { instance, function, result: Err(&error) });
    let took = Duration::from_nanos(2);
    daemon.tell(NodeEvent::Condemned { instance, function, freed_bytes: 7, took });
    daemon.telemetry.clone().close().await;

    let spans = spans(&requests);
    let start = named(&spans, "start");
    let of = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let (squeezes, condemns) = (of("squeeze"), of("condemn"));
    let ([squeeze, failed], [condemn]) = (&squeezes[..], &condemns[..]) else {
        panic!("{spans:?}")
    };
    for (span, took, freed_bytes) in [(squeeze, report.took, 5_u64), (condemn, took, 7)] {
        assert_eq!(span.end_time_unix_nano - span.start_time_unix_nano, took.as_nanos() as u64);
        let freed = span.attributes.iter().find(|one| one.key == "squeezy.freed_bytes").unwrap();
        assert_eq!(freed.value, span::attribute("", span::Value::from(freed_bytes)).value);
    }
    for span in [squeeze, failed, condemn] {
        assert_ne!(span.trace_id, start.trace_id);
        assert_eq!(span.links[0].span_id, start.span_id);
    }
    assert_eq!(failed.status.as_ref().unwrap().message, error.to_string());
    assert_eq!(spans.len(), 6);
}

#[tokio::test]
async fn who_is_not_sampled_hears_so_and_leaves_no_span() {
    let (url, requests) = collector(OK);
    let daemon = Daemon::start(&url, 0.0);
    let warm = || answer(WaitedFor::Nothing, ms(0));
    let call = daemon.begin(None);
    assert!(!call.trace().unwrap().context.sampled);
    daemon.end(call, daemon.telemetry.now(), Ok(warm()));
    daemon.end(
        daemon.begin(Some(&CALLER.replace("-01", "-00"))),
        daemon.telemetry.now(),
        Ok(warm()),
    );
    // A caller that samples decides.
    daemon.end(daemon.begin(Some(CALLER)), daemon.telemetry.now(), Ok(warm()));
    daemon.telemetry.clone().close().await;
    assert_eq!(spans(&requests).len(), 3);

    // Without a collector, the caller's span is passed on.
    let caller = TraceContext::parse(CALLER, "");
    let trace = TracedCall::begin(None, caller.clone()).trace().unwrap();
    assert_eq!((Some(trace.context), trace.call), (caller, None));
    assert_eq!(TracedCall::begin(None, None).trace(), None);
}

#[tokio::test]
async fn the_calls_of_components_are_parts_of_that_of_the_sequence() {
    let (url, requests) = collector(OK);
    let daemon = Daemon::start(&url, 1.0);
    let whole = daemon.begin(Some(CALLER));
    let part = whole.part();
    for call in [part, whole] {
        let came = daemon.telemetry.now();
        daemon.end(call, came, Ok(answer(WaitedFor::Nothing, ms(0))));
    }
    daemon.telemetry.clone().close().await;
    let spans = spans(&requests);
    let calls: Vec<_> = spans.iter().filter(|span| span.name == "call").collect();
    let [part, whole] = calls[..] else { panic!("{spans:?}") };
    is_within(part, whole);
    assert_eq!((part.kind(), whole.kind()), (SpanKind::Internal, SpanKind::Server));
    assert_eq!(TracedCall::begin(None, None).part().trace(), None);
}

#[tokio::test]
async fn headers_go_along_and_metrics_have_a_place_of_their_own() {
    let (url, requests) = collector(OK);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("headers");
    let collector = Collector {
        endpoint: format!("{url}/in").parse().unwrap(),
        headers_file: Some(file.clone()),
        sampling: 1.0,
        metrics_interval: None,
    };
    let watch = Watch::new(1 << 30);
    let start = || Telemetry::start(collector.clone(), Instant::now(), &watch);
    let refused = || start().err().unwrap().to_string();
    assert!(refused().contains("headers: No such file"), "{}", refused());
    fs::write(&file, "nothing").unwrap();
    assert!(refused().contains("headers: line 1: must be NAME: VALUE; mend it"), "{}", refused());
    fs::write(&file, "Authorization: Bearer t\n").unwrap();
    let telemetry = start().unwrap();
    telemetry.queue.set_metrics(watch.metrics.text());
    let got = requests.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(got.path, "/in/v1/metrics");
    let headers = got.headers.to_ascii_lowercase();
    for header in ["authorization: bearer t", "content-type: application/x-protobuf"] {
        assert!(headers.contains(&format!("{header}\r\n")), "{headers}");
    }
    let request = ExportMetricsServiceRequest::decode(&*got.body).unwrap();
    let of_resource = &request.resource_metrics[0];
    let keys: Vec<_> =
        of_resource.resource.as_ref().unwrap().attributes.iter().map(|one| &one.key).collect();
    assert_eq!(keys, ["service.name", "service.version", "service.instance.id", "host.name"]);
    let metrics = &of_resource.scope_metrics[0].metrics;
    assert!(metrics.iter().any(|metric| metric.name == "squeezy_memory_limit_bytes"));
}

#[tokio::test]
async fn a_collector_that_never_answers_costs_neither_time_nor_memory() {
    let (url, requests) = collector("");
    let daemon = Daemon::start(&url, 1.0);
    let calls = 2 * queue::MOST_WAITING as u64;
    let begin = Instant::now();
    for _ in 0..calls {
        let (call, came) = (daemon.begin(None), daemon.telemetry.now());
        daemon.end(call, came, Ok(answer(WaitedFor::Nothing, ms(0))));
    }
    let cost = begin.elapsed() / calls as u32;
    println!("a traced call costs {:.1} us here", cost.as_secs_f64() * 1e6);
    assert!(cost < ms(2), "{cost:?}");
    let (sent, dropped, _) = daemon.counts();
    let most = (queue::MOST_WAITING + queue::BATCH) as u64;
    assert!(sent == 0 && dropped >= 3 * calls - most, "{dropped}");
    requests.recv_timeout(Duration::from_secs(60)).unwrap();
    let begin = Instant::now();
    daemon.telemetry.clone().close().await;
    assert!(begin.elapsed() < CLOSE_LIMIT + Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn what_a_collector_refuses_is_counted_and_not_sent_again() {
    let bodies = [
        // One span is refused, as a protobuf message; more than there are; not a message; too much.
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x0a\x02\x08\x01", (2, 1, 0)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x0a\x02\x08\x7f", (0, 3, 0)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", (3, 0, 0)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\nConnection: close\r\n\r\n", (3, 0, 0)),
        ("HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n", (0, 3, 1)),
        (
            "HTTP/1.1 302 No\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
            (0, 3, 1),
        ),
        ("HTTP/1.1 503 No\r\nContent-Length: 0\r\nRetry-After: 9999\r\n\r\n", (0, 3, 1)),
        ("\0\r\n\r\n", (0, 3, 1)),
    ];
    for (answer, right) in bodies {
        let (url, _requests) = collector(answer);
        let daemon = Daemon::start(&url, 1.0);
        let warm = self::answer(WaitedFor::Nothing, ms(0));
        daemon.end(daemon.begin(None), daemon.telemetry.now(), Ok(warm));
        let begin = Instant::now();
        daemon.telemetry.clone().close().await;
        assert_eq!(daemon.counts(), right, "{answer}");
        assert!(begin.elapsed() < CLOSE_LIMIT + Duration::from_secs(2), "{answer}");
    }
}

#[tokio::test]
async fn a_collector_that_comes_back_gets_what_waited() {
    // Nobody listens there yet, and nobody else can.
    let collector = TcpSocket::new_v4().unwrap();
    collector.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let daemon = Daemon::start(&format!("http://{}", collector.local_addr().unwrap()), 1.0);
    let warm = answer(WaitedFor::Nothing, ms(0));
    daemon.end(daemon.begin(None), daemon.telemetry.now(), Ok(warm));
    while daemon.counts().2 == 0 {
        tokio::time::sleep(ms(20)).await;
    }
    let listener = collector.listen(1).unwrap().into_std().unwrap();
    listener.set_nonblocking(false).unwrap();
    let (sender, requests) = channel();
    thread::spawn(move || serve(listener.accept().unwrap().0, OK, &sender));
    assert_eq!(spans(&requests).len(), 3);
    daemon.telemetry.clone().close().await;
    assert_eq!((daemon.counts().0, daemon.counts().1), (3, 0));
}

#[test]
fn an_instance_has_a_uuid() {
    let id = uuid(&"0123456789abcdef".repeat(2));
    assert_eq!(id, "01234567-89ab-4def-8123-456789abcdef");
}
