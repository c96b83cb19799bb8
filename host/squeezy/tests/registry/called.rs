//! An image that has been pulled answers calls, in a VM.

use super::{Place, Registry, put, succeeded};
use crate::common::{Daemon, build};
use serde_json::json;
use std::process::Command;

/// A file of the image's user that nobody else may read, in the image's working directory.
const SAID: &str = "entry('app/said', b'hello', mode=0o600, uid=33, gid=33)";

#[test]
fn an_image_from_a_registry_answers_calls() {
    let Some(build) = build() else { return };
    let (registry, place) = (Registry::start(), Place::new());
    let program = place.path("answer");
    let mut compiler = Command::new("musl-gcc");
    compiler.args(["-std=gnu11", "-O2", "-static", "-Wall", "-Wextra", "-Werror", "-o"]);
    compiler.arg(&program).arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/registry/answer.c"));
    succeeded(compiler.output().unwrap());
    let server = format!("entry('bin/answer', open({program:?}, 'rb').read(), mode=0o755)");
    let more = "Cmd=['answer'], Env=['A=1'], WorkingDir='/app', User='33'";
    let image = registry.push("team/answer:1", &format!("[layer({server}, {SAID})]"), more);

    let daemon = Daemon::start_in(place.0.path(), &build, &registry.configuration(), &[]);
    let (status, made) = put(&daemon, "f", &image);
    assert_eq!(status, 200, "{made}");
    let right = json!({ "said": "hello", "variable": "1", "user": 0 });
    for _ in 0..2 {
        let path = "/namespaces/_/actions/f?blocking=true&result=true";
        assert_eq!(daemon.ask("POST", path, Some(json!({}))), (200, right.clone()));
    }
}
