//! What sequences there may be, and what becomes of their calls where no VM boots; `tests/openwhisk.rs` has one that
//! does.

use super::*;
use crate::serve::{
    bodies::{Payer, Portion},
    service::tests::{changed, service},
};
use serde_json::json;
use squeezy_openwhisk::package::PackageBody;

fn name(text: &str) -> QualifiedName {
    text.parse().unwrap()
}

fn body(value: Value) -> ActionBody {
    serde_json::from_value(value).unwrap()
}

/// Puts a sequence; returns what is wrong with it, if anything.
async fn put(service: &Arc<Service>, called: &str, components: &[&str]) -> Option<String> {
    let exec = json!({ "exec": { "kind": "sequence", "components": components } });
    let put = service.put(name(called), body(exec), None, true, ()).await;
    put.err().map(|error| error.to_string())
}

async fn put_action(service: &Arc<Service>, called: &str) {
    let image = json!({ "exec": { "kind": "blackbox", "image": "f" } });
    service.put_action(name(called), body(image), None, true, ()).await.unwrap();
}

async fn put_package(service: &Arc<Service>, called: &str, package: Value) -> Option<String> {
    let package: PackageBody = serde_json::from_value(package).unwrap();
    let put = service.put_package(name(called), package, true).await;
    put.err().map(|error| error.to_string())
}

async fn call(service: &Arc<Service>, called: &str) -> Arc<Activation> {
    let callee = service.callee(&name(called)).await.unwrap();
    let id = service.new_id().unwrap();
    let (part, origin) = (service.bodies.part(Payer::alone()), CallOrigin::default());
    let (_, call) = service.call(callee, id, Map::new(), origin, None, part);
    tokio::time::timeout(Duration::from_secs(20), call).await.unwrap().unwrap().unwrap().activation
}

async fn found(service: &Service, id: &str) -> Arc<Activation> {
    let found = service.store.find(&Namespace::guest(), id).await.unwrap().unwrap();
    service.store.load(vec![found]).await.unwrap().pop().unwrap()
}

#[tokio::test]
async fn a_sequence_is_an_action_like_others() {
    let (service, _hold, _directory) = service().await;
    put_action(&service, "g").await;
    assert_eq!(put(&service, "s", &["/_/f", "/guest/g"]).await, None);
    let again = json!({ "exec": { "kind": "sequence", "components": ["/_/f"] } });
    let refused = service.put(name("s"), body(again), None, false, ()).await;
    assert!(matches!(refused, Err(ServiceError::Exists)));
    let parameters = json!({ "parameters": [{ "key": "a", "value": 1 }] });
    let changed = service.put(name("s"), body(parameters), None, true, ()).await.unwrap();
    assert_eq!(changed["exec"]["components"], json!(["/guest/f", "/guest/g"]));
    assert_eq!(changed["version"], "0.0.2");
    assert_eq!(service.describe_action(&name("s")).unwrap(), changed);
    assert_eq!(service.describe_actions(&Namespace::guest()).len(), 3);
    // It is there again, and becomes an action and a sequence again; what is not said stays.
    lock(&service.sequences).clear();
    service.restore().await;
    assert_eq!(service.describe_action(&name("s")).unwrap(), changed);
    put_action(&service, "s").await;
    let action = service.action(&name("s")).unwrap();
    assert_eq!((action.revision, service.sequence(&name("s"))), (3, None));
    let functions = service.node.status().await.unwrap().functions.len();
    assert_eq!(put(&service, "s", &["/_/f"]).await, None);
    assert!(service.action(&name("s")).is_none());
    assert_eq!(service.node.status().await.unwrap().functions.len(), functions - 1);
    let deleted = service.delete_action(name("s")).await.unwrap();
    assert_eq!(
        (&deleted["version"], &deleted["parameters"][0]["key"]),
        (&json!("0.0.4"), &json!("a"))
    );
    assert!(service.describe_action(&name("s")).is_none());
    assert!(service.changing.of_operator().await.sequences().is_empty());
}

#[tokio::test]
async fn what_cannot_be_a_sequence_is_refused() {
    let (service, _hold, _directory) = service().await;
    assert_eq!(put(&service, "s", &["/_/f"]).await, None);
    let cyclic = Some("Sequence may not refer to itself.".to_owned());
    assert_eq!(put(&service, "s", &["/_/s"]).await, cyclic);
    assert_eq!(put(&service, "f", &["/_/s"]).await, cyclic, "it is a configured function");
    let missing = Some("Sequence component does not exist.".to_owned());
    assert_eq!(put(&service, "t", &["/_/none"]).await, missing);
    assert_eq!(put(&service, "t", &["/_/none/g"]).await, missing);
    let empty = Some("No component specified for the sequence.".to_owned());
    assert_eq!(put(&service, "t", &[]).await, empty);
    let long = Some("Too many actions in the sequence.".to_owned());
    assert_eq!(put(&service, "t", &["/_/f"; MOST_ACTIONS + 1]).await, long);
    let error = put(&service, "t", &["/acme/f"]).await.unwrap();
    assert_eq!(error, "a sequence can only have components of its own namespace");
    assert!(service.sequence(&name("t")).is_none());
    assert!(put(&service, "none/s", &["/_/f"]).await.is_some());
}

#[tokio::test]
async fn a_binding_makes_no_cycle() {
    let (service, _hold, _directory) = service().await;
    for package in ["p", "q"] {
        assert_eq!(put_package(&service, package, json!({})).await, None);
    }
    let binding = |to: &str| json!({ "binding": { "name": to } });
    put_action(&service, "p/x").await;
    assert_eq!(put_package(&service, "b", binding("p")).await, None);
    assert_eq!(put(&service, "s", &["/_/b/x"]).await, None);
    assert_eq!(put(&service, "q/x", &["/_/s"]).await, None);
    let cyclic = Some("Sequence may not refer to itself.".to_owned());
    assert_eq!(put_package(&service, "b", binding("q")).await, cyclic);
    assert_eq!(put(&service, "p/x", &["/_/s"]).await, cyclic);
    // Nor when it is made anew.
    service.delete_package(name("b")).await.unwrap();
    assert_eq!(put_package(&service, "b", binding("q")).await, cyclic);
    assert_eq!(put_package(&service, "b", binding("p")).await, None);
}

#[tokio::test]
async fn sequences_count_as_actions_and_go_with_their_namespace() {
    let (service, _hold, _directory) = service().await;
    let acme: Namespace = "acme".parse().unwrap();
    let two = changed(json!({ "quotas": { "actions": 2 } }));
    service.create_namespace(&acme, two).await.unwrap();
    put_action(&service, "/acme/f").await;
    assert_eq!(put(&service, "/acme/s", &["/_/f"]).await, None);
    let refused = put(&service, "/acme/t", &["/_/f"]).await.unwrap();
    assert_eq!(refused, "The namespace may have 2 actions: delete one first.");
    service.delete_action(name("/acme/f")).await.unwrap();
    let kept = service.delete_namespace(acme.clone(), false).await.unwrap_err().to_string();
    assert!(kept.contains("actions (1)"), "{kept}");
    service.delete_namespace(acme.clone(), true).await.unwrap();
    assert!(service.sequence(&name("/acme/s")).is_none() && !service.tenants.has(&acme));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn the_first_component_that_fails_ends_it() {
    let (service, hold, _directory) = service().await;
    drop(hold);
    put_action(&service, "g").await;
    assert_eq!(put(&service, "inner", &["/_/f", "/_/g"]).await, None);
    assert_eq!(put(&service, "s", &["/_/inner", "/_/g"]).await, None);
    let whole = call(&service, "s").await;
    assert_eq!((whole.status, &*whole.kind), (Status::InternalError, "sequence"));
    assert!(whole.result["error"].as_str().unwrap().contains("could not be booted"));
    let [inner] = &whole.logs[..] else { panic!("{:?}", whole.logs) };
    let inner = found(&service, inner).await;
    assert_eq!((&inner.cause, &*inner.action.name), (&Some(whole.id.clone()), "inner"));
    let [part] = &inner.logs[..] else { panic!("{:?}", inner.logs) };
    let part = found(&service, part).await;
    assert_eq!((&part.cause, &*part.action.name), (&Some(inner.id.clone()), "f"));
    assert_eq!((&part.result, whole.took), (&whole.result, inner.took));
    assert!(whole.limits.as_ref().unwrap()["memory"].as_u64() > Some(0));
    assert_eq!(found(&service, &whole.id).await.limits, whole.limits);
    // It was one call.
    assert_eq!(service.tenants.calls(&Namespace::guest()), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn a_component_that_has_gone_or_has_grown_is_said() {
    let (service, _hold, _directory) = service().await;
    put_action(&service, "g").await;
    assert_eq!(put(&service, "s", &["/_/g"]).await, None);
    service.delete_action(name("g")).await.unwrap();
    let activation = call(&service, "s").await;
    assert_eq!(activation.status, Status::ApplicationError);
    assert_eq!(activation.result, json!({ "error": "Sequence component does not exist." }));
    assert!(activation.logs.is_empty() && activation.limits.is_none());
    // From the outside in, each is put while the next is an action.
    for depth in 0..=MOST_DEPTH {
        put_action(&service, &format!("s{depth}")).await;
    }
    for depth in (1..=MOST_DEPTH).rev() {
        let inner = format!("/_/s{}", depth - 1);
        assert_eq!(put(&service, &format!("s{depth}"), &[&inner]).await, None);
    }
    assert_eq!(put(&service, "s0", &["/_/f"]).await, None);
    let activation = call(&service, &format!("s{MOST_DEPTH}")).await;
    assert_eq!(activation.status, Status::ApplicationError);
    assert_eq!(activation.result["error"], SequenceProblem::TooDeep.to_string());
}

#[tokio::test]
async fn a_web_action_may_be_a_sequence() {
    let (service, _hold, _directory) = service().await;
    assert_eq!(put(&service, "s", &["/_/f"]).await, None);
    assert!(matches!(service.web_action(&name("s")), Err(ServiceError::NotFound)));
    let exported = json!({ "annotations": [{ "key": "web-export", "value": true }] });
    service.put(name("s"), body(exported), None, true, ()).await.unwrap();
    let (callee, _) = service.web_action(&name("s")).unwrap();
    assert_eq!(callee.name(), &name("s"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn strangers_have_half_of_a_component_s_queue_whatever_they_call() {
    let (service, _hold, _directory) = service().await;
    *lock(&service.config) = Arc::new(Config { queue: 4, ..(*service.config()).clone() });
    put_action(&service, "g").await;
    for sequence in ["s", "t"] {
        assert_eq!(put(&service, sequence, &["/_/g"]).await, None);
        let exported = json!({ "annotations": [{ "key": "web-export", "value": true }] });
        service.put(name(sequence), body(exported), None, true, ()).await.unwrap();
    }
    let strangers = Strangers::new(16 << 20);
    let ask = |called: &str| {
        let (callee, export) = service.web_action(&name(called)).unwrap();
        let stranger = strangers.call(&name(called), Portion::All, 4);
        assert!(stranger.is_some());
        let web = Some(WebCall { export, stranger });
        let origin = CallOrigin { web, ..CallOrigin::default() };
        let (id, part) = (service.new_id().unwrap(), service.bodies.part(Payer::alone()));
        service.call(callee, id, Map::new(), origin, None, part).1
    };
    // They wait for a VM that does not boot.
    let _waiting = [ask("s"), ask("s")];
    let until = Instant::now() + Duration::from_secs(10);
    while strangers.part(&name("g"), 4).is_some() {
        assert!(Instant::now() < until, "both have a place there");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = tokio::time::timeout(Duration::from_secs(10), ask("t")).await.unwrap();
    let refused = refused.unwrap().unwrap().activation;
    let error = "Sequence failed. Too many requests are waiting for this action; try again later.";
    assert_eq!(refused.result, json!({ "error": error }));
    assert!(refused.by_stranger && refused.logs.is_empty());
    // The other half is for those with a key.
    let (id, part) = (service.new_id().unwrap(), service.bodies.part(Payer::alone()));
    let callee = service.callee(&name("g")).await.unwrap();
    let (accepted, _call) = service.call(callee, id, Map::new(), CallOrigin::default(), None, part);
    accepted.await.unwrap();
}
