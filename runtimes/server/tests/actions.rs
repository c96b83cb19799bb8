//! The server with the launchers of each language and real code, as plain processes of this machine.

#[path = "../../../scripts/executable.rs"]
mod executable;
#[path = "../../../scripts/skip.rs"]
mod skip;

use base64::{Engine, prelude::BASE64_STANDARD};
use executable::write_script;
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::{Cursor, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use zip::{ZipWriter, write::SimpleFileOptions};

/// For each start and each answer.
const LIMIT: Duration = Duration::from_secs(120);
const MARKER: &str = "XXX_THE_END_OF_A_WHISK_ACTIVATION_XXX\n";
const RUNTIMES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

struct Server {
    child: Child,
    port: u16,
    directory: TempDir,
}

impl Server {
    /// A server with these arguments.
    fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Free a moment ago; each test has its own.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let output = |name| File::create(directory.path().join(name)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_squeezy-runtime"));
        command.args(["--port", &port.to_string(), "--place"]).arg(directory.path().join("action"));
        command.args(arguments).stdin(Stdio::null()).stdout(output("out")).stderr(output("err"));
        let server = Self { child: command.spawn().unwrap(), port, directory };
        let until = Instant::now() + LIMIT;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "it does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn python() -> Option<Self> {
        let launcher = format!("{RUNTIMES}/python/app/launcher.py");
        program("python3")
            .then(|| Self::start(&["--file", "__main__.py", "--", "python3", &launcher]))
    }

    fn node() -> Option<Self> {
        let launcher = format!("{RUNTIMES}/node/app/launcher.js");
        program("node")
            .then(|| Self::start(&["--file", "action.js", "--numbered", "--", "node", &launcher]))
    }

    fn native() -> Self {
        Self::start(&["--file", "exec"])
    }

    fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let length = body.len();
        write!(stream, "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    fn init(&self, value: Value) -> (u16, Value) {
        self.post("/init", &json!({ "value": value }).to_string())
    }

    /// The action is this code.
    #[track_caller]
    fn takes(&self, value: Value) {
        assert_eq!(self.init(value), (200, json!({ "ok": true })), "{}", self.said("err"));
    }

    #[track_caller]
    fn refuses(&self, value: Value, part: &str) {
        let (status, answer) = self.init(value);
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(
            status == 502 && error.contains(part) && error.lines().count() == 1,
            "{status} {error}"
        );
    }

    fn run(&self, value: Value) -> (u16, Value) {
        let body = json!({ "value": value, "activation_id": "a1", "deadline": "1" });
        self.post("/run", &body.to_string())
    }

    fn said(&self, stream: &str) -> String {
        fs::read_to_string(self.directory.path().join(stream)).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(name: &str) -> bool {
    let there = Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !there {
        skip::skip(format_args!("there is no {name}"));
    }
    there
}

fn archive(files: &[(&str, &str)]) -> Value {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        let mode = if *name == "exec" { 0o755 } else { 0o644 };
        writer.start_file(*name, SimpleFileOptions::default().unix_permissions(mode)).unwrap();
        writer.write_all(content.as_bytes()).unwrap();
    }
    base64(writer.finish().unwrap().get_ref())
}

fn base64(bytes: &[u8]) -> Value {
    BASE64_STANDARD.encode(bytes).into()
}

const HELLO_PY: &str = r#"
import os, sys
calls = 0
def main(arguments):
    global calls
    calls += 1
    print("called", calls)
    what = arguments.get("what")
    if what == "raise":
        raise ValueError("no\nway")
    if what == "list":
        return []
    if what == "exit":
        os._exit(3)
    if what == "noise":
        print("not an answer", file=open("/dev/null", "w"))
        sys.stdin.read()
    return {"greeting": f"Hello, {arguments.get('name', 'stranger')}!", "calls": calls,
            "id": os.environ["__OW_ACTIVATION_ID"], "shelf": os.environ.get("SHELF")}
if __name__ == "__main__":
    raise SystemExit("it is not a script")
"#;

#[test]
fn it_listens_for_others_only_if_it_is_told_to() {
    let open = Server::start(&["--address", "0.0.0.0", "--file", "exec"]);
    let closed = Server::native();
    assert!(TcpStream::connect(("127.0.0.2", open.port)).is_ok());
    assert!(TcpStream::connect(("127.0.0.2", closed.port)).is_err());
}

#[test]
fn python_code_is_called_and_logs_end_with_each_call() {
    let Some(server) = Server::python() else { return };
    assert_eq!(server.run(json!({})).0, 409);
    server.takes(json!({ "code": HELLO_PY, "env": { "SHELF": "3" } }));
    assert_eq!(server.init(json!({ "code": HELLO_PY })).0, 403);
    let (status, answer) = server.run(json!({ "name": "é" }));
    let right = json!({ "greeting": "Hello, é!", "calls": 1, "id": "a1", "shelf": "3" });
    assert_eq!((status, answer), (200, right));
    assert_eq!(server.run(json!({ "what": "noise" })).1["calls"], 2);
    assert_eq!(server.said("out"), format!("{MARKER}called 1\n{MARKER}called 2\n{MARKER}"));
    assert_eq!(server.said("err"), MARKER.repeat(3));
}

#[test]
fn whatever_an_action_does_is_an_answer() {
    let Some(server) = Server::python() else { return };
    server.takes(json!({ "code": HELLO_PY }));
    let error = |what: &str| {
        let (status, answer) = server.run(json!({ "what": what }));
        (status, answer["error"].as_str().unwrap().to_owned())
    };
    assert_eq!(error("raise"), (200, "ValueError: no way".to_owned()));
    assert!(server.said("err").contains("in main"));
    assert_eq!(error("list").0, 200);
    let (status, text) = error("exit");
    assert!(status == 502 && text.contains("exit status: 3"), "{text}");
    // The next call has a new process.
    assert_eq!(server.run(json!({})).1["calls"], 1);
    let body =
        format!("{{\"value\": {{\n\"name\":\r\n\"x\"}}, \"long\": \"{}\"}}", "x".repeat(100_000));
    assert_eq!(server.post("/run", &body).1["greeting"], "Hello, x!");
    for wrong in ["[]", "1", "", "{\"value\": []}", "{\"value\": \"x\"}"] {
        assert_eq!(server.post("/run", wrong).0, 400, "{wrong}");
    }
    assert_eq!(server.post("/run", &"x".repeat(2 << 20)).0, 413);
    assert_eq!(server.post("/stop", "{}").0, 404);
}

#[test]
fn code_that_is_none_says_why_and_better_code_may_follow() {
    let Some(server) = Server::python() else { return };
    server.refuses(
        json!({ "code": "def main(:" }),
        "SyntaxError: invalid syntax (__main__.py, line 1)",
    );
    server.refuses(json!({ "code": "main = 1" }), "there is no function main");
    server
        .refuses(json!({ "code": "import nothing_like_it" }), "No module named 'nothing_like_it'");
    server.refuses(json!({ "code": "raise SystemExit(3)" }), "SystemExit: 3");
    server.refuses(json!({ "code": "import os\nos._exit(4)" }), "exit status: 4");
    server.refuses(
        json!({ "code": base64(b"PK\x03\x04"), "binary": true }),
        "archive cannot be read",
    );
    server.refuses(json!({ "code": "UEsDBA=*", "binary": true }), "not in base64");
    server
        .refuses(json!({ "code": archive(&[("other.py", "")]), "binary": true }), "no __main__.py");
    server.refuses(json!({ "code": archive(&[("../x", "")]), "binary": true }), "not inside it");
    assert_eq!(server.init(json!({})).0, 400);
    assert_eq!(server.post("/init", &"x".repeat(18 << 20)).0, 413);
    server.takes(json!({ "code": "def other(a): return a", "main": "other" }));
    assert_eq!(server.run(json!({ "a": 1 })), (200, json!({ "a": 1 })));
}

#[test]
fn code_that_is_there_already_stays_where_it_is() {
    let code = tempfile::tempdir().unwrap();
    let directory = code.path().to_str().unwrap();
    let program = code.path().join("exec");
    write_script(&program, "while read -r line; do echo '{\"here\":1}' >&3; done");
    let native = Server::native();
    native.refuses(json!({ "directory": "/there/is/none" }), "no directory /there/is/none");
    native.takes(json!({ "directory": directory }));
    assert_eq!(native.run(json!({})), (200, json!({ "here": 1 })));
    let Some(python) = Server::python() else { return };
    python.refuses(json!({ "directory": directory }), "no __main__.py");
    fs::write(code.path().join("dep.py"), "def twice(x):\n    return 2 * x\n").unwrap();
    let main = "import dep\ndef main(a):\n    return {'twice': dep.twice(a['x'])}\n";
    fs::write(code.path().join("__main__.py"), main).unwrap();
    python.takes(json!({ "directory": directory }));
    assert_eq!(python.run(json!({ "x": 4 })).1, json!({ "twice": 8 }));
    assert!(!python.directory.path().join("action").exists());
}

#[test]
fn a_python_archive_brings_what_it_imports() {
    let Some(server) = Server::python() else { return };
    let code = archive(&[
        (
            "__main__.py",
            "import helper, packed\ndef main(a): return {'sum': helper.add(1, 2), 'who': packed.WHO}",
        ),
        ("helper/__init__.py", "def add(a, b): return a + b"),
        ("virtualenv/lib/python3.11/site-packages/packed.py", "WHO = 'packed'"),
    ]);
    server.takes(json!({ "code": code, "binary": true }));
    assert_eq!(server.run(json!({})), (200, json!({ "sum": 3, "who": "packed" })));
}

#[test]
fn node_code_is_exported_or_at_the_top_level() {
    for code in [
        "function main({ name }) { console.log('log'); return { hello: name, id: process.env.__OW_ACTIVATION_ID }; }",
        "exports.main = async ({ name }) => { console.log('log'); return { hello: name, id: process.env.__OW_ACTIVATION_ID }; }",
    ] {
        let Some(server) = Server::node() else { return };
        server.takes(json!({ "code": code }));
        assert_eq!(server.run(json!({ "name": "x" })), (200, json!({ "hello": "x", "id": "a1" })));
        assert_eq!(server.said("out"), format!("log\n{MARKER}"));
    }
    let Some(server) = Server::node() else { return };
    server.refuses(json!({ "code": "\nfunction main( {" }), "SyntaxError: ");
    server.refuses(json!({ "code": "const main = 1" }), "there is no function main");
    server.refuses(json!({ "code": "throw new Error('no')" }), "Error: no");
    server.refuses(json!({ "code": "const main = () => ({})", "main": "a; b" }), "not the name");
    server.takes(json!({ "code": "const main = async ({ what }) => { if (what === 'throw') throw new TypeError('no'); if (what === 'exit') process.exit(5); if (what === 'long') return { a: 'x'.repeat(5 << 20) }; }" }));
    assert_eq!(server.run(json!({})), (200, json!({})));
    assert_eq!(server.run(json!({ "what": "throw" })), (200, json!({ "error": "TypeError: no" })));
    assert_eq!(server.run(json!({ "what": "long" })).1["a"].as_str().unwrap().len(), 5 << 20);
    assert_eq!(server.run(json!({ "what": "exit" })).0, 502);
    assert_eq!(server.run(json!({})), (200, json!({})));
}

#[test]
fn node_code_serves_calls_beside_each_other() {
    let Some(server) = Server::node() else { return };
    let code = "let meet; exports.main = ({ what, number }) => {
        if (what === 'wait') return new Promise((answer) => { meet = answer; });
        if (what === 'exit') process.exit(5);
        if (what === 'long') return { a: 'x'.repeat(8 << 20) };
        if (what === 'throws much') throw new Error('x'.repeat(9 << 20));
        if (what === 'throws nothing') throw Object.create(null);
        if (what === 'rejects early') {
            const early = Promise.reject(new Error('early'));
            return new Promise((later) => setTimeout(later, 50)).then(() => early);
        }
        if (what === 'writes') {
            require('node:fs').writeSync(3, '9'.repeat(9 << 20) + '\\n99 {}\\n{');
            return {};
        }
        meet({ met: number });
        meet = undefined;
        return { number };
    }";
    server.takes(json!({ "code": code }));
    // Whoever waits is answered by a call that comes later.
    let met = std::thread::scope(|scope| {
        let waits = scope.spawn(|| server.run(json!({ "what": "wait" })));
        let until = Instant::now() + LIMIT;
        while server.run(json!({ "number": 7 })) != (200, json!({ "number": 7 })) {
            assert!(Instant::now() < until, "{}", server.said("err"));
            std::thread::sleep(Duration::from_millis(20));
        }
        waits.join().unwrap()
    });
    assert_eq!(met, (200, json!({ "met": 7 })));
    // One that answers too much does not end those beside it, but one that ends the process does.
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| server.run(json!({ "what": "wait" })));
        let (status, answer) = server.run(json!({ "what": "long" }));
        assert_eq!(status, 200);
        assert!(answer["error"].as_str().unwrap().contains("longer than 8 MiB"), "{answer}");
        for (what, error) in [
            ("throws much", "Error: xxx"),
            ("throws nothing", "has no text"),
            ("rejects early", "Error: early"),
        ] {
            let (status, answer) = server.run(json!({ "what": what }));
            let said = answer["error"].as_str().unwrap();
            assert!(status == 200 && said.contains(error), "{what}: {status} {said:.200}");
        }
        assert_eq!(server.run(json!({ "what": "writes" })), (200, json!({})));
        let until = Instant::now() + LIMIT;
        while server.run(json!({ "number": 8 })).1["number"] != 8 {
            assert!(Instant::now() < until, "{}", server.said("err"));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(waits.join().unwrap(), (200, json!({ "met": 8 })));
        let waits = scope.spawn(|| server.run(json!({ "what": "wait" })));
        while !waits.is_finished() {
            server.run(json!({ "what": "exit" }));
        }
        let (status, answer) = waits.join().unwrap();
        assert_eq!(status, 502, "{answer}");
    });
    assert_eq!(server.run(json!({ "what": "long" })).0, 200, "it was started again");
}

#[test]
fn a_node_archive_brings_its_modules() {
    let dependency = ("node_modules/dep/index.js", "exports.twice = (x) => 2 * x");
    for (name, main, package) in [
        (
            "index.js",
            "const { twice } = require('dep'); exports.main = ({ x }) => ({ y: twice(x) })",
            "{}",
        ),
        (
            "lib/a.js",
            "import { twice } from 'dep'; export const main = ({ x }) => ({ y: twice(x) })",
            "{\"main\": \"lib/a.js\", \"type\": \"module\"}",
        ),
    ] {
        let Some(server) = Server::node() else { return };
        let code = archive(&[(name, main), ("package.json", package), dependency]);
        server.takes(json!({ "code": code, "binary": true }));
        assert_eq!(server.run(json!({ "x": 21 })), (200, json!({ "y": 42 })));
    }
    let Some(server) = Server::node() else { return };
    server.refuses(
        json!({ "code": archive(&[dependency]), "binary": true }),
        "neither a package.json",
    );
}

#[test]
fn a_program_speaks_for_itself() {
    let echo =
        "#!/bin/bash\nwhile read -r line; do echo log; echo \"{\\\"got\\\": $line}\" >&3; done\n";
    for code in
        [json!({ "code": echo }), json!({ "code": archive(&[("exec", echo)]), "binary": true })]
    {
        let server = Server::native();
        server.takes(code);
        let (status, answer) = server.run(json!({ "a": 1 }));
        assert_eq!((status, &answer["got"]["value"]), (200, &json!({ "a": 1 })));
        assert_eq!(answer["got"]["activation_id"], "a1");
        assert_eq!(server.said("out"), format!("log\n{MARKER}"));
    }
    let server = Server::native();
    server.refuses(json!({ "code": "#!/bin/nothing\n" }), "cannot be executed");
    server.refuses(
        json!({ "code": base64(b"\x7fELF nothing"), "binary": true }),
        "cannot be executed",
    );
    server.refuses(json!({ "code": "main()" }), "neither a program");
    server.refuses(json!({ "code": archive(&[("other", "")]), "binary": true }), "not there");
    // An end that comes later than a program is watched is the answer to the first call.
    let ends = Server::native();
    let (mut status, mut answer) = ends.init(json!({ "code": "#!/bin/bash\nexit 7\n" }));
    if status == 200 {
        (status, answer) = ends.run(json!({}));
    }
    let error = answer["error"].as_str().unwrap();
    assert!(status == 502 && error.contains("exit status: 7"), "{status} {error}");
    server.takes(json!({ "code": "#!/bin/bash\nread -r a; echo '[]' >&3\nread -r a; echo '{\"early\": 1}' >&3; echo '{\"stale\": 1}' >&3\nread -r a; exec 3>&-; sleep 60\n" }));
    assert_eq!(server.run(json!({})).1["error"], "The action did not return a dictionary.");
    assert_eq!(server.run(json!({})), (200, json!({ "early": 1 })));
    std::thread::sleep(Duration::from_millis(200));
    let (status, answer) = server.run(json!({}));
    assert!(
        status == 502 && answer["error"].as_str().unwrap().contains("descriptor 3"),
        "{answer}"
    );
}

/// An action in Go, in the protocol that all native programs speak.
const HELLO_GO: &str = r#"package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	calls := bufio.NewReaderSize(os.Stdin, 2<<20)
	answers := os.NewFile(3, "answers")
	for {
		line, err := calls.ReadBytes('\n')
		if err != nil {
			return
		}
		var call struct{ Value struct{ Name string } }
		if err := json.Unmarshal(line, &call); err != nil {
			panic(err)
		}
		fmt.Println("called")
		answer, _ := json.Marshal(map[string]string{"greeting": "Hello, " + call.Value.Name + "!"})
		fmt.Fprintf(answers, "%s\n", answer)
	}
}
"#;

#[test]
fn a_static_program_in_go_is_called() {
    if Command::new("go").arg("version").stdout(Stdio::null()).status().is_err() {
        return skip::skip("there is no go: scripts/install-dependencies.sh examples");
    }
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join("hello.go"), HELLO_GO).unwrap();
    let mut go = Command::new("go");
    go.args(["build", "-ldflags=-s -w", "-o", "exec", "hello.go"]).current_dir(work.path());
    go.envs([
        ("CGO_ENABLED", "0"),
        ("GOTOOLCHAIN", "local"),
        ("GOPROXY", "off"),
        ("GO111MODULE", "off"),
    ]);
    assert!(go.status().unwrap().success());
    let server = Server::native();
    let program = fs::read(work.path().join("exec")).unwrap();
    server.takes(json!({ "code": base64(&program), "binary": true }));
    for name in ["you", "me"] {
        let right = json!({ "greeting": format!("Hello, {name}!") });
        assert_eq!(server.run(json!({ "name": name })), (200, right));
    }
    assert_eq!(server.said("out"), format!("called\n{MARKER}").repeat(2));
}

#[test]
fn a_jar_is_called() {
    let jars = Path::new(RUNTIMES).join("../build/runtimes/java");
    if !jars.join("launcher.jar").exists() {
        return skip::skip("the launcher for Java has not been built: runtimes/build.sh java");
    }
    let work = tempfile::tempdir().unwrap();
    let source = "import com.google.gson.JsonObject;
        public class Hello {
            public static JsonObject main(JsonObject arguments) {
                if (arguments.has(\"fail\")) throw new IllegalStateException(\"no\");
                JsonObject answer = new JsonObject();
                answer.addProperty(\"greeting\", \"Hello, \" + arguments.get(\"name\").getAsString());
                System.out.println(System.getProperty(\"__OW_ACTIVATION_ID\"));
                return answer;
            }
        }";
    fs::write(work.path().join("Hello.java"), source).unwrap();
    let gson = jars.join("gson.jar");
    let mut javac = Command::new("javac");
    javac.args(["-d", "classes", "Hello.java", "-cp"]).arg(&gson).current_dir(work.path());
    assert!(javac.status().unwrap().success());
    let mut jar = Command::new("jar");
    jar.args(["--create", "--file", "hello.jar", "-C", "classes", "."]).current_dir(work.path());
    assert!(jar.status().unwrap().success());
    let code = base64(&fs::read(work.path().join("hello.jar")).unwrap());
    let paths = format!("{}:{}", jars.join("launcher.jar").display(), gson.display());
    let server = Server::start(&[
        "--file",
        "action.jar",
        "--packed",
        "--",
        "java",
        "-cp",
        &paths,
        "squeezy.server.Launcher",
    ]);
    server.refuses(
        json!({ "code": code, "binary": true, "main": "Other" }),
        "ClassNotFoundException: Other",
    );
    server.refuses(
        json!({ "code": base64(b"PK no jar"), "binary": true, "main": "Hello" }),
        "ClassNotFound",
    );
    server.takes(json!({ "code": code, "binary": true, "main": "Hello" }));
    assert_eq!(server.run(json!({ "name": "x" })), (200, json!({ "greeting": "Hello, x" })));
    assert_eq!(server.said("out"), format!("a1\n{MARKER}"));
    let error = server.run(json!({ "fail": 1 })).1["error"].as_str().unwrap().to_owned();
    assert!(error.contains("IllegalStateException: no"), "{error}");
}
