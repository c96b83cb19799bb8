//! Errors are reported in one line that says what to do, before any VM starts. What clients make of a daemon's answers.

mod common;

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;

const FUNCTION: &str = include_str!("../../../functions/html/function.toml");

fn squeezy(arguments: &[&str]) -> Output {
    common::squeezy().args(arguments).output().expect("the program can be run")
}

/// The single line on standard error.
fn refusal(arguments: &[&str]) -> String {
    let output = squeezy(arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

/// A directory with a function and an empty build directory.
fn function() -> TempDir {
    let directory = TempDir::new().unwrap();
    std::fs::write(directory.path().join("function.toml"), FUNCTION).unwrap();
    std::fs::create_dir(directory.path().join("build")).unwrap();
    directory
}

fn run(directory: &Path, more: &[&str]) -> String {
    let (function, build) = (directory.to_str().unwrap(), directory.join("build"));
    let mut arguments = vec!["run", function, "--build", build.to_str().unwrap(), "--plain"];
    arguments.extend(more);
    refusal(&arguments)
}

fn trace(directory: &TempDir, text: &str) -> String {
    let path = directory.path().join("trace.csv");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn arguments_out_of_range_are_refused() {
    for arguments in [
        ["--policy", "magic"],
        ["--duration", "0"],
        ["--keep-alive", "-1"],
        ["--concurrency", "256"],
        ["--memory", "12Q"],
        ["--memory", "1K"],
        ["--accelerator", "xen"],
        ["--memory-backend", "disk"],
        ["--plot", "plot.gif"],
        ["--speed", "2"],
        ["--seed", "x"],
        ["--vcpus", "0"],
    ] {
        let output = squeezy(&["run", "functions/html", arguments[0], arguments[1]]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.starts_with("error: "), "{text}");
    }
    let tiny = squeezy(&["run", "functions/html", "--memory", "1M"]);
    let text = String::from_utf8(tiny.stderr).unwrap();
    assert!(text.contains("must be at least 32M") && text.contains("128M is enough"), "{text}");
}

#[test]
fn what_is_missing_is_named() {
    let directory = function();
    let text = refusal(&["run", "/nowhere", "--build", directory.path().to_str().unwrap()]);
    assert!(text.contains("/nowhere") && text.contains("function.toml"), "{text}");
    let text = refusal(&["run", "/nowhere", "--build", "/no/build"]);
    assert!(text.contains("/no/build") && text.contains("--build"), "{text}");
    let text = run(directory.path(), &[]);
    assert!(text.contains("make kernel"), "{text}");
    let text = run(directory.path(), &["--json", "/no/directory/out.json"]);
    assert!(text.starts_with("squeezy: /no/directory/out.json: "), "{text}");
}

/// Before anything is missed that it would need.
#[test]
fn a_policy_on_memory_that_it_cannot_work_with_is_refused() {
    let directory = function();
    for policies in ["hyperalloc", "hyperalloc,squeezy"] {
        let text = run(directory.path(), &["--policy", policies, "--memory-backend", "ram"]);
        assert!(text.contains("policy hyperalloc") && text.contains("auto or memfd"), "{text}");
    }
    for possible in [
        &["--policy", "hyperalloc"][..],
        &["--policy", "hyperalloc", "--memory-backend", "memfd"],
        &["--policy", "squeezy", "--memory-backend", "ram"],
    ] {
        let text = run(directory.path(), possible);
        assert!(text.contains("make kernel"), "{possible:?}: {text}");
    }
}

#[test]
fn a_broken_definition_is_named_with_its_line() {
    let directory = function();
    let path = directory.path().join("function.toml");
    std::fs::write(&path, FUNCTION.replace("port = ", "prot = ")).unwrap();
    let text = run(directory.path(), &[]);
    assert!(text.contains("function.toml: line ") && text.contains("`prot`"), "{text}");
}

#[test]
fn a_broken_trace_is_named_with_its_line() {
    let directory = function();
    let path = trace(&directory, "app,func,end_timestamp,duration\na,f,1,x\n");
    let text = run(directory.path(), &["--trace", &path]);
    assert!(text.contains("trace.csv: line 2: column duration"), "{text}");
    let path = trace(&directory, "a,b\n");
    let text = run(directory.path(), &["--trace", &path]);
    assert!(text.contains("line 1: the header has no column"), "{text}");
    let path = trace(&directory, "app,func,end_timestamp,duration\n");
    let text = run(directory.path(), &["--trace", &path]);
    assert!(text.contains("the trace has no invocations"), "{text}");
}

#[test]
fn a_function_that_the_trace_lacks_is_refused() {
    let directory = function();
    let path = trace(&directory, "app,func,end_timestamp,duration\na,f1,1,1\na,f2,9,1\n");
    let text = run(directory.path(), &["--trace", &path, "--function", "g"]);
    assert!(text.contains("f1 (1 invocations)"), "{text}");
    let text = run(directory.path(), &["--trace", &path, "--function", "f"]);
    assert!(text.contains("2 functions of the trace begin with \"f\""), "{text}");
    let text = run(directory.path(), &["--trace", &path, "--function", "f1", "--from", "500"]);
    assert!(text.contains("no invocations in the 60 s from second 500"), "{text}");
}

#[test]
fn shells_can_complete_every_command_and_each_has_a_manual() {
    for shell in ["bash", "zsh", "fish"] {
        let output = squeezy(&["completion", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("accelerator"), "{shell}");
    }
    let help = |command: &[&str]| {
        let output = squeezy(&[command, &["--help"]].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    for (command, part) in [
        ("run", "once for each policy"),
        ("serve", "SIGTERM"),
        ("invoke", "exit status"),
        ("activations", "developer error"),
        ("logs", "oldest first"),
        ("status", "PLUGGED is"),
        ("top", "Ctrl-C quits"),
    ] {
        let help = help(&[command]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(part), "{command}: {help}");
    }
    let help = help(&[]);
    assert!(help.contains("squeezy serve functions/html"), "{help}");
    for command in
        ["run", "serve", "invoke", "function", "activations", "logs", "status", "top", "bench"]
    {
        assert!(help.contains(&format!("\n  {command} ")), "{command}: {help}");
    }
}

/// A directory with a program of this name that prints how it was called.
fn with_program(name: &str) -> TempDir {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join(name);
    common::write_script(&path, "echo \"$0 $* at $SQUEEZY_LOG\"\nexit 7");
    directory
}

/// Copies the program. This process must not have the copy open for writing itself, as with a script.
fn copy_program(to: &Path) {
    let mut copy = Command::new("cp");
    assert!(copy.arg(env!("CARGO_BIN_EXE_squeezy")).arg(to).status().unwrap().success());
}

#[test]
fn experiments_are_a_program_beside_this_one_or_in_the_path() {
    let beside = with_program("squeezy-bench");
    let own = beside.path().join("squeezy");
    copy_program(&own);
    let alone = TempDir::new().unwrap();
    let lonely = alone.path().join("squeezy");
    copy_program(&lonely);
    let in_path = with_program("squeezy-bench");
    let call = |program: &Path, path: &Path| {
        let arguments = ["--log", "info", "bench", "plug", "--quick", "--help"];
        let output = Command::new(program).args(arguments).env("PATH", path).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let shell = Path::new("/bin:/usr/bin");
    let (code, said, _) = call(&own, in_path.path());
    let expected =
        format!("{} plug --quick --help at info\n", beside.path().join("squeezy-bench").display());
    assert_eq!((code, said), (Some(7), expected));
    let path = format!("{}:{}", in_path.path().display(), shell.display());
    let (code, said, _) = call(&lonely, Path::new(&path));
    let expected =
        format!("{} plug --quick --help at info\n", in_path.path().join("squeezy-bench").display());
    assert_eq!((code, said), (Some(7), expected));
    let (code, said, error) = call(&lonely, alone.path());
    assert_eq!((code, &*said, error.lines().count()), (Some(1), "", 1), "{error}");
    assert!(
        error.starts_with("squeezy: squeezy-bench is neither") && error.contains("make programs"),
        "{error}"
    );
}

#[test]
fn what_is_told_is_said_by_the_option_or_the_environment() {
    let directory = with_program("squeezy-bench");
    let own = directory.path().join("squeezy");
    copy_program(&own);
    let level = |option: &[&str], environment: &[(&str, &str)]| {
        let mut command = Command::new(&own);
        command.env_remove("SQUEEZY_LOG").env_remove("RUST_LOG").envs(environment.iter().copied());
        let output = command.args(option).arg("bench").output().unwrap();
        String::from_utf8(output.stdout).unwrap().rsplit(" at ").next().unwrap().trim().to_owned()
    };
    assert_eq!(level(&[], &[]), "warn");
    assert_eq!(level(&[], &[("RUST_LOG", "debug")]), "debug");
    assert_eq!(level(&[], &[("RUST_LOG", "debug"), ("SQUEEZY_LOG", "info")]), "info");
    assert_eq!(level(&["--log", "error"], &[("SQUEEZY_LOG", "info")]), "error");
}

#[test]
fn what_nobody_reads_is_no_panic() {
    let closed = || std::io::pipe().unwrap().1;
    let program = || Command::new(env!("CARGO_BIN_EXE_squeezy"));
    let unread = program().args(["completion", "bash"]).stdout(closed()).output().unwrap();
    assert_eq!((unread.status.code(), &*unread.stderr), (Some(141), &b""[..]));
    let full = File::options().write(true).open("/dev/full").unwrap();
    let full = program().args(["completion", "bash"]).stdout(full).output().unwrap();
    let error = String::from_utf8(full.stderr).unwrap();
    assert_eq!(full.status.code(), Some(1), "{error}");
    assert!(error.starts_with("squeezy: standard output: ") && error.lines().count() == 1);
    let nowhere = ["status", "--url", "http://127.0.0.1:1"];
    let status = program().args(nowhere).stderr(closed()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_live_view_needs_a_terminal() {
    let unreachable = refusal(&["status", "--url", "http://127.0.0.1:1"]);
    assert!(unreachable.contains("is `squeezy serve` running there?"), "{unreachable}");
    let top = refusal(&["top", "--url", "http://127.0.0.1:1"]);
    assert!(top.contains("`squeezy status` does not need one"), "{top}");
}

/// Answers a request with this status and JSON; returns what was asked for.
fn answer(listener: &TcpListener, status: &str, body: &str) -> String {
    let (mut client, _) = listener.accept().unwrap();
    let mut request = BufReader::new(client.try_clone().unwrap());
    let mut lines = request.by_ref().lines().map(Result::unwrap);
    let asked = lines.next().unwrap();
    let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    let length = head.iter().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse().unwrap())
    });
    request.read_exact(&mut vec![0; length.unwrap_or(0)]).unwrap();
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close");
    write!(client, "{head}\r\n\r\n{body}").unwrap();
    asked
}

#[test]
fn an_answer_that_takes_longer_than_a_minute_is_waited_for() {
    const ID: &str = "0123456789abcdef0123456789abcdef";
    let directory = TempDir::new().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, "name:0123456789abcdef").unwrap();
    for (success, status) in [(true, 0), (false, 1)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let daemon = std::thread::spawn(move || {
            let accepted = format!("{{\"activationId\": \"{ID}\"}}");
            let response = format!("{{\"success\": {success}, \"result\": {{\"late\": 1}}}}");
            let activation = format!("{{\"activationId\": \"{ID}\", \"response\": {response}}}");
            [("202 Accepted", accepted), ("404 Not Found", "{}".to_owned()), ("200 OK", activation)]
                .map(|(status, body)| answer(&listener, status, &body))
        });
        let output = squeezy(&["invoke", "f", "--url", &url, "--key-file", key.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let said = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (answer, told) = (said(output.stdout), said(output.stderr));
        assert_eq!(answer.split_whitespace().collect::<String>(), "{\"late\":1}");
        assert!(told.contains(&format!("`squeezy activations {ID}`")), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
        let path = "/api/v1/namespaces/_";
        let asked = format!("GET {path}/activations/{ID} HTTP/1.1");
        let call = format!("POST {path}/actions/f?blocking=true HTTP/1.1");
        assert_eq!(daemon.join().unwrap(), [call, asked.clone(), asked]);
    }
}
