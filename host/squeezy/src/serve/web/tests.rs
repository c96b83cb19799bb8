//! Tests of the page without a browser; `tests/web.rs` runs it in one.

use super::*;
use crate::serve::{log::Log, service::tests::service};
use axum::{
    body::to_bytes,
    http::{HeaderValue, StatusCode},
};
use serde_json::json;
use squeezy_node::NodeStatus;
use squeezy_openwhisk::QualifiedName;
use squeezy_scaler::{Budget, Counts, VmIndex, VmState};
use squeezy_vmm::MemoryUse;
use std::time::Duration;

#[test]
fn a_file_needs_nothing_from_elsewhere_and_makes_no_markup_of_data() {
    for (name, _, content) in assets::FILES {
        let foreign = content.replace("http://www.w3.org/2000/svg", "");
        assert!(!foreign.contains("://"), "{name} names another place");
        for way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!content.contains(way), "{name} has {way}");
        }
        // The content security policy forbids both.
        assert!(!content.contains("style=\"") && !content.contains("<style"), "{name}");
        for import in content.split("from \"./").skip(1) {
            let file = import.split('"').next().unwrap();
            assert_eq!(assets::file(file).status(), StatusCode::OK, "{name} imports {file}");
        }
        for link in content.split("\"/ui/").skip(1) {
            let file = link.split('"').next().unwrap();
            assert!(file.contains(".json") || assets::file(file).status().is_success(), "{file}");
        }
    }
    assert_eq!(assets::file("../mod.rs").status(), StatusCode::NOT_FOUND);
}

async fn text(response: Response) -> String {
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

/// A page of a service with the action `f`, and what keeps it.
async fn page() -> (Arc<Page>, impl Sized, impl Sized) {
    let (service, hold, directory) = service().await;
    let watch = Arc::new(Watch::new(1 << 30));
    let log = Arc::new(Log(watch.clone()));
    let node = Node::start(Budget::new(1), None, Instant::now(), log);
    (Page::new(node, service, watch, Instant::now(), "squeezy", 1 << 30), hold, directory)
}

#[tokio::test]
async fn browsers_get_the_page_and_clients_what_they_know() {
    let (page, _hold, _directory) = page().await;
    let start = |headers| start(State(page.clone()), headers);
    let mut headers = HeaderMap::new();
    assert!(text(start(headers.clone()).await).await.contains("\"description\":\"OpenWhisk\""));
    headers.insert(ACCEPT, HeaderValue::from_static("text/html,application/xhtml+xml"));
    let page = start(headers).await;
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert!(text(page).await.starts_with("<!doctype html>"));
}

/// Whether or not anybody asks for metrics.
#[tokio::test]
async fn what_sweeps_take_is_shown_and_how_long_they_took() {
    let (page, _hold, _directory) = page().await;
    let index = page.service.action(&QualifiedName::guest("f")).unwrap().index;
    let vm = VmIndex(3);
    let sample = |swept_bytes, milliseconds| {
        let sweeps_took = Duration::from_millis(milliseconds);
        let memory = MemoryUse { swept_bytes, sweeps_took, ..MemoryUse::default() };
        NodeStatus {
            functions: vec![(index, Counts::default())],
            vm_of: BTreeMap::from([(index, vm)]),
            vms: vec![(vm, VmState::Up { empty_since: None }, Some(memory))],
            ..NodeStatus::default()
        }
    };
    let sight = Sight::of(&page.service.tenants, &HeaderMap::new()).unwrap();
    // The last one is of a VM that was booted in between.
    let samples = [((7, 2), (7, 2.0)), ((7, 2), (7, 2.0)), ((9, 5), (9, 5.0)), ((4, 1), (13, 6.0))];
    for (at_ms, ((bytes, milliseconds), right)) in (1000..).step_by(1000).zip(samples) {
        page.take(at_ms, &sample(bytes, milliseconds));
        let state = state::state(&page, 0, &sight);
        let function = &state["functions"][0];
        assert_eq!(
            (&function["taken_bytes"], &function["taking_ms"]),
            (&json!(right.0), &json!(right.1))
        );
    }
}

#[tokio::test]
async fn a_function_is_shown_from_its_first_sample_until_it_is_gone() {
    let (page, _hold, _directory) = page().await;
    let index = page.service.action(&QualifiedName::guest("f")).unwrap().index;
    let status = NodeStatus {
        functions: vec![(index, Counts { busy: 1, promised_bytes: 7, ..Counts::default() })],
        ..NodeStatus::default()
    };
    let sight = Sight::of(&page.service.tenants, &HeaderMap::new()).unwrap();
    page.take(1000, &status);
    let state = state::state(&page, 0, &sight);
    assert_eq!(state["functions"][0]["name"], "f");
    assert_eq!(state["functions"][0]["instance_bytes"], 1u64 << 40);
    assert_eq!(state["functions"][0]["promised_bytes"], 7);
    assert_eq!(state["samples"][0]["functions"]["f"][3], 1);
    assert_eq!(state::state(&page, 1000, &sight)["samples"], json!([]));
    page.take(2000, &NodeStatus::default());
    let state = state::state(&page, 1000, &sight);
    assert_eq!(state["functions"], json!([]));
    assert_eq!(state["samples"][0]["functions"], json!({}));
}
