//! Functions that share a VM share nothing else.

mod common;

use common::{Daemon, build, copy_of_html, server};
use serde_json::{Value, json};
use std::fs;

/// A server that looks for traces of other instances and returns what it finds.
const SPY: &str = r#"
import http.server, json, os

def processes():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with open("/proc/" + pid + "/cmdline", "rb") as file:
            found.append(file.read().replace(b"\0", b" ").decode())
    return found

def signalled():
    found = []
    for pid in range(1, 1000):
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, PermissionError):
            continue
        found.append(pid)
    return found

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        with open("/tmp/mine", "a") as file:
            file.write("spy")
        answer = {
            "processes": processes(), "signalled": signalled(), "own": os.getpid(),
            "files": sorted(os.listdir("/tmp")), "limit": open("/proc/self/cgroup").read(),
        }
"#;

#[test]
fn functions_in_one_vm_answer_and_see_nothing_of_each_other() {
    let Some(build) = build() else { return };
    let images = tempfile::tempdir().unwrap();
    let page = copy_of_html(&build, images.path(), "page", None);
    let spy = copy_of_html(&build, images.path(), "spy", Some(&server(SPY)));
    let configuration = format!("memory = \"4G\"\n{page}{spy}memory_limit = \"256M\"\n");
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::start_in(directory.path(), &build, &configuration, &[]);

    let call = |name: &str, arguments: Value| {
        let path = format!("/namespaces/_/actions/{name}?blocking=true&result=true");
        let (status, result) = daemon.ask("POST", &path, Some(arguments));
        assert_eq!(status, 200, "{result}");
        result
    };
    let page = call("page", json!({ "username": "test", "items": 10 }));
    assert_eq!(page["items"], 10);
    let seen = call("spy", json!({}));
    assert_eq!(daemon.vms(), 1);
    let vm = daemon.vm_processes()[0];
    let words = fs::read_to_string(format!("/proc/{vm}/cmdline")).unwrap();
    assert!(words.contains("serial=image-0") && words.contains("serial=image-1"), "{words}");

    // The other one is running, but not visible.
    assert_eq!(seen["signalled"], json!([seen["own"]]), "{seen}");
    assert_eq!(seen["processes"].as_array().unwrap().len(), 2, "its init and itself: {seen}");
    assert!(!seen["processes"].to_string().contains("server.py"), "{seen}");
    assert_eq!(seen["files"], json!(["mine"]), "{seen}");
    // And not harmed.
    assert_eq!(call("page", json!({ "username": "test", "items": 20 }))["items"], 20);
    let (_, list) = daemon.ask("GET", "/namespaces/_/activations?limit=1", None);
    assert!(!list[0]["annotations"].to_string().contains("initTime"), "its instance is gone");
}
