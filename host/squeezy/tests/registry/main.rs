//! Images from a real registry, with TLS and a password. One of them has a VM.

mod called;
#[path = "../common/certificate.rs"]
mod certificate;
#[path = "../common/mod.rs"]
mod common;
#[path = "../../../../scripts/disk.rs"]
mod disk;
mod full_disk;
mod hostile;
mod private;
mod server;

use common::{Daemon, NO_VM, base64, empty_build, until};
use serde_json::{Value, json};
use server::{PASSWORD, Registry, moment, succeeded};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tempfile::TempDir;

const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const PROGRAM: &str = "entry('bin/serve', b'#!/bin/sh\\n', mode=0o755)";

/// A directory for a daemon, with the scripts of this checkout.
pub struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        empty_build(&place.path("build"));
        std::os::unix::fs::symlink(Path::new(CHECKOUT).join("guest"), place.path("guest")).unwrap();
        place
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn daemon(&self, configuration: &str) -> Daemon {
        let configuration = format!("{NO_VM}{configuration}");
        Daemon::start_in(self.0.path(), &self.path("build"), &configuration, &[])
    }

    /// The definition of the image that an action has.
    fn definition(&self, daemon: &Daemon, digest: &str) -> toml::Table {
        let pulled = fs::read_to_string(self.path("state/pulled.json")).unwrap();
        let pulled: Value = serde_json::from_str(&pulled).unwrap();
        let all = pulled["images"].as_array().unwrap();
        let image = all.iter().find(|image| image["digest"] == digest).unwrap();
        let blob = image["blob"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        assert!(daemon.ask("GET", "/namespaces/_/images", None).0 == 200);
        let file = self.path("state/pinned").join(blob).join("image.toml");
        fs::read_to_string(file).unwrap().parse().unwrap()
    }

    fn count(&self, directory: &str) -> usize {
        fs::read_dir(self.path(directory)).map_or(0, Iterator::count)
    }

    /// Nothing is left of pulls, and so many images are kept.
    #[track_caller]
    fn has(&self, images: usize) {
        assert_eq!(self.count("state/pulls"), 0);
        until("images", || (self.count("state/pinned") == images).then_some(()));
    }
}

fn pull(daemon: &Daemon, image: &str) -> (u16, Value) {
    daemon.ask("POST", "/namespaces/_/images", Some(json!({ "image": image })))
}

fn put(daemon: &Daemon, name: &str, image: &str) -> (u16, Value) {
    let body = json!({ "exec": { "kind": "blackbox", "image": image } });
    daemon.ask("PUT", &format!("/namespaces/_/actions/{name}?overwrite=true"), Some(body))
}

#[track_caller]
fn refused((status, answer): (u16, Value), wanted: u16, part: &str) {
    let error = answer["error"].as_str().unwrap_or_default();
    assert_eq!(status, wanted, "{answer}");
    assert!(error.contains(part) && error.lines().count() <= 2 && error.len() < 600, "{error}");
    assert!(!error.contains(PASSWORD) && !error.contains("/state"), "{error}");
}

#[test]
fn an_action_keeps_to_the_digest_that_its_tag_meant() {
    let (registry, place) = (Registry::start(), Place::new());
    let mut daemon = place.daemon(&registry.configuration());
    let more = "Entrypoint=['serve', '-x'], Env=['A=1'], WorkingDir='/app', ExposedPorts={'9000/tcp': {}}, User='33'";
    let image = registry.push("team/thing:1", &format!("[layer({PROGRAM})]"), more);

    let (status, made) = put(&daemon, "f", &image);
    assert_eq!((status, &made["exec"]["image"]), (200, &json!(image)), "{made}");
    let first = made["exec"]["digest"].as_str().unwrap().to_owned();
    let definition = place.definition(&daemon, &first);
    assert_eq!(definition["command"].as_array().unwrap()[0].as_str(), Some("/bin/serve"));
    assert_eq!(definition["working_directory"].as_str(), Some("/app"));
    assert_eq!(definition["port"].as_integer(), Some(9000));
    assert_eq!(definition["environment"]["A"].as_str(), Some("1"));
    place.has(1);

    // What the tag means later changes nothing, not even when the action is changed otherwise or the daemon restarts.
    registry.push(
        "team/thing:1",
        "[layer(entry('bin/other', b'#!/bin/sh\\n', mode=0o755))]",
        "Cmd=['other']",
    );
    let path = "/namespaces/_/actions/f?overwrite=true";
    let limits = json!({ "limits": { "timeout": 5000 } });
    assert_eq!(daemon.ask("PUT", path, Some(limits)).1["exec"]["digest"], first);
    daemon.stop();
    let daemon = place.daemon(&registry.configuration());
    let (_, shown) = daemon.ask("GET", "/namespaces/_/actions/f", None);
    assert_eq!((&shown["exec"]["digest"], &shown["problem"]), (&json!(first), &Value::Null));
    // Asked for again, the tag means the new one; the digest still is the old one, without the registry being asked.
    let (_, second) = pull(&daemon, &image);
    assert_ne!(second["digest"], first);
    assert_eq!(second["actions"], json!([]));
    let by_digest = json!({ "exec": { "kind": "blackbox", "image": image, "digest": first } });
    assert_eq!(daemon.ask("PUT", path, Some(by_digest)).1["exec"]["digest"], first);
    place.has(2);
    let (_, now) = put(&daemon, "f", &image);
    assert_eq!(now["exec"]["digest"], second["digest"]);
    let command = place.definition(&daemon, second["digest"].as_str().unwrap())["command"].clone();
    assert_eq!(command.as_array().unwrap()[0].as_str(), Some("/bin/other"));
}

#[test]
fn the_operator_s_credentials_are_for_nobody_else() {
    let (registry, place) = (Registry::start(), Place::new());
    let daemon = place.daemon(&registry.configuration());
    let image = registry.push("private:1", &format!("[layer({PROGRAM})]"), "Cmd=['serve']");
    let (status, pulled) = pull(&daemon, &image);
    assert_eq!(status, 200, "{pulled}");
    let by_digest =
        format!("{}@{}", image.trim_end_matches(":1"), pulled["digest"].as_str().unwrap());
    assert_eq!(daemon.ask("PUT", "/namespaces/acme", None).0, 201);
    let of_acme = |image: &str| {
        daemon.ask("POST", "/namespaces/acme/images", Some(json!({ "image": image })))
    };
    // Neither by asking the registry, nor because it is here.
    refused(of_acme(&image), 502, "");
    refused(of_acme(&by_digest), 502, "");
    let exec = json!({ "exec": { "kind": "blackbox", "image": by_digest } });
    refused(daemon.ask("PUT", "/namespaces/acme/actions/f", Some(exec)), 502, "");
    assert_eq!(daemon.ask("GET", "/namespaces/acme/images", None), (200, json!([])));
    assert_eq!(pull(&daemon, &by_digest).0, 200);
    place.has(1);
}

#[test]
fn images_of_a_namespace_s_actions_have_a_bound() {
    let (registry, place) = (Registry::start(), Place::new());
    let daemon = place.daemon(&registry.configuration());
    let image = registry.push("thing:1", &format!("[layer({PROGRAM})]"), "Cmd=['serve']");
    let may_have = |image_mb: Value| {
        let quotas = json!({ "quotas": { "image_mb": image_mb } });
        let set = daemon.ask("PUT", "/namespaces/guest?overwrite=true", Some(quotas));
        assert_eq!(set.0, 200, "{}", set.1);
    };
    assert_eq!(pull(&daemon, &image).0, 200);
    may_have(json!(0));
    let other = registry.push("other:1", &format!("[layer({PROGRAM})]"), "Cmd=['serve']");
    refused(pull(&daemon, &other), 413, "The layers of the image have");
    refused(put(&daemon, "f", &image), 413, "The images of the namespace's actions would take");
    may_have(json!(1));
    assert_eq!(put(&daemon, "f", &image).0, 200);
    // The same one once more takes nothing.
    assert_eq!(put(&daemon, "g", &image).0, 200);
}

#[test]
fn images_of_dockers_form_and_of_several_machines_are_pulled() {
    let (registry, place) = (Registry::start(), Place::new());
    let daemon = place.daemon(&registry.configuration());
    registry.push("one:1", &format!("[layer({PROGRAM})]"), "Cmd=['serve']");
    let docker = registry.push_layout(&registry.path("layout"), "docker:1", &["--format", "v2s2"]);
    assert_eq!(pull(&daemon, &docker).0, 200);
    let list = "\
        ours = Layout(sys.argv[1], [layer(entry('bin/serve', b'#!/bin/sh\\n', mode=0o755))], Cmd=['serve'])\n\
        import shutil, json\n\
        other = Layout(sys.argv[1] + '-other', [layer(entry('other'))], Cmd=['other'], machine='arm64')\n\
        shutil.copytree(other.path / 'blobs', ours.path / 'blobs', dirs_exist_ok=True)\n\
        both = json.dumps({'schemaVersion': 2, 'mediaType': INDEX, 'manifests': [other.manifest, ours.manifest]})\n\
        ours.index([ours.blob(both.encode(), INDEX)])\n";
    let layout = registry.path("list");
    let mut python = Command::new("python3");
    python.arg("-c").arg(format!("import sys\nfrom oci_image import *\n{list}")).arg(&layout);
    python.env("PYTHONPATH", Path::new(CHECKOUT).join("guest/image/tests"));
    succeeded(python.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap());
    let several = registry.push_layout(&layout, "several:1", &["--all"]);
    assert_eq!(pull(&daemon, &several).0, 200);
    let only_other =
        registry.push("other:1", &format!("[layer({PROGRAM})]"), "machine='arm64', Cmd=['serve']");
    refused(pull(&daemon, &only_other), 400, "for linux on arm64");
    place.has(2);
}

#[test]
fn what_cannot_be_pulled_says_why_and_leaves_nothing() {
    let (mut registry, place) = (Registry::start(), Place::new());
    let daemon = place.daemon(&registry.configuration());
    let image = registry.push("thing:1", &format!("[layer({PROGRAM})]"), "Cmd=['serve']");
    let host = registry.host.clone();
    refused(pull(&daemon, &format!("{host}/none:1")), 502, "has no such image");
    refused(
        pull(&daemon, &format!("{host}/thing@sha256:{}", "0".repeat(64))),
        502,
        "has no such image",
    );
    refused(pull(&daemon, "docker.io/library/alpine"), 400, "may not be pulled: the registries");
    refused(pull(&daemon, &format!("{host}/Thing:1")), 400, "is not a reference");
    refused(pull(&daemon, "--help"), 400, "is not a reference");
    refused(put(&daemon, "f", &format!("{host}/none:1")), 502, "has no such image");
    refused(
        daemon.ask("POST", "/namespaces/_/images", Some(json!({ "imag": 1 }))),
        400,
        "malformed",
    );
    let no_program = registry.push("empty:1", "[layer(entry('a'))]", "Cmd=['serve']");
    refused(pull(&daemon, &no_program), 400, "has no such program");

    // The wrong password, and then none.
    let right = fs::read_to_string(&registry.auth_file).unwrap();
    let wrong = right.replace(&base64(&format!("tester:{PASSWORD}")), &base64("tester:wrong"));
    fs::write(&registry.auth_file, wrong).unwrap();
    refused(pull(&daemon, &image), 502, "credentials");
    fs::write(&registry.auth_file, "{ \"auths\": {} }").unwrap();
    refused(pull(&daemon, &image), 502, "credentials");
    fs::write(&registry.auth_file, right.replace('}', "")).unwrap();
    refused(pull(&daemon, &image), 500, "its log says why");
    fs::write(&registry.auth_file, &right).unwrap();
    assert_eq!(pull(&daemon, &image).0, 200);
    registry.stop();
    refused(pull(&daemon, &format!("{host}/thing:2")), 502, "the daemon's log says more");
    place.has(1);
}

#[test]
fn a_registry_has_to_prove_who_it_is() {
    let (registry, place) = (Registry::start(), Place::new());
    let image = registry.push("thing:1", &format!("[layer({PROGRAM})]"), "Cmd=['serve']");
    let auth = format!("registry_auth = {:?}\n", registry.auth_file);
    let unknown = format!("{auth}registries = [{:?}]\n", registry.host);
    let mut daemon = place.daemon(&unknown);
    refused(pull(&daemon, &image), 502, "the daemon's log says more");
    daemon.says("certificate");
    daemon.stop();
    // One that is not listed is not asked, and gets no password, wherever it is.
    let mut daemon = place.daemon(&auth);
    refused(pull(&daemon, &image), 400, "lists no registry");
    daemon.stop();
    let plain =
        format!("{auth}registries = [{{ host = {:?}, plain_http = true }}]\n", registry.host);
    assert_eq!(pull(&place.daemon(&plain), &image).0, 200);
}

#[test]
fn the_password_is_nowhere_to_be_seen() {
    let (registry, place) = (Registry::start(), Place::new());
    let big = format!("[layer({PROGRAM}, entry('data', os.urandom(4_000_000)))]");
    let image = registry.push("thing:1", &big, "Cmd=['serve']");
    let mut command = common::serve(
        place.0.path(),
        &place.path("build"),
        &format!("{NO_VM}{}", registry.configuration()),
        &[],
    );
    let log = place.path("log");
    command.args(["--log", "trace"]).stderr(fs::File::create(&log).unwrap());
    let daemon = Daemon::spawn(command, place.0.path());
    let secrets = [PASSWORD.to_owned(), base64(&format!("tester:{PASSWORD}"))];
    let seen = std::thread::scope(|scope| {
        let pulling = scope.spawn(|| pull(&daemon, &image));
        let mut seen = 0;
        while !pulling.is_finished() {
            for process in fs::read_dir("/proc").unwrap().flatten() {
                for file in ["cmdline", "environ"] {
                    let bytes = fs::read(process.path().join(file)).unwrap_or_default();
                    let text = String::from_utf8_lossy(&bytes);
                    seen += u32::from(text.contains("skopeo"));
                    assert!(!secrets.iter().any(|secret| text.contains(secret)), "{text}");
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(pulling.join().unwrap().0, 200);
        seen
    });
    assert!(seen > 0);
    let said = fs::read_to_string(log).unwrap();
    assert!(!secrets.iter().any(|secret| said.contains(secret)));
    assert!(!place.path("state/pulls/0").exists());
}

#[test]
fn requests_for_the_same_image_share_one_pull() {
    let (registry, place) = (Registry::start(), Place::new());
    let daemon = place.daemon(&registry.configuration());
    let big = format!("[layer({PROGRAM}, entry('data', os.urandom(4_000_000)))]");
    let image = registry.push("thing:1", &big, "Cmd=['serve']");
    let most =
        std::thread::scope(|scope| {
            let pulls: Vec<_> = (0..6).map(|_| scope.spawn(|| pull(&daemon, &image))).collect();
            let mut most = 0;
            while pulls.iter().any(|pull| !pull.is_finished()) {
                let (_, list) = daemon.ask("GET", "/namespaces/_/images", None);
                let pulling =
                    list.as_array().unwrap().iter().filter(|image| image["pulling"].is_object());
                most = most.max(pulling.count());
                std::thread::sleep(Duration::from_millis(20));
            }
            let answers: Vec<_> = pulls.into_iter().map(|pull| pull.join().unwrap()).collect();
            assert!(answers.iter().all(
                |(status, answer)| *status == 200 && answer["digest"] == answers[0].1["digest"]
            ));
            most
        });
    assert_eq!(most, 1);
    place.has(1);
    daemon.says("pulled ");
    assert!(!daemon.has_said("pulled "));
}

#[test]
fn a_daemon_that_is_killed_during_a_pull_leaves_nothing() {
    let (registry, place) = (Registry::start(), Place::new());
    let big = format!(
        "[layer({PROGRAM}, entry('data', os.urandom(20_000_000)), directory('closed', mode=0))]"
    );
    let image = registry.push("thing:1", &big, "Cmd=['serve']");
    let mut daemon = place.daemon(&registry.configuration());
    let mut met = Vec::new();
    for step in ["fetching", "reading", "unpacking", "packing"] {
        let mut client = daemon.client_command(&["image", "pull", &image]);
        let mut client = client
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // A step may be over before it is seen, and the pull with it.
        while client.try_wait().unwrap().is_none() {
            let (_, list) = daemon.ask("GET", "/namespaces/_/images", None);
            if list[0]["pulling"]["step"] == step {
                met.push(step);
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        daemon.signal("KILL");
        daemon.child.wait().unwrap();
        let _ = client.wait();
        daemon = place.daemon(&registry.configuration());
        until("nothing to be left", || (place.count("state/pulls") == 0).then_some(()));
        let (_, list) = daemon.ask("GET", "/namespaces/_/images", None);
        if list != json!([]) {
            let (status, _) = daemon.ask(
                "DELETE",
                &format!("/namespaces/_/images/{}", list[0]["digest"].as_str().unwrap()),
                None,
            );
            assert_eq!(status, 200);
        }
        place.has(0);
    }
    assert!(met.len() >= 2, "it was killed in {met:?} only");
    // Nobody is left who would go on.
    moment();
    let skopeo = Command::new("pgrep").args(["-f", &registry.host]).output().unwrap();
    let left = String::from_utf8_lossy(&skopeo.stdout).lines().count();
    assert_eq!((left, place.count("state/pulls")), (0, 0));
    assert_eq!(pull(&daemon, &image).0, 200);
}

#[test]
fn images_are_listed_shown_and_removed_by_the_command_line() {
    let (registry, place) = (Registry::start(), Place::new());
    let daemon = place.daemon(&registry.configuration());
    let image = registry.push("team/thing:1", &format!("[layer({PROGRAM})]"), "Cmd=['serve']");
    let run = |arguments: &[&str]| {
        let output = daemon.client(arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.success(), text, String::from_utf8(output.stderr).unwrap())
    };
    let (done, pulled, error) = run(&["image", "pull", &image]);
    assert!(done, "{error}");
    let pulled: Value = serde_json::from_str(&pulled).unwrap();
    let digest = pulled["digest"].as_str().unwrap();
    assert!(run(&["function", "create", "f", "--image", &image]).0);
    let (_, table, _) = run(&["image", "list"]);
    let row = table.lines().nth(1).unwrap();
    assert!(
        row.contains("team/thing") && row.contains(&digest[..19]) && row.ends_with('f'),
        "{table}"
    );
    let (_, shown, _) = run(&["image", "show", digest]);
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["actions"], json!(["f"]));
    let (done, _, error) = run(&["image", "remove", &image]);
    assert!(!done && error.contains("used by f") && error.contains("409"), "{error}");
    place.has(1);
    assert!(run(&["function", "delete", "f"]).0);
    // It is kept until somebody needs the space.
    place.has(1);
    until("it to be free", || run(&["image", "remove", digest]).0.then_some(()));
    place.has(0);
    for command in ["show", "remove"] {
        let (done, _, error) = run(&["image", command, &image]);
        assert!(!done && error.contains("404"), "{error}");
    }
}
