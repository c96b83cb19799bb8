//! Tests `squeezy serve` from outside, as far as that needs no VM, but for one test of `make stress`.

#[path = "../common/certificate.rs"]
mod certificate;
mod clock;
#[path = "../common/mod.rs"]
mod common;
#[path = "../../../../scripts/disk.rs"]
mod disk;
mod full_disk;
mod killed;
mod reload;
mod sequences;
mod state;
mod tenants;
mod tls;
mod web_actions;

use common::{
    Daemon, NO_VM, empty_build, own_empty_build, prometheus_reads, serve, squeezy, until,
    write_script,
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

/// What a program has printed.
fn said(Output { stdout, stderr, .. }: &Output) -> (String, String) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(stdout), text(stderr))
}

#[test]
fn a_daemon_whose_log_nobody_reads_goes_on() {
    // The pipe is closed, or open but not read.
    for is_open in [false, true] {
        let directory = own_empty_build();
        let directory = directory.path();
        let function = directory.join("images/f.erofs");
        let mut serve = serve(directory, directory, NO_VM, &[&function]);
        let (reader, log) = std::io::pipe().unwrap();
        rustix::pipe::fcntl_setpipe_size(&log, 4096).unwrap();
        let mut daemon = Ended(serve.stdout(log).spawn().unwrap());
        drop(serve);
        let mut reader = BufReader::new(reader);
        let mut lines = reader.by_ref().lines().map(Result::unwrap);
        let first = lines.find(|line| line.contains("serving on ")).unwrap();
        let (_, rest) = first.split_once("serving on ").unwrap();
        let url = rest.split(',').next().unwrap();
        let _reader = is_open.then_some(reader);

        // Each call fails, and adds more than 100 bytes to the log.
        for _ in 0..if is_open { 4096 / 100 } else { 3 } {
            let key = directory.join("state/key");
            let mut invoke = squeezy();
            invoke.args(["invoke", "f", "--url", url, "--key-file"]).arg(key);
            let output = invoke.output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let (answer, _) = said(&output);
            assert!(answer.contains("could not be booted, or has ended: "), "{output:?}");
            let why = "B of memory are needed, but the host has ";
            assert!(answer.contains(why), "{output:?}");
        }
        let id = daemon.0.id().to_string();
        assert!(Command::new("kill").arg(id).status().unwrap().success());
        assert!(daemon.0.wait().unwrap().success());
    }
}

#[test]
fn an_oci_image_becomes_a_function() {
    let directory = tempfile::tempdir().unwrap();
    let (directory, build) = (directory.path(), directory.path().join("build"));
    empty_build(&build);
    let daemon = Daemon::start_in(directory, &build, NO_VM, &[]);
    let archive = directory.join("f.tar");
    fs::write(&archive, "").unwrap();
    let create = || {
        let path = archive.to_str().unwrap();
        let mut command = daemon.client_command(&["function", "create", path]);
        command.env("SQUEEZY_BUILD", &build).output().unwrap()
    };
    // In place of the real script, which needs root and takes a while; `examples/test.sh` tests
    // that one.
    let script = |text: &str| {
        let path = directory.join("guest/image/build.sh");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_script(&path, text);
    };

    let output = create();
    let (_, error) = said(&output);
    assert!(error.contains("$SQUEEZY_BUILD") && error.lines().count() == 1, "{error}");
    script("echo a step; echo a warning >&2; echo 'no such layer' >&2; exit 1");
    let output = create();
    let (_, error) = said(&output);
    let last = format!("squeezy: {}: no such layer", archive.display());
    assert_eq!(error.lines().collect::<Vec<_>>(), ["a warning", &last]);
    // It builds the image under its digest, without replacing another one.
    script(
        "echo \"layers: 1 of $1 $2\"; cd \"$SQUEEZY_BUILD/images\"; cp f.erofs image.erofs\n\
         cp f.toml image.toml; hex=$(sha256sum image.erofs image.toml | sha256sum | cut -c1-64)\n\
         mkdir -p sha256/$hex; mv image.* sha256/$hex; echo f@sha256:$hex",
    );
    let output = create();
    let (shown, progress) = said(&output);
    assert!(output.status.success() && shown.contains("\"name\": \"f\""), "{output:?}");
    assert_eq!(progress, format!("layers: 1 of --reference {}\n", archive.display()));
}

/// A daemon that cannot boot VMs, with the function `f`.
fn daemon(directory: &Path) -> Daemon {
    let function = directory.join("images/f.erofs");
    Daemon::start_in(directory, directory, NO_VM, &[&function])
}

/// The error of a daemon that does not start.
fn refusal(directory: &Path, functions: &[&Path]) -> String {
    let output = serve(directory, directory, NO_VM, functions).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let (_, error) = said(&output);
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

#[test]
fn how_a_daemon_stands_is_a_table_or_json() {
    let directory = own_empty_build();
    let directory = directory.path();
    let daemon = daemon(directory);
    // It samples its node every second.
    let rows = until("a row for the function", || {
        let output = daemon.client(&["status"]);
        assert!(output.status.success(), "{output:?}");
        let rows: Vec<_> = said(&output).0.lines().map(str::to_owned).collect();
        (rows.len() == 4).then_some(rows)
    });
    assert!(rows[0].contains(": memory promised 0 of 67108776 MiB"), "{rows:?}");
    assert!(rows[0].ends_with(", by policy static"), "{rows:?}");
    assert!(rows[2].starts_with("FUNCTION") && rows[3].starts_with("f "), "{rows:?}");
    let (text, _) = said(&daemon.client(&["status", "--json"]));
    let state: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&state["functions"][0]["name"], &state["samples"]), (&json!("f"), &json!([])));
}

#[test]
fn a_list_of_functions_has_all_however_many() {
    let directory = own_empty_build();
    let directory = directory.path();
    let daemon = daemon(directory);
    // More than the daemon gives at a time, with `f`.
    for number in 0..200 {
        let path = format!("/namespaces/_/actions/a-{number}");
        let body = json!({ "exec": { "kind": "blackbox", "image": "f" } });
        assert_eq!(daemon.ask("PUT", &path, Some(body)).0, 200);
    }
    let (list, error) = said(&daemon.client(&["function", "list"]));
    assert_eq!(list.lines().count(), 1 + 201, "{list}{error}");
    assert!(list.lines().last().unwrap().starts_with("f "), "{list}");
}

#[test]
fn clients_that_nobody_reads_end_without_a_word() {
    let directory = own_empty_build();
    let directory = directory.path();
    let daemon = daemon(directory);
    assert_eq!(daemon.client(&["invoke", "f"]).status.code(), Some(1));
    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["function", "list"],
        &["function", "get", "f"],
        &["activations"],
        &["invoke", "f"],
    ] {
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let output = daemon.client_command(arguments).stdout(closed).output().unwrap();
        assert_eq!((output.status.code(), &*said(&output).1), (Some(141), ""), "{arguments:?}");
    }
}

#[test]
fn calls_that_nothing_could_run_are_counted_and_explained() {
    let directory = own_empty_build();
    let directory = directory.path();
    let daemon = daemon(directory);
    let status = |key: &Path, arguments: &[&str]| {
        let mut client = daemon.client_command(&[&["status"], arguments].concat());
        said(&client.env("SQUEEZY_KEY_FILE", key).output().unwrap()).0
    };
    for _ in 0..2 {
        assert_eq!(daemon.client(&["invoke", "f"]).status.code(), Some(1));
    }
    // It samples its node every second.
    let shown = until("why calls have failed", || {
        let shown = status(&daemon.key_file(), &[]);
        shown.lines().last().is_some_and(|last| last.starts_with("f, ")).then_some(shown)
    });
    let state = status(&daemon.key_file(), &["--json"]);
    let state: Value = serde_json::from_str(&state).unwrap();
    assert_eq!(state["functions"][0]["failed"], 2, "{state}");
    assert!(shown.contains("B of memory are needed"), "{shown}");
    // Without the key one is told that, but not why.
    let public = status(&directory.join("none"), &[]);
    assert!(public.contains("could not be booted") && public.contains("the key"), "{public}");
    assert!(!public.contains("bytes of memory"), "{public}");
}

#[test]
fn the_service_manager_is_told() {
    let directory = own_empty_build();
    let directory = directory.path();
    let socket = directory.join("notify");
    let listener = UnixDatagram::bind(&socket).unwrap();
    listener.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let hears = || {
        let mut message = [0; 64];
        let length = listener.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let mut serve = serve(directory, directory, NO_VM, &[]);
    let mut daemon = Ended(serve.env("NOTIFY_SOCKET", &socket).spawn().unwrap());
    assert_eq!(hears(), "READY=1");
    let id = daemon.0.id().to_string();
    assert!(Command::new("kill").arg(id).status().unwrap().success());
    assert_eq!(hears(), "STOPPING=1");
    assert!(daemon.0.wait().unwrap().success());
}

/// Sends a raw request; returns the first part of the response.
fn exchange(daemon: &Daemon, request: &str) -> String {
    let address = daemon.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.replace('\n', "\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_daemon_on_loopback_answers_to_its_own_names_only() {
    let directory = own_empty_build();
    let directory = directory.path();
    let daemon = daemon(directory);
    let get = |path: &str, host: &str| {
        exchange(&daemon, &format!("GET {path} HTTP/1.1\n{host}Connection: close\n\n"))
    };
    for path in ["/", "/metrics", "/ui/state.json", "/api/v1"] {
        for host in ["Host: localhost:1\n", "Host: 127.0.0.1\n", "Host: [::1]:3233\n"] {
            assert!(get(path, host).starts_with("HTTP/1.1 200 "), "{path} {host}");
        }
        let refused = get(path, "Host: rebound.example:3233\n");
        assert!(refused.starts_with("HTTP/1.1 421 "), "{path} {refused}");
        assert!(refused.contains("localhost") && !refused.contains("squeezy_"), "{refused}");
    }
}

#[test]
fn whether_it_is_ready_needs_no_key() {
    let directory = own_empty_build();
    let directory = directory.path();
    let daemon = daemon(directory);
    for (path, says) in [("/healthz", "ok"), ("/readyz", "ready")] {
        let answer = exchange(
            &daemon,
            &format!("GET {path} HTTP/1.1\nHost: localhost\nConnection: close\n\n"),
        );
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(says), "{answer}");
    }
}

#[test]
fn the_log_can_be_a_file_of_json() {
    let directory = own_empty_build();
    let directory = directory.path();
    let function = directory.join("images/f.erofs");
    let configuration = format!("{NO_VM}log_file = \"squeezy.log\"\nlog_format = \"json\"");
    let serve = &mut serve(directory, directory, &configuration, &[&function]);
    let mut daemon = Ended(serve.stdout(Stdio::piped()).spawn().unwrap());
    let file = directory.join("squeezy.log");
    let lines = || -> Vec<Value> {
        let text = fs::read_to_string(&file).unwrap_or_default();
        // The end of the last one may not be there yet.
        let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        whole.map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let says = |part: &str| {
        let found = |line: &Value| line["message"].as_str().unwrap().contains(part);
        until(part, || lines().into_iter().find(found))
    };
    assert_eq!(says("this machine has")["level"], "warning");
    let serving = says("serving on ");
    assert_eq!(serving["level"], "info", "{serving}");
    let url = serving["message"].as_str().unwrap().split([' ', ',']).nth(2).unwrap().to_owned();
    let mut invoke = squeezy();
    invoke.args(["invoke", "f", "--url", &url, "--key-file"]).arg(directory.join("state/key"));
    assert_eq!(invoke.output().unwrap().status.code(), Some(1));
    let ended = says("ended: ");
    assert_eq!((&ended["level"], ended["vm"].is_number()), (&json!("warning"), true), "{ended}");
    let id = daemon.0.id().to_string();
    assert!(Command::new("kill").arg(id).status().unwrap().success());
    let mut text = String::new();
    daemon.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "", "it is all in the file");
    assert!(daemon.0.wait().unwrap().success());
    says("shutting down");
}

#[test]
fn a_log_that_cannot_be_opened_is_said_at_once() {
    let directory = own_empty_build();
    let directory = directory.path();
    let configuration = format!("{NO_VM}log_file = \"none/squeezy.log\"");
    let output = serve(directory, directory, &configuration, &[]).output().unwrap();
    let (_, error) = said(&output);
    assert!(
        error.contains("none/squeezy.log: No such file") && error.contains("another `log_file`"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn a_daemon_can_listen_at_a_name() {
    let directory = own_empty_build();
    let directory = directory.path();
    let mut serve = serve(directory, directory, NO_VM, &[]);
    let file = directory.join("squeezy.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("127.0.0.1:0", "localhost:0")).unwrap();
    let mut daemon = Ended(serve.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(daemon.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.find(|line| line.contains("serving on ")).unwrap();
    assert!(first.contains("serving on http://127.0.0.1:") || first.contains("[::1]:"), "{first}");
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let directory = own_empty_build();
    let directory = directory.path();
    drop(daemon(directory));
    let key = directory.join("state/key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let error = refusal(directory, &[]);
    let way_out = format!("chmod 600 {}", key.display());
    assert!(error.contains(&way_out), "{error}");
    // Whoever asks before finds that out, too.
    let mut doctor = squeezy();
    doctor.args(["doctor", "--config"]).arg(directory.join("squeezy.toml"));
    let output = doctor.arg("--build").arg(directory).output().unwrap();
    let (findings, _) = said(&output);
    assert!(output.status.code() == Some(1) && findings.contains(&way_out), "{output:?}");
}

#[test]
fn what_there_is_not_is_said() {
    let directory = own_empty_build();
    let directory = directory.path();
    let daemon = daemon(directory);
    for (method, path, status, part) in [
        ("GET", "/triggers?limit=201", 400, "limit must be"),
        ("GET", "/triggers/t", 404, "no triggers"),
        ("PUT", "/triggers/t", 501, "call an action"),
        ("POST", "/rules/r", 501, "call an action"),
        ("POST", "/triggers/t", 501, "cron, a systemd timer"),
        ("PUT", "/rules/r", 501, "cron, a systemd timer"),
        ("PUT", "/actions/s", 400, "No component"),
        ("DELETE", "/packages/p", 404, "does not exist"),
        ("GET", "/actions/p/a", 404, "does not exist"),
    ] {
        let body = (method != "GET").then(|| json!({ "exec": { "kind": "sequence" } }));
        let (is, answer) = daemon.ask(method, &format!("/namespaces/_{path}"), body);
        assert_eq!(is, status, "{method} {path}: {answer}");
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains(part), "{error}");
        assert!(answer["code"].is_string());
    }
    for kind in ["triggers", "rules"] {
        let ask = |query: &str| daemon.ask("GET", &format!("/namespaces/_/{kind}{query}"), None);
        assert_eq!(ask(""), (200, json!([])));
        assert_eq!(ask("?count=true"), (200, json!({ kind: 0 })));
    }
    let missing = directory.join("missing");
    let mut list = daemon.client_command(&["function", "list"]);
    let output = list.env("SQUEEZY_KEY_FILE", &missing).output().unwrap();
    let (_, error) = said(&output);
    assert!(error.contains("--key-file") && error.lines().count() == 1, "{error}");
    let error = refusal_of(directory, &missing);
    assert_eq!(error.matches("missing").count(), 1, "{error}");
}

/// The error of a second daemon that is to serve this function.
fn refusal_of(directory: &Path, function: &Path) -> String {
    let elsewhere = directory.join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    let output = serve(&elsewhere, directory, NO_VM, &[function]).output().unwrap();
    said(&output).1
}

#[test]
fn metrics_are_in_the_format_that_is_asked_for() {
    let directory = own_empty_build();
    let directory = directory.path();
    prometheus_reads(&daemon(directory));
}

/// A process that is killed when the test ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
