//! Functions from real OCI layouts with clashing names, built with the real scripts: each runs its
//! own program, whatever else is built, refused or killed. Needs root and the tools that convert
//! OCI images.

mod common;

use common::{Daemon, NO_VM, empty_build};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};
use tempfile::TempDir;

const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A copy of the scripts, with its own build directory and cache.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(place.path("guest")).unwrap();
        for (from, to) in [("guest/image", "guest/image"), ("scripts", "scripts")] {
            let mut copy = Command::new("cp");
            copy.arg("-r").arg(Path::new(CHECKOUT).join(from)).arg(place.path(to));
            assert!(copy.status().unwrap().success());
        }
        empty_build(&place.path("build"));
        place
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Creates a layout `FOLDER/same` whose program is `/bin/PROGRAM`.
    fn layout(&self, folder: &str, program: &str) -> PathBuf {
        let path = self.path(folder).join("same");
        fs::create_dir_all(self.path(folder)).unwrap();
        let make = "import sys\n\
             from oci_image import Layout, entry, layer\n\
             path, name = sys.argv[1:]\n\
             Layout(path, [layer(entry('bin/' + name, b'#!/bin/sh\\n', mode=0o755))], Cmd=[name])\n";
        let mut python = Command::new("python3");
        python.args(["-c", make]).arg(&path).arg(program);
        python.env("PYTHONPATH", Path::new(CHECKOUT).join("guest/image/tests"));
        python.env("PYTHONDONTWRITEBYTECODE", "1");
        assert!(python.status().unwrap().success());
        path
    }

    fn daemon(&self) -> Daemon {
        Daemon::start_in(self.0.path(), &self.path("build"), NO_VM, &[])
    }

    /// `squeezy function create`, as a command to run.
    fn create(&self, daemon: &Daemon, layout: &Path, arguments: &[&str]) -> Command {
        let mut command = daemon.client_command(&["function", "create"]);
        command.arg(layout).args(arguments).env("SQUEEZY_BUILD", self.path("build"));
        command.env("SQUEEZY_CACHE", self.path("cache"));
        command
    }

    /// The program in the image that is pinned for an action.
    fn program(&self, daemon: &Daemon, action: &str) -> String {
        let (status, action) = daemon.ask("GET", &format!("/namespaces/_/actions/{action}"), None);
        assert_eq!(status, 200, "{action}");
        assert_eq!(action["problem"], Value::Null, "{action}");
        let digest = action["exec"]["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let pinned = self.path("state/pinned").join(digest);
        let definition = fs::read_to_string(pinned.join("image.toml")).unwrap();
        let definition: toml::Table = definition.parse().unwrap();
        let program = definition["command"][0].as_str().unwrap().to_owned();
        // The program is in the image too.
        let files = self.path("files");
        let mut extract = Command::new("fsck.erofs");
        extract.arg(format!("--extract={}", files.display())).arg(pinned.join("image.erofs"));
        let extracted = extract.output().unwrap();
        assert!(extracted.status.success(), "{extracted:?}");
        assert!(files.join(program.trim_start_matches('/')).is_file(), "{program}");
        fs::remove_dir_all(files).unwrap();
        program
    }

    /// Waits until as many images are pinned. One is removed when the last call of its action lets go of it.
    #[track_caller]
    fn has_pinned(&self, right: usize) {
        let count = || fs::read_dir(self.path("state/pinned")).unwrap().count();
        common::until("pinned images", || (count() == right).then_some(()));
    }
}

#[track_caller]
fn succeeded(output: Output) {
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn an_image_of_the_same_name_takes_nobodys_place() {
    let place = Place::new();
    let (one, two) = (place.layout("a", "one"), place.layout("b", "two"));
    let mut daemon = place.daemon();
    succeeded(place.create(&daemon, &one, &["--name", "first"]).output().unwrap());
    // Refused before anything is built.
    let refused = place.create(&daemon, &two, &["--name", "first"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.lines().count() == 1, "{refused:?}");
    assert!(said.contains("--overwrite"), "{said}");
    daemon.stop();
    let mut daemon = place.daemon();
    assert_eq!(place.program(&daemon, "first"), "/bin/one");

    succeeded(place.create(&daemon, &two, &["--name", "second"]).output().unwrap());
    daemon.stop();
    let daemon = place.daemon();
    assert_eq!(place.program(&daemon, "first"), "/bin/one");
    assert_eq!(place.program(&daemon, "second"), "/bin/two");
    // Neither became what `make image` would have built.
    assert!(!place.path("build/images/same.erofs").exists());
    succeeded(place.create(&daemon, &two, &["--name", "first", "--overwrite"]).output().unwrap());
    assert_eq!(place.program(&daemon, "first"), "/bin/two");
    place.has_pinned(1);
}

#[test]
fn two_at_once_get_their_own() {
    let place = Place::new();
    let layouts = [("one", place.layout("a", "one")), ("two", place.layout("b", "two"))];
    let daemon = place.daemon();
    let created = layouts.map(|(name, layout)| {
        let mut create = place.create(&daemon, &layout, &["--name", name]);
        create.stdout(Stdio::null()).spawn().unwrap()
    });
    for mut child in created {
        assert!(child.wait().unwrap().success());
    }
    for name in ["one", "two"] {
        assert_eq!(place.program(&daemon, name), format!("/bin/{name}"));
    }
    place.has_pinned(2);
}

#[test]
fn a_daemon_killed_in_the_middle_leaves_all_or_nothing() {
    let place = Place::new();
    let (one, two) = (place.layout("a", "one"), place.layout("b", "two"));
    let mut daemon = place.daemon();
    succeeded(place.create(&daemon, &one, &["--name", "f"]).output().unwrap());
    // Built in advance, so that what follows tests the daemon rather than the scripts.
    succeeded(place.create(&daemon, &two, &["--name", "g"]).output().unwrap());
    for round in 0..12 {
        let layout = if round % 2 == 0 { &two } else { &one };
        let mut create = place.create(&daemon, layout, &["--name", "f", "--overwrite"]);
        let mut child = create.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // At times from before the request until after the response.
        std::thread::sleep(Duration::from_millis(60 * round));
        daemon.signal("KILL");
        daemon.child.wait().unwrap();
        let was_made = child.wait().unwrap().success();
        daemon = place.daemon();
        let program = place.program(&daemon, "f");
        let new = if round % 2 == 0 { "/bin/two" } else { "/bin/one" };
        assert!(program == new || !was_made, "{round}: it was made, and is {program}");
        assert_eq!(place.program(&daemon, "g"), "/bin/two");
        place.has_pinned(if program == "/bin/two" { 1 } else { 2 });
    }
}
