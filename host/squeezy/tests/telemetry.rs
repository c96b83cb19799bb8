//! Traces and metrics as a real OpenTelemetry collector receives them.

#[path = "common/certificate.rs"]
mod certificate;
mod common;

use common::{
    Daemon, NO_VM, build, copy_of_html, empty_build, free_address, serve, server, until, value,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A server that returns what it hears of its call's trace.
const TOLD: &str = r#"
import http.server, json

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"header": self.headers["traceparent"], "body": body.get("traceparent")}
"#;

/// The collector, and the file that it writes what it gets to.
struct Collector {
    process: Child,
    address: SocketAddr,
    file: PathBuf,
}

impl Collector {
    /// Starts it in a directory; `more` is what else its receiver is to do.
    fn start(directory: &Path, address: SocketAddr, more: &str) -> Self {
        let file = directory.join("received.jsonl");
        let configuration = format!(
            "receivers: {{ otlp: {{ protocols: {{ http: {{ endpoint: {:?} {more} }} }} }} }}\n\
             exporters: {{ lines: {{ path: {file:?} }} }}\n\
             service:\n  telemetry: {{ metrics: {{ level: none }} }}\n  pipelines:\n    \
             traces: {{ receivers: [otlp], exporters: [lines] }}\n    \
             metrics: {{ receivers: [otlp], exporters: [lines] }}\n",
            address.to_string()
        );
        let path = directory.join("collector.yaml");
        fs::write(&path, configuration).unwrap();
        let run = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/collector/run.sh");
        let mut command = Command::new(run);
        command.arg("--config").arg(&path).stderr(fs::File::create(directory.join("log")).unwrap());
        let mut process = command.stdout(Stdio::null()).spawn().unwrap();
        // The first time it has to be built, which takes minutes where nothing else is to be done.
        let end = Instant::now() + Duration::from_secs(3600);
        while std::net::TcpStream::connect(address).is_err() {
            let ended = process.try_wait().unwrap();
            let said = || fs::read_to_string(directory.join("log")).unwrap();
            assert!(ended.is_none() && Instant::now() < end, "{ended:?}: {}", said());
            std::thread::sleep(Duration::from_millis(100));
        }
        Self { process, address, file }
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// What it has received: the spans, or the metrics.
    fn received(&self, outer: &str, inner: &str, what: &str) -> Vec<Value> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        // The last line may be incomplete.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
        let of_resources = lines.flat_map(|line| list(&line, outer));
        let of_scopes = of_resources.flat_map(|one| list(&one, inner));
        of_scopes.flat_map(|one| list(&one, what)).collect()
    }

    fn spans(&self) -> Vec<Value> {
        self.received("resourceSpans", "scopeSpans", "spans")
    }

    /// Waits until this many spans of calls have come; returns all spans.
    fn calls(&self, count: usize) -> Vec<Value> {
        until("spans of calls", || {
            let spans = self.spans();
            (named(&spans, "call").len() >= count).then_some(spans)
        })
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.kill();
    }
}

fn named<'a>(spans: &'a [Value], name: &str) -> Vec<&'a Value> {
    spans.iter().filter(|span| span["name"] == name).collect()
}

fn times(span: &Value) -> (u64, u64) {
    let time = |key: &str| span[key].as_str().unwrap().parse().unwrap();
    (time("startTimeUnixNano"), time("endTimeUnixNano"))
}

/// The part with this name of a span, which lies within it.
#[track_caller]
fn part<'a>(spans: &'a [Value], whole: &Value, name: &str) -> &'a Value {
    let mut parts = named(spans, name);
    parts.retain(|part| {
        (&part["traceId"], &part["parentSpanId"]) == (&whole["traceId"], &whole["spanId"])
    });
    let [part] = parts[..] else { panic!("{name} of {whole}: {parts:?}") };
    let ((start, end), (begin, over)) = (times(part), times(whole));
    assert!(begin <= start && start <= end && end <= over, "{part} {whole}");
    part
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let mut attributes = span["attributes"].as_array().unwrap().iter();
    let found = attributes.find(|attribute| attribute["key"] == key);
    &found.unwrap_or_else(|| panic!("no {key}: {span}"))["value"]
}

/// Calls a function, as somebody with this span.
fn call(daemon: &Daemon, name: &str, caller: Option<&str>) -> (u16, Value) {
    let path = format!("/api/v1/namespaces/_/actions/{name}?blocking=true&result=true");
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(180)))
        .build()
        .new_agent();
    let mut request = agent.post(format!("{}{path}", daemon.url));
    request = request.header("Authorization", &daemon.authorization);
    if let Some(caller) = caller {
        request = request.header("traceparent", caller);
    }
    let mut answer = request.send_empty().unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    (answer.status().as_u16(), serde_json::from_str(&text).unwrap())
}

#[test]
fn a_collector_receives_the_tree_of_a_cold_and_of_a_warm_call() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut collector = Collector::start(directory.path(), free_address(), "");
    let function = copy_of_html(&build, directory.path(), "f", Some(&server(TOLD)));
    let configuration = format!(
        "memory = \"4G\"\notlp_endpoint = \"http://{}\"\notlp_metrics_seconds = 1.0\n{function}",
        collector.address
    );
    let mut daemon = Daemon::start_in(directory.path(), &build, &configuration, &[]);

    let (status, told) = call(&daemon, "f", Some(CALLER));
    assert_eq!((status, &told["header"]), (200, &told["body"]), "{told}");
    let (_, own) = call(&daemon, "f", None);
    let spans = collector.calls(2);
    let calls = named(&spans, "call");
    let of = |trace: &str| *calls.iter().find(|call| call["traceId"] == trace).unwrap();

    // The cold one belongs to its caller, and what the function does to its run.
    let cold = of(&CALLER[3..35]);
    assert_eq!((&cold["parentSpanId"], &cold["kind"]), (&json!(CALLER[36..52]), &json!(2)));
    assert_eq!(attribute(cold, "faas.coldstart"), &json!({ "boolValue": true }));
    assert_eq!(attribute(cold, "faas.name"), &json!({ "stringValue": "f" }));
    let (wait, run) = (part(&spans, cold, "wait"), part(&spans, cold, "run"));
    assert!(times(wait).1 <= times(run).0);
    let parent = format!("00-{}-{}-01", &CALLER[3..35], run["spanId"].as_str().unwrap());
    assert_eq!(told["header"], parent);
    assert_eq!(attribute(wait, "squeezy.waited_for"), &json!({ "stringValue": "boot" }));

    // It waited for a start, which was after a boot.
    let [start] = named(&spans, "start")[..] else { panic!("{spans:?}") };
    let links: Vec<_> =
        wait["links"].as_array().unwrap().iter().map(|link| &link["spanId"]).collect();
    assert_eq!(links, [&start["spanId"], &part(&spans, start, "plug")["spanId"]]);
    let (spawn, init) = (part(&spans, start, "spawn"), part(&spans, start, "init"));
    assert!(times(spawn).1 <= times(init).0);
    let (begin, over) = times(wait);
    assert!(begin <= times(start).0 && times(start).1 <= over, "{wait} {start}");
    let [boot] = named(&spans, "boot")[..] else { panic!("{spans:?}") };
    assert!(begin <= times(boot).0 && times(boot).1 <= times(start).0, "{boot}");

    // The warm one has a trace of its own.
    let warm = of(&own["header"].as_str().unwrap()[3..35]);
    assert_eq!(warm["parentSpanId"].as_str().unwrap_or_default(), "");
    assert_eq!(attribute(warm, "faas.coldstart"), &json!({ "boolValue": false }));
    let wait = part(&spans, warm, "wait");
    assert_eq!(attribute(wait, "squeezy.waited_for"), &json!({ "stringValue": "nothing" }));
    part(&spans, warm, "run");

    // The metrics are those that Prometheus gets.
    let metrics = until("metrics", || {
        let metrics = collector.received("resourceMetrics", "scopeMetrics", "metrics");
        metrics.iter().any(|metric| metric["name"] == "squeezy_run_seconds").then_some(metrics)
    });
    let names: BTreeSet<_> = metrics.iter().map(|one| one["name"].as_str().unwrap()).collect();
    let text = daemon.metrics();
    let mut types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    for name in &names {
        let is_of =
            |line: &str| line.split(' ').next() == name.strip_suffix("_info").or(Some(name));
        assert!(types.clone().any(is_of), "{name}");
    }
    assert!(types.any(|line| line == "squeezy_run_seconds histogram") && names.len() > 20);
    let runs = metrics.iter().rfind(|metric| metric["name"] == "squeezy_run_seconds").unwrap();
    assert_eq!(
        (&runs["unit"], &runs["histogram"]["aggregationTemporality"]),
        (&json!("s"), &json!(2))
    );

    // A collector that dies costs no call anything, and gets what waited when it is back.
    collector.kill();
    let before = value(&daemon.metrics(), "squeezy_exports_failed_total ").unwrap();
    assert_eq!(call(&daemon, "f", None).0, 200);
    daemon.says("does not take traces and metrics: ");
    until("a failure", || {
        let failed = value(&daemon.metrics(), "squeezy_exports_failed_total ").unwrap();
        (failed > before).then_some(())
    });
    assert_eq!(call(&daemon, "f", None).0, 200);
    let collector = Collector::start(directory.path(), collector.address, "");
    collector.calls(4);
    daemon.says("takes traces and metrics again; spans dropped until now: 0");

    // The end of the instance is sent before the daemon has ended.
    daemon.stop();
    let spans = until("the reclaim", || {
        let spans = collector.spans();
        (!named(&spans, "reclaim").is_empty()).then_some(spans)
    });
    let [reclaim] = named(&spans, "reclaim")[..] else { panic!("{spans:?}") };
    assert_eq!(attribute(reclaim, "squeezy.reason"), &json!({ "stringValue": "draining" }));
    assert_eq!(reclaim["links"][0]["spanId"], named(&spans, "start")[0]["spanId"]);
    part(&spans, reclaim, "stop");
    part(&spans, reclaim, "unplug");
}

#[test]
fn a_collector_with_a_certificate_is_spoken_to_by_https() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate::make(directory.path(), "collector");
    let tls = format!(", tls: {{ cert_file: {certificate:?}, key_file: {key:?} }}");
    let collector = Collector::start(directory.path(), free_address(), &tls);
    let image = directory.path().join("build/images/f.erofs");
    empty_build(&directory.path().join("build"));
    let endpoint = format!("https://localhost:{}", collector.address.port());
    let configuration = format!("{NO_VM}otlp_endpoint = {endpoint:?}\n");
    let build = directory.path().join("build");
    let start = |authorities: Option<&Path>| {
        let mut command = serve(directory.path(), &build, &configuration, &[&image]);
        command.env_remove("SSL_CERT_FILE");
        if let Some(file) = authorities {
            command.env("SSL_CERT_FILE", file);
        }
        Daemon::spawn(command, directory.path())
    };
    let mut daemon = start(Some(&certificate));
    assert_ne!(call(&daemon, "f", Some(CALLER)).0, 200, "there is no VM");
    let spans = collector.calls(1);
    let failed = named(&spans, "call")[0];
    assert_eq!(failed["status"]["code"], 2, "{failed}");
    part(&spans, failed, "wait");
    daemon.stop();

    // Nobody else is told.
    let mut daemon = start(Some(Path::new("/etc/ssl/certs/ca-certificates.crt")));
    call(&daemon, "f", None);
    daemon.says("does not take traces and metrics: ");
    daemon.stop();
    assert_eq!(named(&collector.spans(), "call").len(), 1);
}

#[test]
fn a_collector_that_never_answers_slows_neither_calls_nor_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let build = directory.path().join("build");
    empty_build(&build);
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let image = build.join("images/f.erofs");
    let configuration = |more: &str| format!("{NO_VM}{more}\n");
    let median = |daemon: &Daemon| {
        let mut times: Vec<_> = (0..30)
            .map(|_| {
                let begin = Instant::now();
                assert_ne!(call(daemon, "f", None).0, 200, "there is no VM");
                begin.elapsed()
            })
            .collect();
        times.sort();
        times[times.len() / 2]
    };
    let mut daemon = Daemon::start_in(directory.path(), &build, &configuration(""), &[&image]);
    let without = median(&daemon);
    daemon.stop();
    let more = format!("otlp_endpoint = {endpoint:?}\notlp_metrics_seconds = 1.0");
    let mut daemon = Daemon::start_in(directory.path(), &build, &configuration(&more), &[&image]);
    let with = median(&daemon);
    println!("a call that fails takes {without:?} without a collector and {with:?} with one");
    assert!(with < 3 * without + Duration::from_millis(50), "{without:?} {with:?}");
    // It has connected, and waits.
    let _connection = listener.accept().unwrap();
    let begin = Instant::now();
    daemon.stop();
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}
