//! Calling and changing actions; `tests/serve.rs` does so with VMs.

use super::*;
use crate::serve::{blobs::tests::has, bodies::Payer, tenants::NamespaceChange};
use axum::body::Bytes;
use serde_json::{Map, json};
use squeezy_node::{NodeEvent, Observer};
use squeezy_openwhisk::activation::Status;
use squeezy_protocol::MAX_SENT_CODE_BYTES;
use squeezy_scaler::{Budget, Moment};
use squeezy_vmm::Kernel;
use std::{
    fs,
    sync::mpsc::{Receiver, Sender, channel},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// Prevents VMs from booting until the other end is dropped.
struct Gate(Mutex<Receiver<()>>);

impl Observer for Gate {
    fn observe(&self, _: Moment, event: NodeEvent<'_>) {
        if let NodeEvent::Booting { .. } = event {
            let _ = lock(&self.0).recv();
        }
    }
}

/// A service with the action `f`, whose queue holds one call, and whose VM can never boot because
/// no host has enough memory. It is not even tried before the sender is dropped.
pub(in crate::serve) async fn service() -> (Arc<Service>, Sender<()>, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let files = Artifacts::find(Some(directory.path())).unwrap();
    let definition = include_str!("../../../../../functions/html/function.toml")
        .replace("name = \"html\"", "name = \"f\"")
        .replace("memory_limit = \"", "memory_limit = \"1T\" # \"");
    let image = files.image("f");
    for file in [&files.kernel(Kernel::Release), &files.initramfs(), &image] {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    fs::write(image.with_extension("toml"), definition).unwrap();
    let text = "state_directory = \".\"\nmemory = \"64T\"\npolicy = \"static\"\naccelerator = \"tcg\"\nqueue = 1";
    let config = Config::parse(text, directory.path()).unwrap();
    let (hold, gate) = channel();
    let gate = Arc::new(Gate(Mutex::new(gate)));
    let node = Node::start(Budget::new(config.memory_bytes), None, Instant::now(), gate);
    let kept = Kept::open(directory.path(), config.actions_disk_bytes).unwrap();
    let bodies = Bodies::new(64 << 20);
    let store = directory.path().join("squeezy.db");
    let store = Store::open(&store, config.store_limits(&bodies), |_| ()).unwrap();
    let service = Service::new(config, files, node, kept, Arc::new(store), bodies, Arc::default());
    let service = Arc::new(service);
    service.add_functions(&[image.into()]).await.unwrap();
    (service, hold, directory)
}

fn name(text: &str) -> QualifiedName {
    text.parse().unwrap()
}

fn body(text: &str) -> ActionBody {
    serde_json::from_str(text).unwrap()
}

pub(in crate::serve) fn changed(change: Value) -> NamespaceChange {
    serde_json::from_value(change).unwrap()
}

/// The result of a call that was accepted.
type Call = JoinHandle<Result<Answered, ServiceError>>;

/// Calls `f`; the call waits for its VM.
async fn waiting(service: &Arc<Service>, id: &str) -> Call {
    let action = service.action(&name("f")).unwrap();
    let (accepted, call) = service.call(
        action,
        id.to_owned(),
        Map::new(),
        CallOrigin::default(),
        None,
        service.bodies.part(Payer::alone()),
    );
    accepted.await.unwrap();
    call
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_change_keeps_those_who_wait() {
    let (service, hold, _directory) = service().await;
    let call = waiting(&service, "1").await;
    service.put_action(name("f"), body("{}"), None, true, ()).await.unwrap();
    // The node executes requests in order, but a boot may end at any time.
    assert_eq!(service.node.status().await.unwrap().functions.len(), 1);
    drop(hold);
    let Answered { activation, .. } = call.await.unwrap().unwrap();
    assert_eq!((activation.version.as_str(), activation.status), ("0.0.2", Status::InternalError));
}

/// Calls the web action `f` with an argument `mine`; the call waits for its VM.
async fn waiting_at_web(service: &Arc<Service>) -> Call {
    let (action, export) = service.web_action(&name("f")).unwrap();
    let given = Map::from_iter([("mine".to_owned(), json!(1))]);
    let web = Some(WebCall { export, stranger: None });
    let origin = CallOrigin { web, ..CallOrigin::default() };
    let id = service.new_id().unwrap();
    let part = service.bodies.part(Payer::alone());
    let (accepted, call) = service.call(action, id, given, origin, None, part);
    accepted.await.unwrap();
    call
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_web_call_that_waits_goes_to_no_version_that_would_not_have_admitted_it() {
    let (service, hold, _directory) = service().await;
    let change = async |annotations: Value, parameters: Value| {
        let text = json!({ "annotations": annotations, "parameters": parameters }).to_string();
        service.put_action(name("f"), body(&text), None, true, ()).await.unwrap();
    };
    let exported = || json!([{ "key": "web-export", "value": true }]);
    let secret = json!([{ "key": "web-export", "value": true }, { "key": "require-whisk-auth", "value": "s" }]);
    let own = json!([{ "key": "mine", "value": 2 }]);
    for (annotations, parameters) in
        [(json!([]), json!([])), (secret, json!([])), (exported(), own)]
    {
        change(exported(), json!([])).await;
        let waits = waiting_at_web(&service).await;
        change(annotations, parameters).await;
        let answer = tokio::time::timeout(Duration::from_secs(10), waits).await.unwrap();
        assert!(matches!(answer.unwrap(), Err(ServiceError::NotFound)));
    }
    change(exported(), json!([])).await;
    let waits = waiting_at_web(&service).await;
    change(exported(), json!([{ "key": "other", "value": 2 }])).await;
    // The node executes requests in order.
    assert_eq!(service.node.status().await.unwrap().functions.len(), 1);
    drop(hold);
    let Answered { activation, .. } = waits.await.unwrap().unwrap();
    assert_eq!(activation.version, service.action(&name("f")).unwrap().version());
}

#[tokio::test]
async fn a_change_keeps_what_it_does_not_say() {
    let (service, _hold, _directory) = service().await;
    let text = r#"{ "parameters": [{ "key": "a", "value": 1 }], "limits": { "timeout": 5 } }"#;
    service.put_action(name("f"), body(text), None, true, ()).await.unwrap();
    let text = r#"{ "exec": { "kind": "blackbox", "image": "f" }, "annotations": [] }"#;
    let action = service.put_action(name("f"), body(text), None, true, ()).await.unwrap();
    assert_eq!((action.revision, action.arguments(&[], Map::new())), (3, json!({ "a": 1 })));
    assert_eq!(action.describe()["limits"]["timeout"], 5);
}

#[tokio::test]
async fn limits_are_in_force_or_refused() {
    let (service, _hold, _directory) = service().await;
    let limits = |text: &str| {
        let body =
            format!(r#"{{ "exec": {{ "kind": "blackbox", "image": "f" }}, "limits": {text} }}"#);
        service.put_action(name("g"), self::body(&body), None, true, ())
    };
    let action = limits(r#"{ "memory": 256, "logs": 1 }"#).await.unwrap();
    assert_eq!(action.image.function.memory_bytes, 256 << 20);
    let action = limits(r#"{ "timeout": 7 }"#).await.unwrap();
    let right = json!({ "timeout": 7, "memory": 256, "logs": 1, "concurrency": 1 });
    assert_eq!(action.describe()["limits"], right);
    let action = limits(r#"{ "concurrency": 3 }"#).await.unwrap();
    assert_eq!(action.image.function.calls_per_instance.get(), 3);
    let right = json!({ "timeout": 7, "memory": 256, "logs": 1, "concurrency": 3 });
    for wrong in [r#"{ "concurrency": 101 }"#, r#"{ "memory": 0 }"#, r#"{ "logs": 11 }"#] {
        let refused = limits(wrong).await;
        assert!(matches!(refused, Err(ServiceError::Invalid(_))), "{wrong}");
    }
    assert_eq!(service.action(&name("g")).unwrap().describe()["limits"], right);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn who_was_accepted_can_ask_what_came_of_it() {
    let (service, _hold, _directory) = service().await;
    let call = waiting(&service, "1").await;
    let (accepted, refused) = service.call(
        service.action(&name("f")).unwrap(),
        "2".to_owned(),
        Map::new(),
        CallOrigin::default(),
        None,
        service.bodies.part(Payer::alone()),
    );
    assert!(accepted.await.is_err());
    assert!(matches!(refused.await.unwrap(), Err(ServiceError::Busy)));
    assert!(service.store.find(&Namespace::guest(), "2").await.unwrap().is_none());
    service.delete_action(name("f")).await.unwrap();
    assert!(matches!(call.await.unwrap(), Err(ServiceError::NotFound)));
    let found = service.store.find(&Namespace::guest(), "1").await.unwrap().unwrap();
    assert_eq!(found.activation.status, Status::InternalError);
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_nothing_half_done() {
    let (service, _hold, _directory) = service().await;
    let put = service.put_action(name("f"), ActionBody::default(), None, true, ());
    tokio::select! {
        biased;
        _ = put => unreachable!("the node has not been asked yet"),
        () = std::future::ready(()) => {}
    }
    let changed = async {
        while service.action(&name("f")).unwrap().revision == 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), changed).await.unwrap();
    assert_eq!(service.node.status().await.unwrap().functions.len(), 1);
}

#[tokio::test]
async fn functions_of_one_name_are_an_error() {
    let (service, _hold, _directory) = service().await;
    let image = service.files.image("f");
    let (path, error) = service.add_functions(&[image.clone().into()]).await.unwrap_err();
    assert_eq!(path, image);
    assert!(error.to_string().contains("\"f\" exists already"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_kept_is_not_made() {
    let (service, _hold, directory) = service().await;
    // A directory cannot be replaced by a file.
    fs::create_dir_all(directory.path().join("actions.json/x")).unwrap();
    let put = service.put_action(name("f"), body("{}"), None, true, ()).await;
    assert!(matches!(put, Err(ServiceError::Internal(_))));
    assert_eq!(service.action(&name("f")).unwrap().revision, 1);
    assert_eq!(service.node.status().await.unwrap().functions.len(), 1);
}

#[tokio::test]
async fn an_action_without_its_image_is_kept() {
    let (service, _hold, directory) = service().await;
    let limits = r#"{ "memory": 64 }"#;
    let text =
        format!(r#"{{ "exec": {{ "kind": "blackbox", "image": "f" }}, "limits": {limits} }}"#);
    let change = body(&text);
    let digest = service.put_action(name("g"), change, None, false, ()).await.unwrap().describe();
    let digest = digest["exec"]["digest"].as_str().unwrap().to_owned();
    // What is now built under its name is not its image.
    let kept = directory.path().join("pinned").join(&digest["sha256:".len()..]);
    fs::rename(&kept, directory.path().join("kept")).unwrap();
    service.actions.forget_all();
    service.restore().await;
    assert!(service.action(&name("g")).is_none());
    let [described] = &service.describe_actions(&Namespace::guest())[..] else {
        panic!("there is g alone")
    };
    let problem = described["problem"].as_str().unwrap();
    assert!(problem.contains(&digest) && problem.contains("--overwrite"), "{problem}");
    assert_eq!(
        (&described["exec"]["image"], &described["limits"]["memory"]),
        (&json!("f"), &json!(64))
    );
    assert!(matches!(service.callable(&name("g")).await, Err(ServiceError::Unavailable(_))));
    let again = || service.put_action(name("g"), ActionBody::default(), None, false, ());
    assert!(matches!(again().await, Err(ServiceError::Exists)));
    // It is served again, unchanged, once its image is back.
    fs::rename(directory.path().join("kept"), &kept).unwrap();
    assert_eq!(service.callable(&name("g")).await.unwrap().action.revision, 1);
    assert!(service.describe_action(&name("g")).unwrap().get("problem").is_none());
}

#[tokio::test]
async fn an_action_without_its_image_can_be_changed_and_deleted() {
    let (service, _hold, directory) = service().await;
    let change =
        body(r#"{ "exec": { "kind": "blackbox", "image": "f" }, "limits": { "timeout": 5 } }"#);
    for name in ["g", "h"] {
        service.put_action(self::name(name), change.clone(), None, false, ()).await.unwrap();
    }
    let digest = service.action(&name("g")).unwrap().describe()["exec"]["digest"].clone();
    let kept = directory.path().join("pinned").join(&digest.as_str().unwrap()["sha256:".len()..]);
    fs::remove_file(kept.join("image.erofs")).unwrap();
    service.actions.forget_all();
    service.restore().await;
    assert!(service.describe_action(&name("h")).unwrap()["problem"].is_string());
    let image = body(r#"{ "exec": { "kind": "blackbox", "image": "f" } }"#);
    let changed = service.put_action(name("g"), image, None, true, ()).await.unwrap();
    assert_eq!((changed.revision, changed.body.limits().timeout), (2, Some(5)));
    assert_eq!(service.delete_action(name("h")).await.unwrap()["name"], "h");
    assert!(service.describe_action(&name("h")).is_none());
    assert!(matches!(service.delete_action(name("h")).await, Err(ServiceError::NotFound)));
    let state = service.changing.of_operator().await;
    assert_eq!(state.actions().keys().collect::<Vec<_>>(), [&name("g")]);
}

/// The contents of these actions' images.
fn programs(service: &Service, names: &[&str]) -> Vec<String> {
    let read = |name: &&str| {
        fs::read_to_string(&service.action(&self::name(name)).unwrap().image.image).unwrap()
    };
    names.iter().map(read).collect()
}

#[tokio::test]
async fn each_action_runs_what_it_was_made_of() {
    let (service, _hold, directory) = service().await;
    let exec = r#"{ "exec": { "kind": "blackbox", "image": "f" } }"#;
    for name in ["g", "h"] {
        fs::write(service.files.image("f"), name).unwrap();
        service.put_action(self::name(name), body(exec), None, false, ()).await.unwrap();
    }
    fs::write(service.files.image("f"), "refused").unwrap();
    let refused = service.put_action(name("g"), body(exec), None, false, ()).await;
    assert!(matches!(refused, Err(ServiceError::Exists)));
    let wrong = exec.replace("}", "").to_owned() + r#"}, "limits": { "memory": 0 } }"#;
    let refused = service.put_action(name("g"), body(&wrong), None, true, ()).await;
    assert!(matches!(refused, Err(ServiceError::Invalid(_))), "{refused:?}");
    // The function's configuration does not apply either.
    service.put_action(name("h"), body(r#"{ "annotations": [] }"#), None, true, ()).await.unwrap();
    assert_eq!(programs(&service, &["g", "h"]), ["g", "h"]);
    service.actions.forget_all();
    service.restore().await;
    assert_eq!(programs(&service, &["g", "h"]), ["g", "h"]);
    let pinned = |name: &str| {
        service.action(&self::name(name)).unwrap().pinned.clone().unwrap().digest.clone()
    };
    let (g, h, place) = (pinned("g"), pinned("h"), directory.path().join("pinned"));
    has(&place, [&g, &h]);
    service.delete_action(name("h")).await.unwrap();
    has(&place, [&g]);
    service.delete_action(name("g")).await.unwrap();
    has(&place, []);
}

#[tokio::test]
async fn what_an_earlier_version_has_kept_is_pinned_from_then_on() {
    let (service, _hold, directory) = service().await;
    let body: ActionBody = body(r#"{ "annotations": [] }"#);
    let image = PathBuf::from("f");
    let stored = StoredAction {
        image,
        digest: None,
        origin: None,
        code: None,
        revision: 3,
        updated_ms: 7,
        body,
    };
    service.changing.of_operator().await.put(&name("g"), stored).await.unwrap();
    fs::write(service.files.image("f"), "then").unwrap();
    service.restore().await;
    fs::write(service.files.image("f"), "now").unwrap();
    service.actions.forget_all();
    service.restore().await;
    assert_eq!(programs(&service, &["g"]), ["then"]);
    assert_eq!(service.action(&name("g")).unwrap().revision, 3);
    assert_eq!(fs::read_dir(directory.path().join("pinned")).unwrap().count(), 1);
}

#[tokio::test]
async fn code_beyond_its_quota_is_refused_before_it_is_kept_or_unpacked() {
    let (service, _hold, _directory) = service().await;
    fs::write(service.files.image("runtime-python"), "").unwrap();
    let acme: Namespace = "acme".parse().unwrap();
    service.create_namespace(&acme, NamespaceChange::default()).await.unwrap();
    let less = changed(json!({ "quotas": { "code_mb": 1 } }));
    service.change_namespace(&acme, less).await.unwrap();
    let exec = |binary| json!({ "exec": { "kind": "python:3.11", "binary": binary } }).to_string();
    // That it is no archive would be said when it is kept.
    let mut spool = service.spool().await.unwrap();
    spool.write(&vec![b'A'; 2 << 20]).unwrap();
    let no_archive = GivenCode::spooled(spool);
    // And that it is too long without a drive, which cannot be made here, when it is kept.
    let long = json!("#".repeat(MAX_SENT_CODE_BYTES + 1)).to_string();
    let long = GivenCode::new(Bytes::from(long));
    for (binary, code) in [(true, no_archive), (false, long)] {
        let refused = service.put_action(name("/acme/g"), body(&exec(binary)), code, false, ());
        let refused = refused.await.unwrap_err().to_string();
        assert!(refused.starts_with("The code of the namespace's actions would take"), "{refused}");
    }
}

#[tokio::test]
async fn namespaces_have_names_and_vms_of_their_own() {
    let (service, _hold, _directory) = service().await;
    let exec = r#"{ "exec": { "kind": "blackbox", "image": "f" } }"#;
    let acme: Namespace = "acme".parse().unwrap();
    let refused = service.put_action(name("/acme/f"), body(exec), None, false, ()).await;
    assert!(matches!(refused, Err(ServiceError::NotFound)));
    service.create_namespace(&acme, NamespaceChange::default()).await.unwrap();
    let made = service.put_action(name("/acme/f"), body(exec), None, false, ()).await.unwrap();
    let own = service.action(&name("f")).unwrap();
    let status = service.node.status().await.unwrap();
    assert_ne!(status.vm_of[&made.index], status.vm_of[&own.index]);
    assert_eq!((own.revision, made.revision), (1, 1));
    // They share memory as the scaler has them do.
    assert_eq!(status.tenants.len(), 2);
    let described = service.describe_actions(&acme);
    assert_eq!((described.len(), &described[0]["namespace"]), (1, &json!("acme")));
    assert_eq!(service.describe_actions(&Namespace::guest())[0]["namespace"], "guest");
    // It may have so many actions.
    let one = changed(json!({ "quotas": { "actions": 1, "concurrent_calls": 1 } }));
    service.change_namespace(&acme, one).await.unwrap();
    let refused = service.put_action(name("/acme/g"), body(exec), None, false, ()).await;
    let refused = refused.unwrap_err().to_string();
    assert_eq!(refused, "The namespace may have 1 actions: delete one first.");
    service.put_action(name("/acme/f"), body(exec), None, true, ()).await.unwrap();
    service.put_action(name("g"), body(exec), None, false, ()).await.unwrap();
    service.delete_action(name("g")).await.unwrap();
    // They are there again, each in its place.
    service.actions.forget_all();
    service.restore().await;
    assert!(service.action(&name("/acme/f")).is_some() && service.action(&name("f")).is_none());
    service.delete_action(name("/acme/f")).await.unwrap();
    assert!(service.describe_actions(&acme).is_empty());
    service.delete_namespace(acme.clone(), false).await.unwrap();
    assert!(!service.tenants.has(&acme));
}

/// An action of the image `f` with these lists.
fn reaching(allow: &[&str], deny: &[&str]) -> ActionBody {
    let exec = json!({ "kind": "blackbox", "image": "f" });
    let lists = [("network-allow", allow), ("network-deny", deny)];
    let annotations = lists.map(|(key, list)| json!({ "key": key, "value": list }));
    body(&json!({ "exec": exec, "annotations": annotations }).to_string())
}

#[tokio::test]
async fn actions_of_one_image_choose_what_they_reach_within_what_the_operator_allows() {
    let (service, _hold, _directory) = service().await;
    let put = async |text: &str, body: ActionBody| {
        service.put_action(name(text), body, None, true, ()).await
    };
    let own = |text: &str| service.action(&name(text)).unwrap().image.function.reach.own.clone();
    let allowed = async |list: Value| {
        let change = changed(json!({ "network_allow": list }));
        service.change_namespace(&Namespace::guest(), change).await.unwrap();
    };
    let closed = put("closed", reaching(&[], &["0.0.0.0/0"])).await.unwrap();
    let open = put("open", reaching(&[], &[])).await.unwrap();
    // Each has its own rules, so each has its own VM.
    let status = service.node.status().await.unwrap();
    assert_ne!(status.vm_of[&closed.index], status.vm_of[&open.index]);
    assert_eq!((own("closed").deny.len(), own("open").deny.len()), (1, 0));

    let inner = || reaching(&["10.1.2.3"], &["0.0.0.0/0"]);
    let refused = put("inner", inner()).await.unwrap_err().to_string();
    assert!(refused.contains("10.1.2.3, which is private"), "{refused}");
    assert!(service.action(&name("inner")).is_none());
    allowed(json!(["10.1.0.0/16"])).await;
    let inner = put("inner", inner()).await.unwrap();
    assert_eq!(own("inner").allow.len(), 1);
    assert!(own("open").allow.is_empty());

    // What the operator takes back is closed in the VMs that there are, and no other one has to be made for it.
    allowed(json!([])).await;
    for made in [&closed, &open, &inner] {
        assert_eq!(service.action(&made.name).unwrap().index, made.index);
    }
    assert!(service.tenants.openable(&Namespace::guest()).now().is_empty());
    // It is no reason not to serve the action, but no change is accepted with it.
    service.actions.forget_all();
    service.restore().await;
    assert_eq!((own("inner").allow.len(), own("inner").deny.len()), (1, 1));
    assert_eq!(own("closed").deny.len(), 1);
    let refused = put("inner", body("{}")).await.unwrap_err().to_string();
    assert!(refused.contains("10.1.2.3, which is private"), "{refused}");
    allowed(json!(["10.0.0.0/8"])).await;
    put("inner", body("{}")).await.unwrap();
}

#[tokio::test]
async fn what_is_taken_back_is_closed_even_if_no_other_vm_could_be_made() {
    let (service, _hold, directory) = service().await;
    let allowed = async |list: Value| {
        let change = changed(json!({ "network_allow": list }));
        service.change_namespace(&Namespace::guest(), change).await
    };
    allowed(json!(["10.1.0.0/16"])).await.unwrap();
    let made =
        service.put_action(name("g"), reaching(&["10.1.2.3"], &[]), None, false, ()).await.unwrap();
    let openable = service.tenants.openable(&Namespace::guest());
    fs::rename(service.files.initramfs(), directory.path().join("aside")).unwrap();
    let refused = service.put_action(name("g"), body("{}"), None, true, ()).await;
    assert!(matches!(refused, Err(ServiceError::Invalid(_))), "{refused:?}");
    allowed(json!([])).await.unwrap();
    assert!(openable.now().is_empty());
    assert_eq!(service.action(&name("g")).unwrap().index, made.index);
}

#[tokio::test]
async fn a_namespace_whose_actions_cannot_be_removed_yet_ends_later() {
    let (service, _hold, directory) = service().await;
    let acme: Namespace = "acme".parse().unwrap();
    service.create_namespace(&acme, NamespaceChange::default()).await.unwrap();
    let exec = r#"{ "exec": { "kind": "blackbox", "image": "f" } }"#;
    service.put_action(name("/acme/f"), body(exec), None, false, ()).await.unwrap();
    // A file cannot take the place of a directory.
    let (file, aside) = (directory.path().join("actions.json"), directory.path().join("aside"));
    fs::rename(&file, &aside).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(service.delete_namespace(acme.clone(), true).await.is_err());
    assert!(service.tenants.going().contains(&acme));
    fs::remove_dir(&file).unwrap();
    fs::rename(&aside, &file).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while !service.tenants.going().is_empty() {
        assert!(Instant::now() < until, "it goes on by itself");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(service.action(&name("/acme/f")).is_none());
    service.create_namespace(&acme, NamespaceChange::default()).await.unwrap();
    assert!(service.describe_actions(&acme).is_empty());
}

fn package(text: &str) -> squeezy_openwhisk::package::PackageBody {
    serde_json::from_str(text).unwrap()
}

/// The arguments of a call with this one.
async fn arguments(service: &Service, called: &str, given: Value) -> Value {
    let Callable { action, packages } = service.callable(&name(called)).await.unwrap();
    let Value::Object(given) = given else { panic!("{given}") };
    action.arguments(&packages, given)
}

#[tokio::test]
async fn who_is_nearer_to_the_call_goes_before_whom_is_farther() {
    let (service, _hold, _directory) = service().await;
    let pairs = |keys: &str, value: &str| {
        let pair = |key| format!(r#"{{ "key": "{key}", "value": "{value}" }}"#);
        let pairs: Vec<_> = keys.chars().map(pair).collect();
        format!(r#""parameters": [{}]"#, pairs.join(", "))
    };
    let of_package = format!("{{ {} }}", pairs("abcd", "package"));
    service.put_package(name("p"), package(&of_package), false).await.unwrap();
    let binding = format!(r#"{{ "binding": {{ "name": "p" }}, {} }}"#, pairs("bcd", "binding"));
    service.put_package(name("b"), package(&binding), false).await.unwrap();
    let image = r#"{ "exec": { "kind": "blackbox", "image": "f" }, "#;
    let action = body(&format!("{image}{} }}", pairs("cd", "action")));
    service.put_action(name("p/g"), action, None, false, ()).await.unwrap();

    let right = json!({ "a": "package", "b": "package", "c": "action", "d": "call" });
    assert_eq!(arguments(&service, "p/g", json!({ "d": "call" })).await, right);
    let right = json!({ "a": "package", "b": "binding", "c": "action", "d": "call" });
    assert_eq!(arguments(&service, "b/g", json!({ "d": "call" })).await, right);
    let described = service.describe_action(&name("b/g")).unwrap();
    assert_eq!((&described["namespace"], &described["name"]), (&json!("guest/p"), &json!("g")));
    let values: Vec<_> =
        described["parameters"].as_array().unwrap().iter().map(|pair| &pair["value"]).collect();
    assert_eq!(values, ["package", "binding", "action", "action"]);
    let described = service.describe_package(&name("b")).unwrap();
    assert_eq!(described["actions"][0]["name"], "g");
    assert_eq!(described["parameters"][1]["value"], "binding");
    // Its provider is gone: nothing is left of it but the name.
    service.delete_action(name("p/g")).await.unwrap();
    service.delete_package(name("p")).await.unwrap();
    assert!(matches!(service.callable(&name("b/g")).await, Err(ServiceError::NotFound)));
    service.delete_package(name("b")).await.unwrap();
}

#[tokio::test]
async fn an_action_s_package_is_there_as_long_as_the_action() {
    let (service, _hold, _directory) = service().await;
    let image = body(r#"{ "exec": { "kind": "blackbox", "image": "f" } }"#);
    let put = |called| service.put_action(name(called), image.clone(), None, false, ());
    assert!(matches!(put("p/g").await, Err(ServiceError::NotFound)));
    service.put_package(name("p"), package("{}"), false).await.unwrap();
    let binding = package(r#"{ "binding": { "name": "p" } }"#);
    service.put_package(name("b"), binding.clone(), false).await.unwrap();
    put("p/g").await.unwrap();
    assert!(matches!(put("p/g").await, Err(ServiceError::Exists)));
    assert!(matches!(put("p/g/h").await, Err(ServiceError::Invalid(_))));
    assert!(matches!(put("b/h").await, Err(ServiceError::Invalid(_))));
    let through = service.delete_action(name("b/g")).await;
    assert!(matches!(through, Err(ServiceError::Invalid(_))));
    let kept = service.delete_package(name("p")).await.unwrap_err();
    assert_eq!(kept.to_string(), "Package not empty (contains 1 actions)");
    // Also if it cannot be served.
    service.actions.forget_all();
    let stored = service.changing.of_operator().await.actions()[&name("p/g")].clone();
    let unavailable = Unavailable { stored, problem: String::new() };
    lock(&service.unavailable).insert(name("p/g"), unavailable);
    assert!(matches!(service.delete_package(name("p")).await, Err(ServiceError::Conflict(_))));
    service.delete_action(name("p/g")).await.unwrap();
    service.delete_package(name("p")).await.unwrap();
    assert!(matches!(service.delete_package(name("p")).await, Err(ServiceError::NotFound)));
}

#[tokio::test]
async fn a_binding_is_to_a_package_that_is_there_and_to_no_binding() {
    let (service, _hold, _directory) = service().await;
    let bound = |to: &str| package(&format!(r#"{{ "binding": {{ "name": "{to}" }} }}"#));
    let put = |called, body, overwrite| service.put_package(name(called), body, overwrite);
    assert!(matches!(put("b", bound("p"), false).await, Err(ServiceError::Invalid(_))));
    put("p", package("{}"), false).await.unwrap();
    put("b", bound("p"), false).await.unwrap();
    assert!(matches!(put("c", bound("b"), false).await, Err(ServiceError::Invalid(_))));
    assert!(matches!(put("b", bound("b"), true).await, Err(ServiceError::Invalid(_))));
    assert!(matches!(put("p", bound("p"), true).await, Err(ServiceError::Conflict(_))));
    assert!(matches!(put("b", bound("p"), false).await, Err(ServiceError::Exists)));
    assert!(matches!(put("default", package("{}"), false).await, Err(ServiceError::Invalid(_))));
    let changed = put("b", package(r#"{ "annotations": [] }"#), true).await.unwrap();
    assert_eq!((&changed["binding"]["name"], &changed["version"]), (&json!("p"), &json!("0.0.2")));
    // A package that has become a binding is nobody's provider any more.
    service.delete_package(name("p")).await.unwrap();
    put("q", package("{}"), false).await.unwrap();
    put("p", bound("q"), false).await.unwrap();
    assert!(matches!(service.resolve(&name("b/g")), Err(ServiceError::NotFound)));
    assert_eq!(service.describe_packages(&Namespace::guest()).len(), 3);
    assert!(service.describe_packages(&"acme".parse().unwrap()).is_empty());
}

#[tokio::test]
async fn a_namespace_that_goes_takes_its_packages_with_it() {
    let (service, _hold, _directory) = service().await;
    let acme: Namespace = "acme".parse().unwrap();
    let put = |called| service.put_package(name(called), package("{}"), false);
    assert!(matches!(put("/acme/p").await, Err(ServiceError::NotFound)));
    service.create_namespace(&acme, NamespaceChange::default()).await.unwrap();
    put("/acme/p").await.unwrap();
    put("p").await.unwrap();
    let kept = service.delete_namespace(acme.clone(), false).await.unwrap_err().to_string();
    assert_eq!(kept, "The namespace has packages (1): delete them first, or use force.");
    // A daemon that was killed right after it began goes on.
    service.tenants.begin_to_go(&acme).await.unwrap();
    assert!(matches!(put("/acme/q").await, Err(ServiceError::NotFound)));
    service.go_on_deleting().await;
    assert!(service.describe_packages(&acme).is_empty());
    assert_eq!(service.describe_packages(&Namespace::guest()).len(), 1);
    let state = service.changing.of_operator().await;
    assert_eq!(state.packages().keys().collect::<Vec<_>>(), [&name("p")]);
}
