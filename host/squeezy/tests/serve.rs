//! `squeezy serve` from outside: a real daemon, a real VM, real HTTP.

use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

/// The directory of kernels and images, if there is one.
fn build() -> Option<PathBuf> {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build").canonicalize().ok()?;
    let there = ["kernel/release/bzImage", "initramfs.cpio", "images/html.erofs"];
    let missing: Vec<_> = there.iter().filter(|path| !build.join(path).exists()).collect();
    if missing.is_empty() {
        return Some(build);
    }
    println!("skipped: {missing:?} have not been built: make kernel image");
    None
}

/// A daemon with a state directory of its own, ended with the test.
struct Daemon {
    child: Child,
    lines: Receiver<String>,
    url: String,
    authorization: String,
    directory: tempfile::TempDir,
}

impl Daemon {
    fn start(build: &Path, configuration: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("squeezy.toml");
        let own = "listen = \"127.0.0.1:0\"\nstate_directory = \"state\"\n";
        fs::write(&file, format!("{own}{configuration}")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_squeezy"))
            .arg("serve")
            .arg("--config")
            .arg(&file)
            .arg("--build")
            .arg(build)
            .arg(build.join("images/html.erofs"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                println!("{line}");
                let _ = sender.send(line);
            }
        });
        let first = lines.recv_timeout(Duration::from_secs(20)).expect("it says where it serves");
        let address = first.split_whitespace().nth(2).unwrap().trim_end_matches(',');
        let key = fs::read_to_string(directory.path().join("state/key")).unwrap();
        let authorization = format!("Basic {}", base64(key.trim()));
        Self { child, lines, url: format!("{address}/api/v1"), authorization, directory }
    }

    /// Sends a request; status and body.
    fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        self.ask_as(&self.authorization, method, path, body)
    }

    fn ask_as(
        &self,
        authorization: &str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> (u16, Value) {
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("Authorization", authorization);
        if body.is_some() {
            request = request.header("Content-Type", "application/json");
        }
        let body = body.map_or(String::new(), |body| body.to_string());
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(180)))
            .build()
            .new_agent();
        let mut answer = agent.run(request.body(body).unwrap()).unwrap();
        let status = answer.status().as_u16();
        let text = answer.body_mut().read_to_string().unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Waits until it says something.
    fn says(&self, part: &str) {
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("never: {part}"));
            if line.contains(part) {
                return;
            }
        }
    }

    fn vms(&self) -> usize {
        let own = self.child.id().to_string();
        let list = Command::new("pgrep").args(["-c", "-P", &own, "qemu"]).output().unwrap();
        String::from_utf8_lossy(&list.stdout).trim().parse().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn base64(text: &str) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    BASE64_STANDARD.encode(text)
}

#[test]
fn calls_are_answered_as_openwhisk_does_and_memory_comes_back() {
    let Some(build) = build() else { return };
    let mut daemon = Daemon::start(&build, "memory = \"3G\"\nvm_idle_seconds = 2.0\n");

    let (status, _) = daemon.ask_as("Basic bm86Ym9keQ==", "GET", "/namespaces", None);
    assert_eq!(status, 401);
    assert_eq!(daemon.ask("GET", "/namespaces", None), (200, json!(["guest"])));
    assert_eq!(daemon.ask("GET", "/namespaces/other/actions", None).0, 403);
    let (status, actions) = daemon.ask("GET", "/namespaces/_/actions", None);
    assert_eq!((status, &actions[0]["name"]), (200, &json!("html")));
    assert_eq!(daemon.vms(), 0, "a VM that nobody has needed");

    // A blocking call boots the VM.
    let call = "/namespaces/_/actions/html?blocking=true";
    let arguments = json!({ "username": "test", "items": 10 });
    let (status, activation) = daemon.ask("POST", call, Some(arguments.clone()));
    assert_eq!(status, 200, "{activation}");
    let page = activation["response"]["result"]["html"].as_str().unwrap();
    assert_eq!(page.matches("<tr class=\"item\">").count(), 10);
    assert!(activation["annotations"].to_string().contains("initTime"), "a cold start");
    let id = activation["activationId"].as_str().unwrap();
    let (status, same) = daemon.ask("GET", &format!("/namespaces/_/activations/{id}"), None);
    assert_eq!((status, &same), (200, &activation));

    // The next one finds its instance.
    let (status, result) = daemon.ask("POST", &format!("{call}&result=true"), Some(arguments));
    assert_eq!((status, &result["items"]), (200, &json!(10)));
    let (_, list) = daemon.ask("GET", "/namespaces/_/activations?limit=1", None);
    assert!(!list[0]["annotations"].to_string().contains("initTime"), "a warm start");

    // The function's own error is not the daemon's.
    let (status, failed) = daemon.ask("POST", call, Some(json!({ "items": "many" })));
    assert_eq!((status, &failed["response"]["status"]), (502, &json!("application error")));

    // Without waiting.
    let later = json!({ "items": 1 });
    let (status, accepted) = daemon.ask("POST", "/namespaces/_/actions/html", Some(later));
    assert_eq!(status, 202);
    let path = format!("/namespaces/_/activations/{}", accepted["activationId"].as_str().unwrap());
    let until = Instant::now() + Duration::from_secs(60);
    while daemon.ask("GET", &path, None).0 != 200 {
        assert!(Instant::now() < until, "an activation that never came");
        std::thread::sleep(Duration::from_millis(50));
    }

    // An action of one's own, and what is wrong with others.
    let action = "/namespaces/_/actions/page";
    let body = json!({
        "exec": { "kind": "blackbox", "image": "html" },
        "parameters": [{ "key": "items", "value": 3 }],
    });
    assert_eq!(daemon.ask("PUT", action, Some(body.clone())).0, 200);
    assert_eq!(daemon.ask("PUT", action, Some(body)).0, 409);
    assert_eq!(daemon.ask("DELETE", action, None).0, 200);
    assert_eq!(daemon.ask("GET", action, None).0, 404);
    for wrong in [
        json!({}),
        json!({ "exec": { "kind": "nodejs:20", "code": "function main() {}" } }),
        json!({ "exec": { "kind": "blackbox", "image": "../html" } }),
        json!({ "exec": { "kind": "blackbox", "image": "none" } }),
        json!([]),
    ] {
        assert_eq!(daemon.ask("PUT", action, Some(wrong.clone())).0, 400, "{wrong}");
    }
    assert_eq!(daemon.ask("POST", call, Some(json!([1]))).0, 400);
    assert_eq!(daemon.ask("POST", "/namespaces/_/actions/none", None).0, 404);

    daemon.signal("TERM");
    daemon.says("memory back after");
    daemon.says("ended: it is not needed");
    assert!(daemon.child.wait().unwrap().success());
    assert!(daemon.directory.path().join("state/key").exists());
}

#[test]
fn a_vm_that_is_killed_is_booted_again() {
    let Some(build) = build() else { return };
    let daemon = Daemon::start(&build, "");
    let call = "/namespaces/_/actions/html?blocking=true&result=true";
    let arguments = || Some(json!({ "username": "test", "items": 1 }));
    assert_eq!(daemon.ask("POST", call, arguments()).0, 200);
    let own = daemon.child.id().to_string();
    assert!(Command::new("pkill").args(["-KILL", "-P", &own, "qemu"]).status().unwrap().success());
    daemon.says("ended: ");
    let (status, answer) = daemon.ask("POST", call, arguments());
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let Some(build) = build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("squeezy.toml");
    for (configuration, part) in [
        ("memory = \"lots\"", "line 1: memory"),
        ("memory = \"64M\"\nstate_directory = \"s\"", "the host's budget is 67108864"),
        ("listen = \"203.0.113.1:1\"\nstate_directory = \"s\"", "choose another `listen`"),
        ("state_directory = \"squeezy.toml\"", "squeezy.toml: "),
    ] {
        fs::write(&file, configuration).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_squeezy"))
            .args(["serve", "--config"])
            .arg(&file)
            .arg("--build")
            .arg(&build)
            .arg(build.join("images/html.erofs"))
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{configuration}");
        assert!(error.contains(part) && error.lines().count() == 1, "{configuration}: {error}");
    }
}
