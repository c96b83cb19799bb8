//! Namespaces with keys of their own: what one sees and may do, and what another does not.

use crate::common::{Daemon, NO_VM, empty_build, empty_image, until};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
};
use tempfile::TempDir;

/// A daemon with the function `f` in the operator's namespace, and an image `g` for everybody.
struct World {
    daemon: Daemon,
    directory: TempDir,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let build = Self::build(&directory);
        empty_build(&build);
        let image = empty_image(&build, "f");
        empty_image(&build, "g");
        let daemon = Daemon::start_in(directory.path(), &build, NO_VM, &[&image]);
        Self { daemon, directory }
    }

    fn build(directory: &TempDir) -> PathBuf {
        directory.path().join("build")
    }

    fn again(&mut self) {
        self.daemon.stop();
        let build = Self::build(&self.directory);
        let image = build.join("images/f.erofs");
        self.daemon = Daemon::start_in(self.directory.path(), &build, NO_VM, &[&image]);
    }

    /// Makes a key with the command line; returns the header of whoever has it.
    fn key(&self, namespace: &str, name: &str, role: &str) -> String {
        let arguments = ["key", "create", name, "--namespace", namespace, "--role", role];
        let made = self.daemon.client(&arguments);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        basic(String::from_utf8(made.stdout).unwrap().trim())
    }

    fn ask(&self, key: &str, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        self.daemon.ask_as(key, method, path, body)
    }

    /// Waits until a namespace is gone: whoever deletes one waits for some seconds only.
    fn until_gone(&self, namespace: &str) {
        let path = format!("/namespaces/{namespace}");
        until("its end", || (self.daemon.ask("GET", &path, None).0 == 404).then_some(()));
    }

    /// The status of a page outside of the API, and its text.
    fn look(&self, key: Option<&str>, path: &str) -> (u16, String) {
        let mut request = ureq::get(format!("{}{path}", self.daemon.url));
        if let Some(key) = key {
            request = request.header("Authorization", key);
        }
        let mut answer = request.config().http_status_as_error(false).build().call().unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    }
}

fn basic(key: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(key))
}

fn image() -> Option<Value> {
    Some(json!({ "exec": { "kind": "blackbox", "image": "g" } }))
}

#[test]
fn a_tenant_has_its_own_and_nothing_of_others() {
    let mut world = World::new();
    assert!(world.daemon.client(&["namespace", "create", "acme"]).status.success());
    assert!(world.daemon.client(&["namespace", "create", "zeta"]).status.success());
    let acme = world.key("acme", "first", "change");
    let zeta = world.key("zeta", "first", "change");
    assert_eq!(world.ask(&acme, "GET", "/namespaces", None), (200, json!(["acme"])));
    let all = json!(["acme", "guest", "zeta"]);
    assert_eq!(world.daemon.ask("GET", "/namespaces", None), (200, all));

    // The same name is another action in each.
    let path = "/namespaces/_/actions/f";
    let (status, made) = world.ask(&acme, "PUT", path, image());
    assert_eq!((status, &made["namespace"]), (200, &json!("acme")), "{made}");
    assert_eq!(world.ask(&zeta, "GET", path, None).0, 404);
    assert_eq!(world.daemon.ask("GET", path, None).1["namespace"], "guest");
    for other in ["guest", "zeta", "none", "-"] {
        for (method, rest) in [
            ("GET", "actions"),
            ("GET", "actions/f"),
            ("POST", "actions/f"),
            ("PUT", "actions/x"),
            ("DELETE", "actions/f"),
            ("GET", "activations"),
            ("GET", "triggers"),
            ("GET", "packages"),
            ("PUT", "packages/p"),
            ("POST", "actions/p/f"),
        ] {
            let path = format!("/namespaces/{other}/{rest}");
            assert_eq!(world.ask(&acme, method, &path, None).0, 403, "{method} {path}");
        }
    }
    // The operator is at home everywhere.
    let (_, list) = world.daemon.ask("GET", "/namespaces/acme/actions", None);
    assert_eq!(list.as_array().unwrap().len(), 1);

    // An outcome is its own namespace's, even for who knows the ID.
    let (_, called) = world.ask(&acme, "POST", &format!("{path}?blocking=true"), None);
    let id = called["activationId"].as_str().unwrap_or_else(|| panic!("{called}"));
    let outcome = format!("/namespaces/_/activations/{id}");
    let (status, activation) = world.ask(&acme, "GET", &outcome, None);
    assert_eq!((status, &activation["namespace"]), (200, &json!("acme")));
    assert_eq!(activation["annotations"][0]["value"], "acme/f");
    assert_eq!(activation["subject"], "acme");
    assert_eq!(world.ask(&zeta, "GET", &outcome, None).0, 404);
    assert_eq!(world.daemon.ask("GET", &outcome, None).0, 404);
    assert_eq!(world.ask(&zeta, "GET", "/namespaces/_/activations", None), (200, json!([])));

    // All of it is there again.
    world.again();
    assert_eq!(world.ask(&acme, "GET", "/namespaces/_/usage", None).1["calls"], 1);
    assert_eq!(world.ask(&acme, "GET", path, None).1["namespace"], "acme");
    assert_eq!(world.ask(&acme, "GET", &outcome, None).0, 200);
    assert_eq!(world.ask(&zeta, "GET", path, None).0, 404);
}

#[test]
fn a_role_opens_what_it_says_and_only_the_operator_manages() {
    let world = World::new();
    assert!(world.daemon.client(&["namespace", "create", "acme"]).status.success());
    let [change, read, call] = ["change", "read", "call"].map(|role| world.key("acme", role, role));
    let monitor = world.key("guest", "prometheus", "monitor");
    assert_eq!(world.ask(&change, "PUT", "/namespaces/_/actions/f", image()).0, 200);
    let (_, called) = world.ask(&call, "POST", "/namespaces/_/actions/f?blocking=true", None);
    let id = called["activationId"].as_str().unwrap_or_else(|| panic!("{called}"));
    let outcome = format!("/namespaces/_/activations/{id}/result");
    // For change, read, call and monitor.
    for (method, path, right) in [
        ("GET", "/namespaces/_/actions", [200, 200, 403, 403]),
        ("GET", "/namespaces/_/actions/f", [200, 200, 403, 403]),
        ("GET", "/namespaces/_/activations", [200, 200, 403, 403]),
        ("GET", "/namespaces/_/packages", [200, 200, 403, 403]),
        ("GET", "/namespaces/_/limits", [200, 200, 403, 403]),
        ("GET", "/namespaces/_/actions/none/", [404, 404, 403, 403]),
        ("POST", "/namespaces/_/actions/none/f", [404, 403, 404, 403]),
        ("DELETE", "/namespaces/_/packages/none", [404, 403, 403, 403]),
        ("GET", &*outcome, [200, 200, 200, 403]),
        ("GET", "/namespaces/_", [200, 200, 403, 403]),
        ("GET", "/namespaces/guest", [403, 403, 403, 403]),
        ("POST", "/namespaces/_/actions/none", [404, 403, 404, 403]),
        ("DELETE", "/namespaces/_/actions/none", [404, 403, 403, 403]),
        ("PUT", "/namespaces/new", [403; 4]),
        ("DELETE", "/namespaces/acme", [403; 4]),
        ("GET", "/namespaces/_/keys", [403; 4]),
        ("PUT", "/namespaces/_/keys/x", [403; 4]),
        ("DELETE", "/namespaces/_/keys/read", [403; 4]),
        ("POST", "/reload", [403; 4]),
    ] {
        let seen =
            [&change, &read, &call, &monitor].map(|key| world.ask(key, method, path, None).0);
        assert_eq!(seen, right, "{method} {path}");
    }
    let stranger = basic("x:y");
    for path in ["/namespaces", "/namespaces/_/actions", "/namespaces/acme"] {
        assert_eq!(world.ask(&stranger, "GET", path, None).0, 401, "{path}");
    }
}

#[test]
fn numbers_are_for_whose_they_are() {
    let world = World::new();
    let operator = basic(fs::read_to_string(world.daemon.key_file()).unwrap().trim());
    for path in ["/metrics", "/ui/state.json"] {
        assert_eq!(world.look(None, path).0, 200, "while the operator is alone, they are public");
    }
    assert!(world.daemon.client(&["namespace", "create", "acme"]).status.success());
    let [change, call] = ["change", "call"].map(|role| world.key("acme", role, role));
    let monitor = world.key("guest", "prometheus", "monitor");
    assert_eq!(world.ask(&change, "PUT", "/namespaces/_/actions/g", image()).0, 200);
    // They are sampled once a second.
    until("the action is seen", || {
        world.look(Some(&change), "/ui/state.json").1.contains("/acme/g").then_some(())
    });
    for path in ["/metrics", "/ui/state.json"] {
        assert_eq!(world.look(None, path).0, 401, "{path}");
        assert_eq!(world.look(Some(&basic("x:y")), path).0, 401, "{path}");
        assert_eq!(world.look(Some(&call), path).0, 403, "{path}");
    }
    let state = |key: &str| -> Vec<String> {
        let state: Value =
            serde_json::from_str(&world.look(Some(key), "/ui/state.json").1).unwrap();
        let functions = state["functions"].as_array().unwrap().iter();
        functions.map(|function| function["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(state(&change), ["/acme/g"]);
    assert_eq!(state(&operator), ["/acme/g", "f"]);
    assert_eq!(state(&monitor), ["/acme/g", "f"]);
    let metrics = |key: &str| world.look(Some(key), "/metrics").1;
    let own = metrics(&change);
    assert!(own.contains("function=\"/acme/g\"") && !own.contains("function=\"f\""), "{own}");
    assert!(!own.contains("\nsqueezy_memory_limit_bytes "), "{own}");
    for key in [&operator, &monitor] {
        let all = metrics(key);
        assert!(all.contains("function=\"/acme/g\"") && all.contains("function=\"f\""));
        assert!(all.contains("\nsqueezy_memory_limit_bytes "));
    }
    // What says nothing of anybody is open to everybody.
    for path in ["/", "/ping", "/healthz", "/readyz", "/api/v1", "/api/v1/api-docs", "/ui/app.js"] {
        assert_eq!(world.look(None, path).0, 200, "{path}");
    }
}

#[test]
fn keys_are_made_listed_and_revoked() {
    let world = World::new();
    assert!(world.daemon.client(&["namespace", "create", "acme"]).status.success());
    let first = world.key("acme", "first", "read");
    let file = world.directory.path().join("second");
    let text = file.to_str().unwrap();
    let arguments = ["key", "create", "second", "--namespace", "acme", "--save", text];
    let made = world.daemon.client(&arguments);
    assert!(made.status.success() && made.stdout.is_empty());
    let again = world.daemon.client(&arguments);
    assert!(!again.status.success(), "a file is never written over");
    let second = basic(fs::read_to_string(&file).unwrap().trim());
    // Both are good until the first is revoked.
    for key in [&first, &second] {
        assert_eq!(world.ask(key, "GET", "/namespaces/_/actions", None).0, 200);
    }
    let revoked = world.daemon.client(&["key", "revoke", "first", "--namespace", "acme"]);
    assert!(revoked.status.success(), "{}", String::from_utf8_lossy(&revoked.stderr));
    assert_eq!(world.ask(&first, "GET", "/namespaces/_/actions", None).0, 401);
    assert_eq!(world.ask(&second, "GET", "/namespaces/_/actions", None).0, 200);
    let list = world.daemon.client(&["key", "list", "--namespace", "acme"]);
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains("second  change  20") && !list.contains("first"), "{list}");
    let list = world.daemon.client(&["namespace", "list"]);
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains("acme") && list.contains("guest"), "{list}");
    for (arguments, part) in [
        (&["namespace", "create", "acme"][..], "exists already"),
        (&["namespace", "delete", "none"], "no such namespace"),
        (&["namespace", "delete", "guest"], "is the operator's"),
        (&["key", "create", "second", "--namespace", "acme"], "has a key with this name"),
        (
            &["key", "create", "x", "--namespace", "acme", "--role", "monitor"],
            "only be one of guest",
        ),
        (&["key", "create", "x", "--role", "operator"], "must be change, read, call or monitor"),
        (&["key", "revoke", "none"], "no such key"),
    ] {
        let output = world.daemon.client(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn what_a_namespace_may_have_is_bounded_and_its_neighbours_are_not_affected() {
    let world = World::new();
    let create =
        ["namespace", "create", "acme", "--quota", "calls_per_minute=3", "--quota", "actions=1"];
    let made = world.daemon.client(&create);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(world.daemon.client(&["namespace", "create", "zeta"]).status.success());
    let [acme, zeta] = ["acme", "zeta"].map(|namespace| world.key(namespace, "k", "change"));
    for key in [&acme, &zeta] {
        assert_eq!(world.ask(key, "PUT", "/namespaces/_/actions/f", image()).0, 200);
    }
    // As OpenWhisk says it; the operator's own have no bound.
    let calls = |(status, limits): (u16, Value)| {
        assert_eq!((status, &limits["actionMemoryMin"]), (200, &json!(32)), "{limits}");
        ["invocationsPerMinute", "concurrentInvocations"].map(|name| limits[name].clone())
    };
    let path = "/namespaces/_/limits";
    assert_eq!(calls(world.ask(&acme, "GET", path, None)), [json!(3), json!(256)]);
    assert_eq!(calls(world.daemon.ask("GET", path, None)), [Value::Null, Value::Null]);
    let (status, refused) = world.ask(&acme, "PUT", "/namespaces/_/actions/g", image());
    let right = "The namespace may have 1 actions: delete one first.";
    assert_eq!((status, refused["error"].as_str()), (413, Some(right)));
    // As many packages as actions.
    for (key, right) in [(&acme, 413), (&zeta, 200)] {
        for (name, right) in [("p", 200), ("p?overwrite=true", 200), ("q", right)] {
            let path = format!("/namespaces/_/packages/{name}");
            let (status, answer) = world.ask(key, "PUT", &path, Some(json!({})));
            assert_eq!(status, right, "{answer}");
        }
    }
    // The count begins anew with each minute, which may be now.
    let call = |key: &str| world.ask(key, "POST", "/namespaces/_/actions/f?blocking=true", None);
    let refused = (0..8).map(|_| call(&acme)).find(|(status, _)| *status == 429);
    let (_, refused) = refused.expect("too many calls are refused");
    let error = refused["error"].as_str().unwrap();
    assert_eq!(error, "Too many requests in the last minute (count: 4, allowed: 3).");
    assert!((0..8).all(|_| call(&zeta).0 != 429));
    let (_, shown) = world.ask(&acme, "GET", "/namespaces/_", None);
    assert_eq!((&shown["quotas"]["actions"], &shown["calls"]), (&json!(1), &json!(0)));
    // Who has called how often is known, and is nobody else's business.
    let (_, used) = world.ask(&zeta, "GET", "/namespaces/_/usage", None);
    assert_eq!(used["calls"], 8, "{used}");
    assert_eq!(world.ask(&zeta, "GET", "/namespaces/acme/usage", None).0, 403);
    assert_eq!(world.daemon.ask("GET", "/namespaces/zeta/usage", None), (200, used));
    until("it is in the metrics", || {
        let metrics = world.look(Some(&zeta), "/metrics").1;
        assert!(!metrics.contains("acme"), "{metrics}");
        metrics.contains("squeezy_namespace_calls_total{namespace=\"zeta\"} 8").then_some(())
    });
    // From now on, without a restart.
    let set = ["namespace", "set", "acme", "--quota", "calls_per_minute=none"];
    assert!(world.daemon.client(&set).status.success());
    assert!((0..8).all(|_| call(&acme).0 != 429));
    let set = ["namespace", "set", "acme", "--network-allow", "10.1.0.0/16"];
    assert!(world.daemon.client(&set).status.success());
    let more = json!({ "network_allow": ["10.0.0.0/8"] });
    assert_eq!(world.ask(&acme, "PUT", "/namespaces/_?overwrite=true", Some(more)).0, 403);
    let (_, shown) = world.ask(&acme, "GET", "/namespaces/_", None);
    assert_eq!(shown["network_allow"], json!(["10.1.0.0/16"]));
    for (key, network, right) in
        [(&acme, "10.1.2.3", 200), (&acme, "10.2.0.1", 400), (&zeta, "10.1.2.3", 400)]
    {
        let mut asking = image().unwrap();
        asking["annotations"] = json!([{ "key": "network-allow", "value": [network] }]);
        let path = "/namespaces/_/actions/f?overwrite=true";
        let (status, answer) = world.ask(key, "PUT", path, Some(asking));
        assert_eq!(status, right, "{answer}");
    }
    for (set, part) in [
        (["namespace", "set", "acme", "--network-allow", "1.1.1.1"], "1.1.1.1 is not private"),
        (["namespace", "set", "acme", "--network-allow", "inner.test"], "is not a network such as"),
        (["namespace", "set", "acme", "--quota", "calls=1"], "unknown field `calls`"),
        (["namespace", "set", "acme", "--quota", "actions=-1"], "a number or none"),
        (["namespace", "set", "none", "--quota", "actions=1"], "no such namespace"),
    ] {
        let output = world.daemon.client(&set);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(part), "{set:?}: {error}");
    }
}

#[test]
fn with_a_namespace_goes_everything_in_it() {
    let mut world = World::new();
    assert!(world.daemon.client(&["namespace", "create", "acme"]).status.success());
    let key = world.key("acme", "first", "change");
    assert_eq!(world.ask(&key, "PUT", "/namespaces/_/actions/g", image()).0, 200);
    let (_, called) = world.ask(&key, "POST", "/namespaces/_/actions/g?blocking=true", None);
    assert!(called["activationId"].is_string(), "{called}");
    let path = "/namespaces/_/packages/p";
    let package = |value: u32| Some(json!({ "parameters": [{ "key": "a", "value": value }] }));
    assert_eq!(world.ask(&key, "PUT", path, package(1)).0, 200);
    let (_, of_guest) = world.daemon.ask("PUT", path, package(2));
    let refused = world.daemon.client(&["namespace", "delete", "acme"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("has actions (1)"));
    assert_eq!(world.ask(&key, "DELETE", "/namespaces/_/actions/g", None).0, 200);
    let refused = world.daemon.client(&["namespace", "delete", "acme"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("has packages (1)"));
    assert_eq!(world.ask(&key, "PUT", "/namespaces/_/actions/p/g", image()).0, 200);
    let deleted = world.daemon.client(&["namespace", "delete", "acme", "--force"]);
    assert!(deleted.status.success(), "{}", String::from_utf8_lossy(&deleted.stderr));
    assert_eq!(world.ask(&key, "GET", "/namespaces/_/actions", None).0, 401);
    world.until_gone("acme");
    let pinned = world.directory.path().join("state/pinned");
    until("no image", || (fs::read_dir(&pinned).unwrap().count() == 0).then_some(()));
    world.again();
    // Another one of this name begins with nothing.
    assert!(world.daemon.client(&["namespace", "create", "acme"]).status.success());
    let key = world.key("acme", "first", "change");
    for list in ["actions", "packages", "activations"] {
        let path = format!("/namespaces/_/{list}");
        assert_eq!(world.ask(&key, "GET", &path, None), (200, json!([])));
    }
    assert_eq!(world.ask(&key, "GET", path, None).0, 404);
    assert_eq!(world.daemon.ask("GET", path, None), (200, of_guest));
}

#[test]
fn a_request_that_began_before_its_namespace_ended_does_nothing_in_the_next_one() {
    let world = World::new();
    let operate = |arguments: &[&str]| assert!(world.daemon.client(arguments).status.success());
    operate(&["namespace", "create", "acme"]);
    let acme = world.key("acme", "first", "change");
    let body = image().unwrap().to_string();
    let address = world.daemon.url.strip_prefix("http://").unwrap();
    let mut late = TcpStream::connect(address).unwrap();
    let head = format!(
        "PUT /api/v1/namespaces/_/actions/f HTTP/1.1\r\nHost: {address}\r\nAuthorization: {acme}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    late.write_all(head.as_bytes()).unwrap();
    until("it was admitted", || {
        let (_, keys) = world.daemon.ask("GET", "/namespaces/acme/keys", None);
        keys[0]["last_used"].is_u64().then_some(())
    });
    operate(&["namespace", "delete", "acme"]);
    world.until_gone("acme");
    operate(&["namespace", "create", "acme"]);
    late.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    late.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert_eq!(world.daemon.ask("GET", "/namespaces/acme/actions", None), (200, json!([])));
}

#[test]
fn parameters_of_a_namespace_have_a_bound() {
    let world = World::new();
    assert!(world.daemon.client(&["namespace", "create", "acme"]).status.success());
    let acme = world.key("acme", "first", "change");
    let large = json!([{ "key": "k", "value": "x".repeat(900 << 10) }]);
    let put = |name: &str| {
        let body = json!({ "exec": image().unwrap()["exec"], "parameters": large });
        world.ask(&acme, "PUT", &format!("/namespaces/_/actions/{name}"), Some(body))
    };
    let made = (0..8).take_while(|number| put(&format!("a{number}")).0 == 200).count();
    assert_eq!(made, 4);
    let (status, refused) = put("more");
    assert!(
        status == 413 && refused["error"].as_str().unwrap().contains("parameters"),
        "{refused}"
    );
    // A list is short, however large they are.
    let (_, list) = world.ask(&acme, "GET", "/namespaces/_/actions", None);
    assert_eq!(list.as_array().unwrap().len(), 4);
    assert!(list.to_string().len() < 100_000);
    // The operator's are others.
    let body = json!({ "exec": image().unwrap()["exec"], "parameters": large });
    assert_eq!(world.daemon.ask("PUT", "/namespaces/_/actions/b", Some(body)).0, 200);
    assert_eq!(world.ask(&acme, "DELETE", "/namespaces/_/actions/a0", None).0, 200);
    assert_eq!(put("more").0, 200);
}
