//! Actions that are made from code. What the daemon does with code is tested without VMs; the last tests run
//! it in real ones.

mod common;
#[path = "../../../scripts/disk.rs"]
mod disk;

use base64::{Engine, prelude::BASE64_STANDARD};
use common::{Daemon, NO_VM, build_with, empty_build, empty_image, skip};
use disk::Disk;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    io::{Cursor, Write},
    net::TcpStream,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

const ACTION: &str = "/namespaces/_/actions/f";

/// A build directory with the runtimes for Python and for programs, whose images are empty.
fn empty_runtimes(build: &Path) {
    empty_build(build);
    for name in ["runtime-python", "runtime-native"] {
        empty_image(build, name);
    }
}

fn daemon(directory: &Path) -> Daemon {
    let build = directory.join("build");
    if !build.exists() {
        empty_runtimes(&build);
    }
    Daemon::start_in(directory, &build, NO_VM, &[])
}

fn python(code: &str) -> Value {
    json!({ "exec": { "kind": "python:default", "code": code } })
}

#[track_caller]
fn put(daemon: &Daemon, body: Value) -> Value {
    let (status, action) = daemon.ask("PUT", &format!("{ACTION}?overwrite=true"), Some(body));
    assert_eq!(status, 200, "{action}");
    action
}

fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Waits until the state directory has as many files with code. One is removed when the last instance lets go of it.
#[track_caller]
fn has_files(directory: &Path, right: usize) {
    let count = || fs::read_dir(directory.join("state/code")).unwrap().count();
    common::until("files with code", || (count() == right).then_some(()));
}

#[test]
fn code_is_versioned_kept_and_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let mut first = daemon(directory);
    let action = put(&first, python("def main(a):\n    return a\n"));
    let right = json!({ "kind": "python:3.11", "binary": false });
    assert_eq!((&action["exec"], &action["version"]), (&right, &json!("0.0.1")));
    assert_eq!(first.ask("PUT", ACTION, Some(python("x"))).0, 409);
    let with_code = first.ask("GET", ACTION, None).1;
    assert_eq!(with_code["exec"]["code"], "def main(a):\n    return a\n");
    assert_eq!(with_code["version"], "0.0.1");
    assert_eq!(first.ask("GET", &format!("{ACTION}?code=false"), None).1, action);
    let mut listed = action.clone();
    listed.as_object_mut().unwrap().remove("parameters");
    assert_eq!(first.ask("GET", "/namespaces/_/actions", None).1, json!([listed]));

    // A change of something else keeps the code, other code replaces it.
    let limits = put(&first, json!({ "limits": { "timeout": 5 } }));
    assert_eq!((&limits["version"], &limits["exec"]), (&json!("0.0.2"), &right));
    let archive = base64(&[b"PK\x03\x04".as_slice(), &[7; 100_000]].concat());
    let exec = json!({ "kind": "python:3.11", "code": archive, "main": "m" });
    let action = put(&first, json!({ "exec": exec }));
    assert_eq!((&action["version"], &action["exec"]["binary"]), (&json!("0.0.3"), &json!(true)));
    assert_eq!(action["limits"]["timeout"], 5);
    has_files(directory, 1);

    // It is all there again, and smaller than its code where actions are.
    first.stop();
    let again = daemon(directory);
    let whole = again.ask("GET", &format!("{ACTION}?code=true"), None).1;
    assert_eq!((&whole["exec"]["code"], &whole["exec"]["main"]), (&exec["code"], &json!("m")));
    assert!(fs::metadata(directory.join("state/actions.json")).unwrap().len() < 2000);
    // As OpenWhisk's clients send a program.
    let skeleton = "openwhisk/dockerskeleton";
    let exec = json!({ "kind": "blackbox", "image": skeleton, "code": base64(b"\x7fELF") });
    assert_eq!(put(&again, json!({ "exec": exec }))["exec"]["kind"], "native:1");
    put(&again, json!({ "exec": { "kind": "blackbox", "image": "f", "code": "" } }));
    has_files(directory, 0);
}

#[test]
fn what_is_no_code_is_refused_with_what_would_be() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let daemon = daemon(directory);
    for (exec, part) in [
        (
            json!({ "kind": "php:8", "code": "x" }),
            "the kinds here are blackbox, python:3.11, native:1",
        ),
        (json!({ "kind": "nodejs:20", "code": "x" }), "build it with `runtimes/build.sh node`"),
        (json!({ "kind": "python:3" }), "exec.code is missing"),
        (json!({ "kind": "python:3", "code": "" }), "exec.code is missing"),
        (json!({ "kind": "python:3", "code": 1 }), "exec.code has to be a text"),
        (json!({ "kind": "python:3", "code": "UEsDBA=*", "binary": true }), "not in base64"),
        (json!({ "kind": "python:3", "code": base64(b"what"), "binary": true }), "zip archive"),
        (json!({ "kind": "python:3", "code": base64(b"\x7fELF") }), "zip archive"),
        (json!({ "kind": "blackbox", "image": "f", "code": "x" }), "not both"),
        (json!({ "kind": "blackbox", "code": base64(b"\x7fELF") }), "native:1 for a program"),
        (json!({ "kind": "blackbox" }), "has to name an image"),
    ] {
        let (status, answer) = daemon.ask("PUT", ACTION, Some(json!({ "exec": exec })));
        let error = answer["error"].as_str().unwrap();
        assert!(status == 400 && error.contains(part), "{exec}: {status} {error}");
    }
    for mib in [50, 100] {
        // The daemon may hang up before it has read everything.
        let code = "x".repeat(mib << 20);
        let sent = std::panic::catch_unwind(|| daemon.ask("PUT", ACTION, Some(python(&code))));
        assert!(sent.is_err() || sent.unwrap().0 == 413, "{mib}");
    }
    let parameters = json!([{ "key": "a", "value": "x".repeat(2 << 20) }]);
    assert_eq!(daemon.ask("PUT", ACTION, Some(json!({ "parameters": parameters }))).0, 413);
    assert_eq!(daemon.ask("GET", ACTION, None).0, 404);
    has_files(directory, 0);
    // Nearly as much as there may be.
    let code = stored(&[("__main__.py", &vec![b'#'; 12_000_000])]);
    put(&daemon, python(&code));
    assert!(daemon.ask("GET", ACTION, None).1["exec"]["code"] == code);
}

#[test]
fn of_hundreds_of_versions_one_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let daemon = daemon(directory);
    for version in 1..=300 {
        let action = put(&daemon, python(&format!("version = {version}")));
        assert_eq!(action["version"], format!("0.0.{version}"));
    }
    assert_eq!(daemon.ask("GET", ACTION, None).1["exec"]["code"], "version = 300");
    has_files(directory, 1);
}

#[test]
fn of_updates_at_once_the_last_one_counts() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let daemon = daemon(directory);
    let answers = std::thread::scope(|scope| {
        let put = |number: usize| {
            let code = format!("{}# {number}", "x = 1\n".repeat(40_000));
            (put(&daemon, python(&code))["version"].as_str().unwrap().to_owned(), code)
        };
        let threads: Vec<_> = (0..12).map(|number| scope.spawn(move || put(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<BTreeMap<_, _>>()
    });
    assert_eq!(answers.len(), 12, "each has a version of its own");
    let last = daemon.ask("GET", ACTION, None).1;
    assert_eq!(last["version"], "0.0.12");
    assert!(last["exec"]["code"] == *answers["0.0.12"]);
    has_files(directory, 1);
    // A new action has exactly one who made it.
    let path = "/namespaces/_/actions/g";
    let made = std::thread::scope(|scope| {
        let put = |number: usize| daemon.ask("PUT", path, Some(python(&format!("# {number}")))).0;
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || put(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(made.iter().filter(|status| **status == 200).count(), 1, "{made:?}");
    has_files(directory, 2);
}

#[test]
fn code_takes_no_more_of_the_disk_than_it_may() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    empty_runtimes(&directory.join("build"));
    let configuration = format!("{NO_VM}actions_disk = \"1M\"\n");
    let daemon = Daemon::start_in(directory, &directory.join("build"), &configuration, &[]);
    let code = |kib: usize| python(&"x".repeat(kib << 10));
    for kib in [248, 249, 250] {
        let path = format!("/namespaces/_/actions/other-{kib}");
        assert_eq!(daemon.ask("PUT", &path, Some(code(kib))).0, 200);
    }
    put(&daemon, code(200));
    let update = |kib| daemon.ask("PUT", &format!("{ACTION}?overwrite=true"), Some(code(kib)));
    let (status, refused) = update(199);
    let error = refused["error"].as_str().unwrap();
    assert!(status == 507 && error.contains("may take 1 MiB"), "{status} {error}");
    let length = daemon.ask("GET", ACTION, None).1["exec"]["code"].as_str().unwrap().len();
    assert_eq!(length, 200 << 10);
    put(&daemon, code(50));
    has_files(directory, 4);
    put(&daemon, code(199));
}

/// Whether drives can be made here.
fn makes_drives() -> bool {
    let works = |command: &[&str]| {
        let output = Command::new(command[0]).args(&command[1..]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let namespace = ["bwrap", "--unshare-user", "--ro-bind", "/", "/", "true"];
    let makes = works(&namespace) && works(&["sh", "-c", "command -v mkfs.erofs"]);
    if !makes {
        skip("drives of code need bubblewrap, user namespaces and erofs-utils");
    }
    makes
}

/// Bytes that cannot be packed.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// An archive that is large enough for a drive, with more files.
fn large(more: &[(&str, &[u8])]) -> String {
    let noise = noise(1_000_000);
    let files = [("__main__.py", b"def main(a): return a".as_slice()), ("noise", noise.as_slice())];
    stored(&[&files[..], more].concat())
}

/// The drives in a state directory.
fn drives(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join("state/code-drives")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn large_code_has_a_drive_for_as_long_as_it_is_there() {
    if !makes_drives() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let mut daemon = daemon(directory);
    put(&daemon, python("def main(a): return a"));
    assert!(drives(directory).is_empty());
    let code = large(&[]);
    put(&daemon, python(&code));
    let made = drives(directory);
    let [place] = &made[..] else { panic!("{made:?}") };
    let drive = place.join("code.erofs");
    let is_whole = || {
        let bytes = fs::read(&drive).unwrap();
        // What erofs begins with.
        bytes.len() > 1_000_000 && bytes[1024..1028] == 0xe0f5_e1e2_u32.to_le_bytes()
    };
    assert!(is_whole());
    assert!(!place.join("work").exists());
    // It is the same for another action, and after a restart.
    let number = || fs::metadata(&drive).unwrap().ino();
    let first = number();
    assert_eq!(daemon.ask("PUT", "/namespaces/_/actions/g", Some(python(&code))).0, 200);
    daemon.stop();
    daemon = self::daemon(directory);
    assert_eq!((drives(directory), number()), (made.clone(), first));
    assert_eq!(daemon.ask("GET", ACTION, None).1["problem"], Value::Null);
    // One that is missing, changed or not finished is made again.
    let breaks: [&dyn Fn(); 3] =
        [&|| fs::remove_dir_all(place).unwrap(), &|| fs::write(&drive, "other").unwrap(), &|| {
            fs::rename(place, place.with_file_name("7.new")).unwrap()
        }];
    for break_it in breaks {
        daemon.stop();
        break_it();
        daemon = self::daemon(directory);
        assert!(is_whole());
        assert_eq!(drives(directory), made);
        assert_eq!(daemon.ask("GET", ACTION, None).1["problem"], Value::Null);
    }
    // One that is not said to be there is not made: the daemon before this one had none.
    daemon.stop();
    let state = directory.join("state/actions.json");
    let mut stored: Value = serde_json::from_slice(&fs::read(&state).unwrap()).unwrap();
    stored["version"] = 5.into();
    for action in stored["actions"].as_object_mut().unwrap().values_mut() {
        assert_eq!(action["code"].as_object_mut().unwrap().remove("drive"), Some(json!(true)));
    }
    fs::write(&state, stored.to_string()).unwrap();
    fs::remove_dir_all(place).unwrap();
    daemon = self::daemon(directory);
    assert_eq!(daemon.ask("GET", ACTION, None).1["problem"], Value::Null);
    assert!(drives(directory).is_empty());
    for name in [ACTION, "/namespaces/_/actions/g"] {
        let path = format!("{name}?overwrite=true");
        assert_eq!(daemon.ask("PUT", &path, Some(python(&code))).0, 200);
    }
    assert_eq!(drives(directory), made, "it was given again");
    put(&daemon, python("def main(a): return a"));
    assert_eq!(drives(directory), made, "another action has it");
    assert_eq!(daemon.ask("DELETE", "/namespaces/_/actions/g", None).0, 200);
    common::until("its end", || drives(directory).is_empty().then_some(()));
}

#[test]
fn of_a_large_archive_what_is_wrong_is_said_when_it_comes() {
    if !makes_drives() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    empty_runtimes(&directory.join("build"));
    let configuration = format!("{NO_VM}actions_disk = \"16M\"\n");
    let daemon = Daemon::start_in(directory, &directory.join("build"), &configuration, &[]);
    let mut leads_out = BASE64_STANDARD.decode(large(&[("xx/xxxxx", b"")])).unwrap();
    let stand_in = b"xx/xxxxx";
    while let Some(at) = leads_out.windows(stand_in.len()).position(|part| part == stand_in) {
        leads_out[at..at + stand_in.len()].copy_from_slice(b"../above");
    }
    let broken = [b"PK\x03\x04".as_slice(), &[7; 300_000]].concat();
    // It hides the reason, and looks like another one.
    let long_name = "No space left on device ".repeat(300);
    let zeros = vec![0; 5 << 20];
    // As it comes and as an archive it fits, but not twice unpacked beside that.
    let twice_as_large = large(&[("zeros", &zeros)]);
    for (code, right, part) in [
        (base64(&leads_out), 400, "\"../above\", which is not inside it"),
        (base64(&broken), 400, "The archive cannot be read"),
        (large(&[(&long_name, b"x")]), 400, "The archive's \"No space"),
        (twice_as_large, 507, "may take 16 MiB"),
    ] {
        let (status, refused) = daemon.ask("PUT", ACTION, Some(python(&code)));
        let error = refused["error"].as_str().unwrap();
        assert!(status == right && error.contains(part), "{status} {error}");
        common::until("nothing is left", || drives(directory).is_empty().then_some(()));
        has_files(directory, 0);
    }
    put(&daemon, python(&large(&[])));
}

#[test]
fn a_disk_that_runs_full_under_a_drive_leaves_the_version_that_there_is() {
    if !makes_drives() {
        return;
    }
    let disk = Disk::new(256 << 10);
    let directory = disk.path();
    let daemon = daemon(directory);
    put(&daemon, python("def main(a): return a"));
    let code = large(&[]);
    // There is room for the code as it comes, for the archive, and then for what is in it, but not for its drive as well.
    if !disk.fill(code.len() / 4096 + 300) {
        return skip("a small disk cannot be mounted: run this as root");
    }
    let update = || daemon.ask("PUT", &format!("{ACTION}?overwrite=true"), Some(python(&code)));
    let (status, refused) = update();
    let error = refused["error"].as_str().unwrap();
    assert!(status == 507 && error.contains("the disk of the state directory is full"), "{error}");
    assert_eq!(daemon.ask("GET", ACTION, None).1["version"], "0.0.1");
    has_files(directory, 1);
    common::until("nothing is left", || drives(directory).is_empty().then_some(()));
    disk.free();
    assert_eq!(update().1["version"], "0.0.2");
    assert_eq!(drives(directory).len(), 1);
}

#[test]
fn a_full_disk_leaves_the_version_that_there_is() {
    let disk = Disk::new(256 << 10);
    let directory = disk.path();
    let daemon = daemon(directory);
    let version = |number: usize| python(&format!("{}# {number}", "x = 1\n".repeat(200_000)));
    put(&daemon, version(1));
    if !disk.fill(0) {
        return skip("a small disk cannot be mounted: run this as root");
    }
    let update = || daemon.ask("PUT", &format!("{ACTION}?overwrite=true"), Some(version(2)));
    let (status, refused) = update();
    let error = refused["error"].as_str().unwrap();
    assert!(status == 507 && error.contains("the disk of the state directory is full"), "{error}");
    // Nor is there room for the list of actions, if the code is there already.
    let same = json!({ "limits": { "timeout": 5 } });
    assert_eq!(daemon.ask("PUT", &format!("{ACTION}?overwrite=true"), Some(same)).0, 507);
    let action = daemon.ask("GET", ACTION, None).1;
    assert!(action["exec"]["code"] == version(1)["exec"]["code"] && action["version"] == "0.0.1");
    has_files(directory, 1);
    disk.free();
    assert_eq!(update().1["version"], "0.0.2");
    has_files(directory, 1);
}

#[test]
fn a_daemon_killed_in_the_middle_has_either_version_whole() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let mut daemon = daemon(directory);
    let version = |round: u64| {
        let code = stored(&[("__main__.py", &vec![round as u8; 2_000_000])]);
        json!({ "exec": { "kind": "python:3", "code": code } })
    };
    put(&daemon, version(0));
    let mut current = 0;
    for round in 1..=10 {
        let sent = std::thread::scope(|scope| {
            let daemon = &daemon;
            let sending = scope.spawn(move || {
                let path = format!("{ACTION}?overwrite=true");
                std::panic::catch_unwind(|| daemon.ask("PUT", &path, Some(version(round))))
            });
            // At times from before the request until after its answer.
            std::thread::sleep(Duration::from_millis(30 * round));
            daemon.signal("KILL");
            sending.join().unwrap()
        });
        daemon.child.wait().unwrap();
        daemon = self::daemon(directory);
        let (status, action) = daemon.ask("GET", ACTION, None);
        assert_eq!((status, &action["problem"]), (200, &Value::Null), "{round}");
        let code = &action["exec"]["code"];
        if sent.is_ok_and(|(status, _)| status == 200) {
            assert!(*code == version(round)["exec"]["code"], "{round}: it was answered");
        }
        current =
            [current, round].into_iter().find(|at| *code == version(*at)["exec"]["code"]).unwrap();
        has_files(directory, 1);
    }
    daemon.stop();

    // Code that is changed or missing is not run.
    let code = fs::read_dir(directory.join("state/code")).unwrap().next().unwrap().unwrap().path();
    fs::write(&code, "other").unwrap();
    let daemon = self::daemon(directory);
    let problem = daemon.ask("GET", ACTION, None).1["problem"].as_str().unwrap().to_owned();
    assert!(problem.contains("missing or was changed"), "{problem}");
    assert_eq!(daemon.ask("POST", &format!("{ACTION}?blocking=true"), None).0, 503);
    put(&daemon, version(1));
    assert_eq!(daemon.ask("GET", ACTION, None).1["problem"], Value::Null);
}

#[test]
fn the_command_line_sees_what_a_file_is() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let daemon = daemon(directory);
    let file = |name: &str, content: &[u8]| {
        let path = directory.join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let said = |arguments: &[&str]| {
        let output = daemon.client(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let hello = file("hello.py", b"def main(a): return a");
    said(&["function", "create", "greet", &hello]);
    said(&["function", "create", &hello]);
    said(&["function", "create", "tool", &file("tool", b"\x7fELF\x02")]);
    let list = said(&["function", "list"]);
    for (name, kind) in [("greet", "python:3.11"), ("hello", "python:3.11"), ("tool", "native:1")] {
        let row = list.lines().find(|row| row.starts_with(name)).unwrap();
        assert!(row.contains(kind), "{list}");
    }
    let copy = directory.join("copy");
    let shown = said(&["function", "get", "tool", "--save-code", copy.to_str().unwrap()]);
    assert!(!shown.contains("\"code\"") && fs::read(copy).unwrap() == b"\x7fELF\x02");
    let refused = daemon.client(&["function", "create", "greet", &file("a.js", b"x")]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    // There is no --name beside a file.
    assert!(error.contains("--overwrite") && !error.contains("--name"), "{error}");
    let refused = daemon.client(&["function", "create", "other", &file("a.js", b"x")]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("runtimes/build.sh node"), "{error}");
    for (wrong, part) in [("helo.py", "helo.py: there is no such"), ("helo", "build it with")] {
        let refused = daemon.client(&["function", "create", "other", wrong]);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(error.contains(part) && error.lines().count() == 1, "{error}");
    }
    said(&["function", "create", "greet", &hello, "--overwrite", "--kind", "native"]);
    let noted = json!({ "annotations": [{ "key": "note", "value": 1 }] });
    assert_eq!(daemon.ask("PUT", "/namespaces/_/actions/greet?overwrite=true", Some(noted)).0, 200);
    for network in ["outbound", "none"] {
        let shown = ["function", "create", "greet", &hello, "--overwrite", "--network", network];
        let shown: Value = serde_json::from_str(&said(&shown)).unwrap();
        let network = json!({ "key": "network", "value": network });
        assert_eq!(shown["annotations"], json!([{ "key": "note", "value": 1 }, network]));
    }
}

#[test]
fn the_command_line_says_what_a_function_may_have_and_the_rest_stays() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let daemon = daemon(directory);
    let hello = directory.join("hello.py");
    fs::write(&hello, "def main(a): return a").unwrap();
    let hello = hello.to_str().unwrap();
    let create = |arguments: &[&str]| {
        let output = daemon.client(&[&["function", "create"][..], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let pair = |key: &str, value: Value| json!({ "key": key, "value": value });
    let limits = ["greet", hello, "--memory", "512M", "--timeout", "1.5"];
    let parameters = ["--param", "name", "you", "--param", "count", "3"];
    let mut right = create(&[&limits[..], &parameters[..]].concat());
    let limits = json!({ "memory": 512, "timeout": 1500, "concurrency": 1, "logs": 10 });
    assert_eq!(right["limits"], limits);
    let parameters = [pair("name", json!("you")), pair("count", json!(3))];
    assert_eq!(right["parameters"], json!(parameters));
    right["limits"]["memory"] = 1024.into();
    let larger = create(&["greet", hello, "--overwrite", "--memory", "1G"]);
    assert_eq!(
        (&larger["limits"], &larger["parameters"]),
        (&right["limits"], &right["parameters"])
    );
    right["parameters"] = json!([pair("name", json!("me"))]);
    let other = create(&["greet", hello, "--overwrite", "--param", "name", "me"]);
    assert_eq!((&other["limits"], &other["parameters"]), (&right["limits"], &right["parameters"]));
    assert_eq!(other["version"], "0.0.3");
    let several = create(&["f", "--calls-per-instance", "3"]);
    assert_eq!(several["limits"]["concurrency"], 3);
    let refused = ["function", "create", "other", hello, "--calls-per-instance", "2"];
    let refused = daemon.client(&refused);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("serves one call at a time"), "{error}");
}

/// Calls the action and waits for it as long as it takes.
fn call(daemon: &Daemon, arguments: Value) -> (u16, Value) {
    let (status, answer) = daemon.ask("POST", &format!("{ACTION}?blocking=true"), Some(arguments));
    if status != 202 {
        return (status, answer);
    }
    let id = answer["activationId"].as_str().unwrap();
    let path = format!("/namespaces/_/activations/{id}");
    common::until("the activation", || {
        let (status, activation) = daemon.ask("GET", &path, None);
        (status == 200).then_some((200, activation))
    })
}

#[track_caller]
fn result(activation: &Value) -> &Value {
    &activation["response"]["result"]
}

#[test]
fn python_runs_in_a_vm_and_an_update_is_a_new_version() {
    let Some(build) = build_with("runtime-python") else { return };
    let daemon = Daemon::start(&build, "");
    put(
        &daemon,
        python("def main(a):\n    print('log')\n    return {'hello': a['name'], 'version': 1}\n"),
    );
    let (_, activation) = call(&daemon, json!({ "name": "you" }));
    assert_eq!(result(&activation), &json!({ "hello": "you", "version": 1 }), "{activation}");
    assert!(activation["logs"][0].as_str().unwrap().ends_with("stdout: log"), "{activation}");
    assert!(activation["annotations"].to_string().contains("python:3.11"));
    put(&daemon, python("def main(a):\n    return {'version': 2}\n"));
    let (_, activation) = call(&daemon, json!({}));
    assert_eq!(
        (result(&activation), &activation["version"]),
        (&json!({ "version": 2 }), &json!("0.0.2"))
    );
    // A call that runs ends with the version that it began with.
    put(
        &daemon,
        python(
            "import time\ndef main(a):\n    print('began', flush=True)\n    time.sleep(a['s'])\n    return {'version': 3}\n",
        ),
    );
    assert_eq!(result(&call(&daemon, json!({ "s": 0 })).1)["version"], 3);
    let (_, accepted) = daemon.ask("POST", ACTION, Some(json!({ "s": 5 })));
    std::thread::sleep(Duration::from_secs(2));
    put(&daemon, python("def main(a):\n    return {'version': 4}\n"));
    assert_eq!(result(&call(&daemon, json!({})).1)["version"], 4);
    let id = accepted["activationId"].as_str().unwrap();
    let path = format!("/namespaces/_/activations/{id}");
    let ended = common::until("the call that ran", || {
        let (status, activation) = daemon.ask("GET", &path, None);
        (status == 200).then_some(activation)
    });
    assert_eq!((result(&ended)["version"].as_u64(), &ended["version"]), (Some(3), &json!("0.0.3")));
    // Code that cannot be loaded is the developer's error, and says so.
    put(&daemon, python("def main(:\n"));
    let (_, activation) = call(&daemon, json!({}));
    let error = result(&activation)["error"].as_str().unwrap();
    assert!(error.contains("SyntaxError: invalid syntax"), "{error}");
    assert_eq!(activation["response"]["status"], "action developer error");
    // What it wrote until then is in the logs.
    put(&daemon, python("print('loading', flush=True)\nraise ValueError('no')\n"));
    let (_, activation) = call(&daemon, json!({}));
    assert!(activation["logs"][0].as_str().unwrap().ends_with("stdout: loading"), "{activation}");
}

#[test]
fn node_serves_calls_beside_each_other_in_a_vm() {
    let Some(build) = build_with("runtime-node") else { return };
    let daemon = Daemon::start(&build, "");
    let code = "let meet;
        exports.main = ({ what, number }) => {
            if (what === 'wait') return new Promise((answer) => { meet = answer; });
            meet({ met: number });
            meet = undefined;
            return {};
        }";
    let body = |concurrency| {
        let exec = json!({ "kind": "nodejs:20", "code": code });
        json!({ "exec": exec, "limits": { "concurrency": concurrency } })
    };
    assert_eq!(put(&daemon, body(2))["limits"]["concurrency"], 2);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| call(&daemon, json!({ "what": "wait" })).1);
        // Until it waits, there is nobody to meet.
        common::until("the meeting", || {
            let (_, activation) = call(&daemon, json!({ "number": 7 }));
            (activation["response"]["status"] == "success").then_some(())
        });
        assert_eq!(result(&waits.join().unwrap()), &json!({ "met": 7 }));
    });
    let output = daemon.client(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let point = status["functions"][0]["point"].as_array().unwrap();
    let alive: u64 = point[..4].iter().filter_map(Value::as_u64).sum();
    assert_eq!(alive, 1, "{status}");
    // More than its VM could serve, or code that serves one, is refused.
    for (body, part) in [
        (body(101), "from 1 to 100"),
        (
            json!({ "exec": { "kind": "python:3", "code": "def main(a): return a" }, "limits": { "concurrency": 2 } }),
            "serves one call at a time",
        ),
    ] {
        let (status, refused) = daemon.ask("PUT", &format!("{ACTION}?overwrite=true"), Some(body));
        let error = refused["error"].as_str().unwrap();
        assert!(status == 400 && error.contains(part), "{status} {error}");
    }
}

#[test]
fn python_actions_in_a_sequence_pass_their_results_on_in_a_vm() {
    let Some(build) = build_with("runtime-python") else { return };
    let daemon = Daemon::start(&build, "");
    let make = |name: &str, body: Value| {
        let path = format!("/namespaces/_/actions/{name}");
        let (status, action) = daemon.ask("PUT", &path, Some(body));
        assert_eq!(status, 200, "{action}");
    };
    make("words", python("def main(a):\n    return {'words': a['text'].split()}\n"));
    let mut count = python("def main(a):\n    return {'count': len(a['words']) + a['more']}\n");
    count["parameters"] = json!([{ "key": "more", "value": 10 }]);
    make("count", count);
    let components = json!(["/_/words", "/_/count"]);
    put(&daemon, json!({ "exec": { "kind": "sequence", "components": components } }));
    let (_, whole) = call(&daemon, json!({ "text": "one two three" }));
    assert_eq!(result(&whole), &json!({ "count": 13 }), "{whole}");
    assert_eq!(whole["logs"].as_array().unwrap().len(), 2, "{whole}");
    // The first one fails.
    let (_, whole) = call(&daemon, json!({}));
    assert_eq!(whole["logs"].as_array().unwrap().len(), 1, "{whole}");
    assert_eq!(whole["response"]["success"], false, "{whole}");

    // Whoever waits for it goes away between the two: it goes on.
    let slow =
        "import time\ndef main(a):\n    time.sleep(a['seconds'])\n    return {'words': ['slow']}\n";
    make("slow", python(slow));
    let components = json!(["/_/slow", "/_/count"]);
    put(&daemon, json!({ "exec": { "kind": "sequence", "components": components } }));
    let counted = || {
        let path = "/namespaces/_/activations?name=count&count=true";
        daemon.ask("GET", path, None).1["activations"].as_u64().unwrap()
    };
    let before = counted();
    let body = json!({ "seconds": 3 }).to_string();
    let address = daemon.url.strip_prefix("http://").unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /api/v1{ACTION}?blocking=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\nContent-Length: {}\r\n\r\n",
        daemon.authorization,
        body.len()
    );
    client.write_all((head + &body).as_bytes()).unwrap();
    common::until("its call", || {
        let (_, shown) = daemon.ask("GET", "/namespaces/_", None);
        (shown["calls"] == 1).then_some(())
    });
    drop(client);
    common::until("the second one", || (counted() == before + 1).then_some(()));

    // The namespace goes away before the first one has ended: so does the sequence.
    assert_eq!(daemon.ask("PUT", "/namespaces/acme", None).0, 201);
    let make = |name: &str, body: Value| {
        let (status, made) =
            daemon.ask("PUT", &format!("/namespaces/acme/actions/{name}"), Some(body));
        assert_eq!(status, 200, "{made}");
    };
    make("slow", python(slow));
    make("s", json!({ "exec": { "kind": "sequence", "components": ["/_/slow", "/_/slow"] } }));
    let arguments = json!({ "seconds": 600 });
    assert_eq!(daemon.ask("POST", "/namespaces/acme/actions/s", Some(arguments)).0, 202);
    assert_eq!(daemon.ask("DELETE", "/namespaces/acme?force=true", None).0, 200);
    common::until("its end", || {
        (daemon.ask("GET", "/namespaces/acme", None).0 == 404).then_some(())
    });
}

/// A zip archive of these files.
fn archive(files: &[(&str, &[u8])]) -> String {
    archive_with(files, SimpleFileOptions::default())
}

/// One that is not compressed, which takes a while here.
fn stored(files: &[(&str, &[u8])]) -> String {
    archive_with(files, SimpleFileOptions::default().compression_method(CompressionMethod::Stored))
}

fn archive_with(files: &[(&str, &[u8])], options: SimpleFileOptions) -> String {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        let mode = if *name == "exec" { 0o755 } else { 0o644 };
        writer.start_file(*name, options.unix_permissions(mode)).unwrap();
        writer.write_all(content).unwrap();
    }
    base64(writer.finish().unwrap().get_ref())
}

/// What this action answers to a first call in a VM.
#[track_caller]
fn first_answer(daemon: &Daemon, exec: Value, arguments: Value) -> Value {
    put(daemon, json!({ "exec": exec }));
    let (_, activation) = call(daemon, arguments);
    result(&activation).clone()
}

#[test]
fn archives_with_dependencies_run_in_a_vm() {
    let Some(build) = build_with("runtime-python") else { return };
    if build_with("runtime-node").is_none() {
        return;
    }
    let daemon = Daemon::start(&build, "");
    let code = archive(&[
        ("__main__.py", b"import dep\ndef main(a):\n    return {'twice': dep.twice(a['x'])}\n"),
        ("dep/__init__.py", b"def twice(x):\n    return 2 * x\n"),
    ]);
    let exec = json!({ "kind": "python:3", "code": code });
    assert_eq!(first_answer(&daemon, exec, json!({ "x": 21 })), json!({ "twice": 42 }));
    let code = archive(&[
        ("index.js", b"const { twice } = require('dep'); exports.main = ({ x }) => ({ twice: twice(x), node: process.version });"),
        ("node_modules/dep/index.js", b"exports.twice = (x) => 2 * x;"),
    ]);
    let exec = json!({ "kind": "nodejs:default", "code": code });
    let answer = first_answer(&daemon, exec, json!({ "x": 21 }));
    assert_eq!(answer["twice"], 42, "{answer}");
    assert!(answer["node"].as_str().unwrap().starts_with("v20."), "{answer}");
    // More than any request to an instance, and what an instance writes beside it is its own.
    let large = noise(20_000_000);
    let code = stored(&[
        (
            "__main__.py",
            b"import os
import dep.twice
count = 0
def main(a):
    global count
    count += 1
    with open('large', 'ab') as large:
        large.write(b'x')
    return {'bytes': os.path.getsize('large'), 'twice': dep.twice.twice(count), 'in': os.getcwd()}
",
        ),
        ("dep/twice.py", b"def twice(x):\n    return 2 * x\n"),
        ("large", &large),
    ]);
    let exec = json!({ "kind": "python:3", "code": code });
    let right = json!({ "bytes": large.len() + 1, "twice": 2, "in": "/action" });
    assert_eq!(first_answer(&daemon, exec.clone(), json!({})), right);
    // An instance of the next version has it as it came.
    assert_eq!(first_answer(&daemon, exec, json!({})), right);
    let code = stored(&[
        ("package.json", b"{ \"main\": \"lib/start.js\" }"),
        ("lib/start.js", b"const { twice } = require('dep'); exports.main = ({ x }) => ({ twice: twice(x), in: __dirname });"),
        ("node_modules/dep/index.js", b"exports.twice = (x) => 2 * x;"),
        ("node_modules/dep/data", &large[..1_000_000]),
    ]);
    let exec = json!({ "kind": "nodejs:20", "code": code });
    let answer = first_answer(&daemon, exec, json!({ "x": 21 }));
    assert_eq!(answer, json!({ "twice": 42, "in": "/action/lib" }));
    let exec = json!({ "kind": "nodejs:20", "code": "const main = async () => ({ ok: 1 })" });
    assert_eq!(first_answer(&daemon, exec, json!({})), json!({ "ok": 1 }));
}

#[test]
fn a_static_program_runs_in_a_vm() {
    let Some(build) = build_with("runtime-native") else { return };
    if Command::new("go").arg("version").output().is_err() {
        return skip("there is no go: scripts/install-dependencies.sh examples");
    }
    let source = r#"package main
import ("bufio"; "fmt"; "os"; "strings")
func main() {
	calls := bufio.NewReader(os.Stdin)
	for {
		line, err := calls.ReadString('\n')
		if err != nil { return }
		fmt.Fprintf(os.NewFile(3, "answers"), "{\"got\": %s}\n", strings.TrimSpace(line))
	}
}"#;
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join("hello.go"), source).unwrap();
    let mut go = Command::new("go");
    go.args(["build", "-o", "exec", "hello.go"]).current_dir(work.path());
    go.envs([("CGO_ENABLED", "0"), ("GOTOOLCHAIN", "local"), ("GO111MODULE", "off")]);
    assert!(go.status().unwrap().success());
    let program = fs::read(work.path().join("exec")).unwrap();
    let daemon = Daemon::start(&build, "");
    assert!(program.len() > 1_000_000, "it has a drive");
    for code in [base64(&program), archive(&[("exec", &program)])] {
        answers_what_it_gets(&daemon, code);
    }
}

/// Has a program that answers with what it gets do so.
#[track_caller]
fn answers_what_it_gets(daemon: &Daemon, code: String) {
    let exec = json!({ "kind": "native:1", "code": code });
    let answer = first_answer(daemon, exec, json!({ "x": 1 }));
    assert_eq!(answer["got"]["value"], json!({ "x": 1 }), "{answer}");
    assert!(answer["got"]["activation_id"].is_string(), "{answer}");
}

#[test]
fn a_program_that_is_not_static_runs_in_a_vm() {
    let Some(build) = build_with("runtime-native") else { return };
    let source = r#"use std::{fs::File, io::{BufRead, Write, stdin}, os::fd::FromRawFd};
fn main() {
    let mut answers = unsafe { File::from_raw_fd(3) };
    for call in stdin().lock().lines() {
        let answer = format!("{{\"got\": {}}}\n", call.unwrap());
        answers.write_all(answer.as_bytes()).unwrap();
    }
}"#;
    let work = tempfile::tempdir().unwrap();
    let [hello, exec] = ["hello.rs", "exec"].map(|name| work.path().join(name));
    fs::write(&hello, source).unwrap();
    // The toolchain of this directory is what the tests are built with.
    let mut rustc = Command::new("rustc");
    rustc.args(["-O", "--edition", "2021", "-C", "strip=symbols", "-o"]).arg(&exec).arg(&hello);
    assert!(rustc.status().unwrap().success());
    let program = fs::read(exec).unwrap();
    let interpreter = b"/lib64/ld-linux-x86-64.so.2";
    assert!(program.windows(interpreter.len()).any(|part| part == interpreter), "it is static");
    answers_what_it_gets(&Daemon::start(&build, ""), base64(&program));
}

#[test]
fn a_jar_runs_in_a_vm() {
    let Some(build) = build_with("runtime-java") else { return };
    let gson = build.join("functions/gson.jar");
    if !gson.exists() || Command::new("javac").arg("-version").output().is_err() {
        return skip("there is no JDK: make runtimes");
    }
    let source = "import com.google.gson.JsonObject;
        public class Hello {
            public static JsonObject main(JsonObject arguments) {
                JsonObject answer = new JsonObject();
                answer.add(\"hello\", arguments.get(\"name\"));
                return answer;
            }
        }";
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join("Hello.java"), source).unwrap();
    let mut javac = Command::new("javac");
    javac.args(["--release", "17", "Hello.java", "-cp"]).arg(&gson).current_dir(work.path());
    assert!(javac.status().unwrap().success());
    let class = fs::read(work.path().join("Hello.class")).unwrap();
    let daemon = Daemon::start(&build, "");
    let code = archive(&[("Hello.class", &class)]);
    let (_, refused) = daemon.ask(
        "PUT",
        ACTION,
        Some(json!({ "exec": { "kind": "java:default", "code": code } })),
    );
    assert!(refused["error"].as_str().unwrap().contains("exec.main is missing"), "{refused}");
    let exec = json!({ "kind": "java:default", "code": code, "main": "Hello" });
    assert_eq!(first_answer(&daemon, exec, json!({ "name": "you" })), json!({ "hello": "you" }));
}

#[test]
fn code_that_never_loads_or_does_not_fit_is_the_developer_s_error() {
    let Some(build) = build_with("runtime-python") else { return };
    // The same runtime, with less patience.
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().join("build");
    fs::create_dir_all(own.join("images")).unwrap();
    for file in [
        "kernel",
        "initramfs.cpio",
        "images/html.erofs",
        "images/html.toml",
        "images/runtime-python.erofs",
    ] {
        std::os::unix::fs::symlink(build.join(file), own.join(file)).unwrap();
    }
    let definition = fs::read_to_string(build.join("images/runtime-python.toml")).unwrap();
    let impatient = definition.replace("init_timeout_seconds = 120", "init_timeout_seconds = 15");
    assert_ne!(impatient, definition);
    fs::write(own.join("images/runtime-python.toml"), impatient).unwrap();
    let daemon = Daemon::start_in(directory.path(), &own, "", &[]);
    let error = |exec: Value| {
        put(&daemon, json!({ "exec": exec }));
        let (_, activation) = call(&daemon, json!({}));
        assert_eq!(activation["response"]["status"], "action developer error", "{activation}");
        result(&activation)["error"].as_str().unwrap().to_owned()
    };
    let endless = "import time\ntime.sleep(1000)\ndef main(a): return a";
    let said = error(json!({ "kind": "python:3", "code": endless }));
    assert!(said.ends_with("/init was not answered within 15 s"), "{said}");
    // What follows is answered, however long that takes.
    fs::write(own.join("images/runtime-python.toml"), definition).unwrap();
    let said = error(json!({ "kind": "python:3", "code": "x = 1" }));
    assert!(said.ends_with("there is no function main"), "{said}");
    // Two hundred MiB of zeros.
    let pack = "import sys, zipfile\nwith zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED) as z:\n z.writestr('zeros', bytes(200 << 20))";
    let bomb = directory.path().join("bomb.zip");
    let mut python = Command::new("python3");
    assert!(python.args(["-c", pack]).arg(&bomb).status().unwrap().success());
    let said = error(json!({ "kind": "python:3", "code": base64(&fs::read(bomb).unwrap()) }));
    assert!(said.contains("does not fit into the instance's files"), "{said}");
    let said = error(json!({ "kind": "python:3", "code": base64(b"PK\x03\x04 and no more") }));
    assert!(said.contains("The archive cannot be read"), "{said}");
}
