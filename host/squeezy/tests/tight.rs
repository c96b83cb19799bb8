//! Calls under a budget that has room for one function's instance or another's, but not both.

mod common;

use common::{Daemon, build, copy_of_html, value};
use serde_json::json;
use std::time::{Duration, Instant};

/// A server that answers immediately.
const SMALL: &str = r#"
import http.server

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "12")
        self.end_headers()
        self.wfile.write(b'{"items": 1}')

http.server.HTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
"#;

/// Longer than any call here takes. A stalled call would wait ten minutes, until its neighbour's VM
/// has been idle for its keep-alive.
const PATIENCE: Duration = Duration::from_secs(170);

/// Each call has to evict what the previous one has left idle: an instance, and then its VM. With `overcommit`, which
/// counts what they occupy, they would fit.
#[test]
fn functions_that_do_not_fit_together_take_turns() {
    let Some(build) = build() else { return };
    let images = tempfile::tempdir().unwrap();
    let small = copy_of_html(&build, images.path(), "small", Some(SMALL));
    let small = small.replace("vm = \"both\"\n", "").replace("concurrency = 1", "concurrency = 8");
    let configuration =
        format!("policy = \"squeezy\"\nmemory = \"1300M\"\n{small}memory_limit = \"128M\"\n");
    let directory = tempfile::tempdir().unwrap();
    let html = build.join("images/html.erofs");
    let daemon = Daemon::start_in(directory.path(), &build, &configuration, &[&html]);
    for name in ["html", "small", "html"] {
        let begin = Instant::now();
        let path = format!("/namespaces/_/actions/{name}?blocking=true&result=true");
        let (status, result) = daemon.ask("POST", &path, Some(json!({ "items": 1 })));
        assert_eq!((status, &result["items"]), (200, &json!(1)), "{name}: {result}");
        println!("{name} took {:.1} s", begin.elapsed().as_secs_f64());
        assert!(begin.elapsed() < PATIENCE, "{name}");
    }
    let metrics = daemon.metrics();
    let evicted = |name| {
        let labels = format!("{{function=\"{name}\",reason=\"evicted\"}}");
        value(&metrics, &format!("squeezy_instances_ended_total{labels}"))
    };
    assert_eq!((evicted("html"), evicted("small")), (Some(1.0), Some(1.0)), "{metrics}");
}
