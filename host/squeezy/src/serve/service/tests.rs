//! Calling and changing actions; `tests/serve.rs` does so with VMs.

use super::*;
use serde_json::{Map, json};
use squeezy_node::{NodeEvent, Observer};
use squeezy_openwhisk::activation::{Activation, Status};
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
    let text = "memory = \"64T\"\npolicy = \"static\"\naccelerator = \"tcg\"\nqueue = 1";
    let config = Config::parse(text, directory.path()).unwrap();
    let (hold, gate) = channel();
    let gate = Arc::new(Gate(Mutex::new(gate)));
    let node = Node::start(Budget::new(config.memory_bytes), None, Instant::now(), gate);
    let kept = Kept::open(directory.path()).unwrap();
    let bodies = Bodies::new(64 << 20);
    let store = directory.path().join("squeezy.db");
    let store = Store::open(&store, config.store_limits(&bodies), |_| ()).unwrap();
    let service = Service::new(config, files, node, kept, Arc::new(store), bodies, Arc::default());
    let service = Arc::new(service);
    service.add_functions(&[image.into()]).await.unwrap();
    (service, hold, directory)
}

fn body(text: &str) -> ActionBody {
    serde_json::from_str(text).unwrap()
}

/// The result of a call that was accepted.
type Call = JoinHandle<Result<Arc<Activation>, ServiceError>>;

/// Calls `f`; the call waits for its VM.
async fn waiting(service: &Arc<Service>, id: &str) -> Call {
    let action = service.action("f").unwrap();
    let (accepted, call) = service.call(action, id.to_owned(), Map::new(), Arc::from([]));
    accepted.await.unwrap();
    call
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_change_keeps_those_who_wait() {
    let (service, hold, _directory) = service().await;
    let call = waiting(&service, "1").await;
    service.put_action("f".to_owned(), body("{}"), None, true).await.unwrap();
    // The node executes requests in order, but a boot may end at any time.
    assert_eq!(service.node.status().await.unwrap().functions.len(), 1);
    drop(hold);
    let activation = call.await.unwrap().unwrap();
    assert_eq!((activation.version.as_str(), activation.status), ("0.0.2", Status::InternalError));
}

#[tokio::test]
async fn a_change_keeps_what_it_does_not_say() {
    let (service, _hold, _directory) = service().await;
    let text = r#"{ "parameters": [{ "key": "a", "value": 1 }], "limits": { "timeout": 5 } }"#;
    service.put_action("f".to_owned(), body(text), None, true).await.unwrap();
    let text = r#"{ "exec": { "kind": "blackbox", "image": "f" }, "annotations": [] }"#;
    let action = service.put_action("f".to_owned(), body(text), None, true).await.unwrap();
    assert_eq!((action.revision, action.arguments(Map::new())), (3, json!({ "a": 1 })));
    assert_eq!(action.describe()["limits"]["timeout"], 5);
}

#[tokio::test]
async fn limits_are_in_force_or_refused() {
    let (service, _hold, _directory) = service().await;
    let limits = |text: &str| {
        let body =
            format!(r#"{{ "exec": {{ "kind": "blackbox", "image": "f" }}, "limits": {text} }}"#);
        service.put_action("g".to_owned(), self::body(&body), None, true)
    };
    let action = limits(r#"{ "memory": 256, "logs": 1 }"#).await.unwrap();
    assert_eq!(action.image.function.memory_bytes, 256 << 20);
    let action = limits(r#"{ "timeout": 7 }"#).await.unwrap();
    let right = json!({ "timeout": 7, "memory": 256, "logs": 1, "concurrency": 1 });
    assert_eq!(action.describe()["limits"], right);
    for wrong in [r#"{ "concurrency": 2 }"#, r#"{ "memory": 0 }"#, r#"{ "logs": 11 }"#] {
        let refused = limits(wrong).await;
        assert!(matches!(refused, Err(ServiceError::Invalid(_))), "{wrong}");
    }
    assert_eq!(service.action("g").unwrap().describe()["limits"], right);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn who_was_accepted_can_ask_what_came_of_it() {
    let (service, _hold, _directory) = service().await;
    let call = waiting(&service, "1").await;
    let (accepted, refused) =
        service.call(service.action("f").unwrap(), "2".to_owned(), Map::new(), Arc::from([]));
    assert!(accepted.await.is_err());
    assert!(matches!(refused.await.unwrap(), Err(ServiceError::Busy)));
    assert!(service.store.find("2").await.unwrap().is_none());
    service.delete_action("f".to_owned()).await.unwrap();
    assert!(matches!(call.await.unwrap(), Err(ServiceError::NotFound)));
    let found = service.store.find("1").await.unwrap().unwrap();
    assert_eq!(found.activation.status, Status::InternalError);
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_nothing_half_done() {
    let (service, _hold, _directory) = service().await;
    let put = service.put_action("f".to_owned(), ActionBody::default(), None, true);
    tokio::select! {
        biased;
        _ = put => unreachable!("the node has not been asked yet"),
        () = std::future::ready(()) => {}
    }
    let changed = async {
        while service.action("f").unwrap().revision == 1 {
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
    let put = service.put_action("f".to_owned(), body("{}"), None, true).await;
    assert!(matches!(put, Err(ServiceError::Internal(_))));
    assert_eq!(service.action("f").unwrap().revision, 1);
    assert_eq!(service.node.status().await.unwrap().functions.len(), 1);
}

#[tokio::test]
async fn an_action_without_its_image_is_kept() {
    let (service, _hold, directory) = service().await;
    let limits = r#"{ "memory": 64 }"#;
    let text =
        format!(r#"{{ "exec": {{ "kind": "blackbox", "image": "f" }}, "limits": {limits} }}"#);
    let change = body(&text);
    let digest = service.put_action("g".to_owned(), change, None, false).await.unwrap().describe();
    let digest = digest["exec"]["digest"].as_str().unwrap().to_owned();
    // What is now built under its name is not its image.
    let kept = directory.path().join("pinned").join(&digest["sha256:".len()..]);
    fs::rename(&kept, directory.path().join("kept")).unwrap();
    lock(&service.actions).clear();
    service.restore().await;
    assert!(service.action("g").is_none());
    let [described] = &service.describe_actions()[..] else { panic!("there is g alone") };
    let problem = described["problem"].as_str().unwrap();
    assert!(problem.contains(&digest) && problem.contains("--overwrite"), "{problem}");
    assert_eq!(
        (&described["exec"]["image"], &described["limits"]["memory"]),
        (&json!("f"), &json!(64))
    );
    assert!(matches!(service.callable("g").await, Err(ServiceError::Unavailable(_))));
    let again = || service.put_action("g".to_owned(), ActionBody::default(), None, false);
    assert!(matches!(again().await, Err(ServiceError::Exists)));
    // It is served again, unchanged, once its image is back.
    fs::rename(directory.path().join("kept"), &kept).unwrap();
    assert_eq!(service.callable("g").await.unwrap().revision, 1);
    assert!(service.describe_action("g").unwrap().get("problem").is_none());
}

#[tokio::test]
async fn an_action_without_its_image_can_be_changed_and_deleted() {
    let (service, _hold, directory) = service().await;
    let change =
        body(r#"{ "exec": { "kind": "blackbox", "image": "f" }, "limits": { "timeout": 5 } }"#);
    for name in ["g", "h"] {
        service.put_action(name.to_owned(), change.clone(), None, false).await.unwrap();
    }
    let digest = service.action("g").unwrap().describe()["exec"]["digest"].clone();
    let kept = directory.path().join("pinned").join(&digest.as_str().unwrap()["sha256:".len()..]);
    fs::remove_file(kept.join("image.erofs")).unwrap();
    lock(&service.actions).clear();
    service.restore().await;
    assert!(service.describe_action("h").unwrap()["problem"].is_string());
    let image = body(r#"{ "exec": { "kind": "blackbox", "image": "f" } }"#);
    let changed = service.put_action("g".to_owned(), image, None, true).await.unwrap();
    assert_eq!((changed.revision, changed.body.limits().timeout), (2, Some(5)));
    assert_eq!(service.delete_action("h".to_owned()).await.unwrap()["name"], "h");
    assert!(service.describe_action("h").is_none());
    assert!(matches!(service.delete_action("h".to_owned()).await, Err(ServiceError::NotFound)));
    let state = service.changing.lock().await;
    assert_eq!(state.actions().keys().collect::<Vec<_>>(), ["g"]);
}

/// The contents of these actions' images.
fn programs(service: &Service, names: &[&str]) -> Vec<String> {
    let read =
        |name: &&str| fs::read_to_string(&service.action(name).unwrap().image.image).unwrap();
    names.iter().map(read).collect()
}

#[tokio::test]
async fn each_action_runs_what_it_was_made_of() {
    let (service, _hold, directory) = service().await;
    let exec = r#"{ "exec": { "kind": "blackbox", "image": "f" } }"#;
    for name in ["g", "h"] {
        fs::write(service.files.image("f"), name).unwrap();
        service.put_action(name.to_owned(), body(exec), None, false).await.unwrap();
    }
    fs::write(service.files.image("f"), "refused").unwrap();
    let refused = service.put_action("g".to_owned(), body(exec), None, false).await;
    assert!(matches!(refused, Err(ServiceError::Exists)));
    let wrong = exec.replace("}", "").to_owned() + r#"}, "limits": { "memory": 0 } }"#;
    let refused = service.put_action("g".to_owned(), body(&wrong), None, true).await;
    assert!(matches!(refused, Err(ServiceError::Invalid(_))), "{refused:?}");
    // The function's configuration does not apply either.
    service.put_action("h".to_owned(), body(r#"{ "annotations": [] }"#), None, true).await.unwrap();
    assert_eq!(programs(&service, &["g", "h"]), ["g", "h"]);
    lock(&service.actions).clear();
    service.restore().await;
    assert_eq!(programs(&service, &["g", "h"]), ["g", "h"]);
    let kept = || fs::read_dir(directory.path().join("pinned")).unwrap().count();
    assert_eq!(kept(), 2);
    service.delete_action("h".to_owned()).await.unwrap();
    assert_eq!(kept(), 1);
    service.delete_action("g".to_owned()).await.unwrap();
    assert_eq!(kept(), 0);
}

#[tokio::test]
async fn what_an_earlier_version_has_kept_is_pinned_from_then_on() {
    let (service, _hold, directory) = service().await;
    let body: ActionBody = body(r#"{ "annotations": [] }"#);
    let image = PathBuf::from("f");
    let stored = StoredAction { image, digest: None, code: None, revision: 3, updated_ms: 7, body };
    service.changing.lock().await.put("g", stored).await.unwrap();
    fs::write(service.files.image("f"), "then").unwrap();
    service.restore().await;
    fs::write(service.files.image("f"), "now").unwrap();
    lock(&service.actions).clear();
    service.restore().await;
    assert_eq!(programs(&service, &["g"]), ["then"]);
    assert_eq!(service.action("g").unwrap().revision, 3);
    assert_eq!(fs::read_dir(directory.path().join("pinned")).unwrap().count(), 1);
}
