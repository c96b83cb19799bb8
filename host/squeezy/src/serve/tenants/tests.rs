//! Namespaces and keys, as the daemon uses them; `tests/daemon/tenants.rs` does so over the API.

use super::*;
use base64::{Engine, prelude::BASE64_STANDARD};
use std::{
    fs,
    pin::pin,
    task::{Context, Waker},
};
use tempfile::TempDir;

fn open(directory: &TempDir) -> Tenants {
    let key = Key::read_or_make(&directory.path().join("key")).unwrap();
    Tenants::open(directory.path(), key).unwrap()
}

/// What a new namespace may have; of memory, as much as there is.
fn new() -> Quotas {
    Quotas::new(0)
}

fn nothing() -> NamespaceChange {
    NamespaceChange::default()
}

/// What changes some quotas and nothing else.
fn quotas(quotas: Value) -> NamespaceChange {
    change(json!({ "quotas": quotas }))
}

fn change(change: Value) -> NamespaceChange {
    serde_json::from_value(change).unwrap()
}

/// Has a change be written, for a client that goes away meanwhile, and waits until that is done.
async fn change_for_nobody(
    tenants: &Tenants,
    change: impl Future<Output = Result<(), TenantError>>,
) {
    let polled = pin!(change).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    // The next one comes after it.
    tenants.set(&Namespace::guest(), nothing()).await.unwrap();
}

fn namespace(name: &str) -> Namespace {
    name.parse().unwrap()
}

fn name(name: &str) -> KeyName {
    KeyName::try_from(name.to_owned()).unwrap()
}

fn basic(key: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(key))
}

fn who(tenants: &Tenants, key: &str) -> Option<Caller> {
    tenants.caller(Some(&basic(key)))
}

#[test]
fn the_operators_key_is_replaced_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let tenants = open(&directory);
    let path = directory.path().join("key");
    let text = || fs::read_to_string(&path).unwrap().trim().to_owned();
    let first = text();
    let again = || tenants.set_operator(Key::read_or_make(&path).unwrap());
    assert!(!again() && who(&tenants, &first).unwrap().role == Role::Operator);
    fs::remove_file(&path).unwrap();
    assert!(again());
    assert_eq!(
        (who(&tenants, &first), who(&tenants, &text()).unwrap().role),
        (None, Role::Operator)
    );
}

#[tokio::test]
async fn a_key_is_replaced_without_a_gap_and_outlives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let tenants = open(&directory);
    let acme = namespace("acme");
    assert!(tenants.is_alone());
    tenants.create(&acme, new(), nothing()).await.unwrap();
    assert!(!tenants.is_alone());
    let first = tenants.create_key(&acme, name("first"), Role::Call).await.unwrap().text;
    let caller = who(&tenants, &first).unwrap();
    assert_eq!((&caller.namespace, caller.role), (&acme, Role::Call));
    let second = tenants.create_key(&acme, name("second"), Role::Change).await.unwrap().text;
    for _ in 0..2 {
        assert_eq!(who(&tenants, &first).unwrap(), caller);
        assert_eq!(who(&tenants, &second).unwrap().role, Role::Change);
    }
    assert!(tenants.knows(&caller));
    tenants.revoke(&acme, &name("first")).await.unwrap();
    assert_eq!(who(&tenants, &first), None);
    assert!(!tenants.knows(&caller));
    tenants.keep_uses().await.unwrap();
    let before = tenants.keys(&acme);
    assert!(before.len() == 1 && before[0]["last_used"].is_u64(), "{before:?}");
    // What is kept is of no use to whoever reads it.
    let kept = fs::read_to_string(directory.path().join("namespaces.json")).unwrap();
    let secret = second.split_once(':').unwrap().1;
    assert!(kept.contains("second") && !kept.contains(secret), "{kept}");
    drop(tenants);
    let tenants = open(&directory);
    assert_eq!(tenants.keys(&acme), before);
    assert_eq!((who(&tenants, &first), who(&tenants, &second).is_some()), (None, true));
    let operator = fs::read_to_string(directory.path().join("key")).unwrap();
    assert_eq!(who(&tenants, operator.trim()).unwrap().role, Role::Operator);
}

#[tokio::test]
async fn nobody_is_admitted_by_half_a_key() {
    let directory = tempfile::tempdir().unwrap();
    let tenants = open(&directory);
    let guest = Namespace::guest();
    let key = tenants.create_key(&guest, name("k"), Role::Read).await.unwrap().text;
    let (id, secret) = key.split_once(':').unwrap();
    let wrong = [
        String::new(),
        ":".to_owned(),
        id.to_owned(),
        format!("{id}:"),
        format!("{id}:{}", "0".repeat(64)),
        format!("{key}0"),
        format!(":{secret}"),
        format!("{}:{secret}", "0".repeat(32)),
    ];
    for wrong in wrong {
        assert_eq!(who(&tenants, &wrong), None, "{wrong}");
    }
    for header in [None, Some("Basic \u{7f}"), Some("Bearer x"), Some("Basic //79")] {
        assert_eq!(tenants.caller(header), None, "{header:?}");
    }
    let caller = who(&tenants, &key).unwrap();
    assert_eq!((caller.namespace, caller.role), (guest, Role::Read));
}

#[tokio::test]
async fn who_knew_a_namespace_is_a_stranger_to_the_next_one_of_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let tenants = open(&directory);
    let acme = namespace("acme");
    tenants.create(&acme, new(), nothing()).await.unwrap();
    let key = tenants.create_key(&acme, name("k"), Role::Change).await.unwrap().text;
    let caller = who(&tenants, &key).unwrap();
    tenants.begin_to_go(&acme).await.unwrap();
    tenants.end(&acme).await.unwrap();
    tenants.create(&acme, new(), nothing()).await.unwrap();
    tenants.create_key(&acme, name("k"), Role::Change).await.unwrap();
    assert!(!tenants.knows(&caller) && who(&tenants, &key).is_none());
}

#[tokio::test]
async fn a_change_goes_on_if_nobody_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let tenants = open(&directory);
    let acme = namespace("acme");
    change_for_nobody(&tenants, tenants.create(&acme, new(), nothing())).await;
    assert!(tenants.has(&acme));
    drop(tenants);
    assert!(open(&directory).has(&acme));
}

#[tokio::test]
async fn everything_has_a_bound_and_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let tenants = open(&directory);
    let (acme, none) = (namespace("acme"), namespace("none"));
    tenants.create(&acme, new(), nothing()).await.unwrap();
    assert!(matches!(tenants.create(&acme, new(), nothing()).await, Err(TenantError::Exists)));
    let guest = Namespace::guest();
    assert!(matches!(tenants.create(&guest, new(), nothing()).await, Err(TenantError::Exists)));
    assert!(matches!(tenants.begin_to_go(&guest).await, Err(TenantError::Guest)));
    let key = tenants.create_key(&none, name("k"), Role::Read).await;
    assert!(matches!(key, Err(TenantError::NoNamespace)));
    let key = tenants.create_key(&acme, name("k"), Role::Monitor).await;
    assert!(matches!(key, Err(TenantError::MonitorsAll)));
    for number in 0..MOST_KEYS {
        let name = name(&format!("k{number}"));
        tenants.create_key(&acme, name, Role::Read).await.unwrap();
    }
    let key = tenants.create_key(&acme, name("k0"), Role::Read).await;
    assert!(matches!(key, Err(TenantError::KeyExists)));
    let key = tenants.create_key(&acme, name("more"), Role::Read).await;
    assert!(matches!(key, Err(TenantError::TooManyKeys(_))));
    assert!(matches!(tenants.revoke(&acme, &name("x")).await, Err(TenantError::NoKey)));
    for number in 2..MOST_NAMESPACES {
        tenants.create(&namespace(&format!("n{number}")), new(), nothing()).await.unwrap();
    }
    let more = tenants.create(&namespace("more"), new(), nothing()).await;
    assert!(matches!(more, Err(TenantError::TooManyNamespaces(_))));
}

#[tokio::test]
async fn a_namespace_that_goes_has_no_keys_and_no_calls_and_is_not_made_anew_before_it_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let tenants = open(&directory);
    let acme = namespace("acme");
    tenants.create(&acme, new(), nothing()).await.unwrap();
    let key = tenants.create_key(&acme, name("k"), Role::Change).await.unwrap().text;
    let call = tenants.call(&acme, false).unwrap();
    tenants.begin_to_go(&acme).await.unwrap();
    assert!(who(&tenants, &key).is_none() && !tenants.has(&acme));
    assert!(matches!(tenants.call(&acme, false), Err(TenantError::NoNamespace)));
    assert_eq!(tenants.calls(&acme), 1);
    drop(call);
    assert_eq!(tenants.calls(&acme), 0);
    assert!(matches!(tenants.create(&acme, new(), nothing()).await, Err(TenantError::Going)));
    drop(tenants);
    let tenants = open(&directory);
    assert_eq!(tenants.going(), std::slice::from_ref(&acme));
    tenants.end(&acme).await.unwrap();
    tenants.create(&acme, new(), nothing()).await.unwrap();
    assert!(tenants.keys(&acme).is_empty());
}

#[tokio::test]
async fn a_namespace_gets_what_it_may_have_and_its_neighbour_what_is_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let tenants = open(&directory);
    let (acme, zeta) = (namespace("acme"), namespace("zeta"));
    tenants.create(&acme, new(), quotas(json!({ "concurrent_calls": 2 }))).await.unwrap();
    tenants.create(&zeta, new(), nothing()).await.unwrap();
    let calls = [tenants.call(&acme, false).unwrap(), tenants.call(&acme, false).unwrap()];
    let refused = tenants.call(&acme, false).unwrap_err().to_string();
    let right = "Too many concurrent requests in flight (count: 2, allowed: 2).";
    assert_eq!((&*refused, tenants.calls(&acme)), (right, 2));
    assert!(tenants.call(&zeta, false).is_ok());
    drop(calls);
    assert!(tenants.call(&acme, false).is_ok());
    // From the next call on, and after a restart.
    let none = json!({ "concurrent_calls": null, "calls_per_minute": 1, "activations": 7 });
    tenants.set(&acme, quotas(none)).await.unwrap();
    assert!(matches!(tenants.call(&acme, false), Err(TenantError::Over(OverQuota::Rate { .. }))));
    assert_eq!(tenants.calls(&acme), 0);
    drop(tenants);
    let tenants = open(&directory);
    let right =
        Quotas { concurrent_calls: None, calls_per_minute: Some(1), activations: Some(7), ..new() };
    assert_eq!(tenants.quotas(&acme), right);
    assert_eq!(tenants.most_activations(), BTreeMap::from([(acme.clone(), 7)]));
    // What it has used is kept too.
    assert_eq!(tenants.used()[&acme].calls, 3, "as of the last change");
    let memory = Memory { promised_bytes: 1 << 30, occupied_bytes: 1 << 20 };
    tenants.hold(&BTreeMap::from([(acme.clone(), memory)]), Duration::from_secs(2));
    assert!(tenants.call(&acme, false).is_ok());
    tenants.keep_uses().await.unwrap();
    let right = Used { calls: 4, promised_mib_ms: 2_048_000, occupied_mib_ms: 2000 };
    assert_eq!((tenants.used()[&acme], tenants.used()[&zeta].promised_mib_ms), (right, 0));
    assert_eq!(open(&directory).used()[&acme], right);
    // The operator's own has no bounds unless it is said.
    assert_eq!(tenants.quotas(&Namespace::guest()), Quotas::default());
    let wrong = tenants.set(&acme, quotas(json!({ "calls": 1 }))).await;
    assert!(matches!(wrong, Err(TenantError::Quotas(_))));
}

#[tokio::test]
async fn what_the_operator_allows_a_namespace_is_kept_and_goes_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let tenants = open(&directory);
    let acme = namespace("acme");
    let allow: NetworkAllow = serde_json::from_value(json!(["10.1.0.0/16"])).unwrap();
    let allowed = || change(json!({ "network_allow": ["10.1.0.0/16"] }));
    let refused = tenants.set(&acme, allowed()).await;
    assert!(matches!(refused, Err(TenantError::NoNamespace)));
    tenants.create(&acme, new(), nothing()).await.unwrap();
    assert_eq!(tenants.network_allow(&acme), NetworkAllow::default());
    tenants.set(&acme, allowed()).await.unwrap();
    assert_eq!(tenants.describe(&acme).unwrap()["network_allow"], json!(["10.1.0.0/16"]));
    tenants.set(&acme, nothing()).await.unwrap();
    drop(tenants);
    let tenants = open(&directory);
    assert_eq!(tenants.network_allow(&acme), allow);
    assert_eq!(tenants.network_allow(&Namespace::guest()), NetworkAllow::default());
    tenants.begin_to_go(&acme).await.unwrap();
    tenants.end(&acme).await.unwrap();
    tenants.create(&acme, new(), nothing()).await.unwrap();
    assert_eq!(tenants.network_allow(&acme), NetworkAllow::default());
}

#[tokio::test]
async fn what_is_said_of_a_namespace_at_once_is_done_as_a_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let tenants = open(&directory);
    let acme = namespace("acme");
    let both = |calls: i64, network: &str| {
        change(json!({ "quotas": { "concurrent_calls": calls }, "network_allow": [network] }))
    };
    let wrong = tenants.create(&acme, new(), both(0, "10.1.0.0/16")).await;
    assert!(matches!(wrong, Err(TenantError::Quotas(_))) && !tenants.has(&acme));
    let is = |calls: usize, network: &str| {
        // As a daemon finds it that is killed and started now.
        for tenants in [&tenants, &open(&directory)] {
            assert_eq!(tenants.quotas(&acme).concurrent_calls, Some(calls));
            assert_eq!(json!(tenants.network_allow(&acme)), json!([network]));
        }
    };
    // Nobody goes on with a second write.
    change_for_nobody(&tenants, tenants.create(&acme, new(), both(1, "10.1.0.0/16"))).await;
    is(1, "10.1.0.0/16");
    let wrong = tenants.set(&acme, both(0, "10.2.0.0/16")).await;
    assert!(matches!(wrong, Err(TenantError::Quotas(_))));
    is(1, "10.1.0.0/16");
    change_for_nobody(&tenants, tenants.set(&acme, both(2, "10.2.0.0/16"))).await;
    is(2, "10.2.0.0/16");
}

#[tokio::test]
async fn a_change_that_cannot_be_written_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let tenants = open(&directory);
    let guest = Namespace::guest();
    tenants.set(&guest, change(json!({ "network_allow": ["10.1.0.0/16"] }))).await.unwrap();
    let file = directory.path().join("namespaces.json");
    fs::remove_file(&file).unwrap();
    fs::create_dir_all(file.join("x")).unwrap();
    let made = tenants.create(&namespace("acme"), new(), nothing()).await;
    assert!(matches!(made, Err(TenantError::File { .. })));
    assert!(tenants.is_alone() && !tenants.has(&namespace("acme")));
    let taken_back = tenants.set(&guest, change(json!({ "network_allow": [] }))).await;
    assert!(matches!(taken_back, Err(TenantError::File { .. })));
    assert_eq!(tenants.openable(&guest).now().len(), 1);
}

#[tokio::test]
async fn what_a_namespace_may_open_is_the_same_list_for_the_vms_that_it_has() {
    let directory = tempfile::tempdir().unwrap();
    let tenants = open(&directory);
    let acme = namespace("acme");
    let allowed = |list: Value| change(json!({ "network_allow": list }));
    tenants.create(&acme, new(), allowed(json!(["10.1.0.0/16"]))).await.unwrap();
    let of_vm = tenants.openable(&acme);
    let before = of_vm.now();
    assert_eq!(*before, *tenants.network_allow(&acme).networks());
    tenants.set(&acme, allowed(json!([]))).await.unwrap();
    assert!(of_vm.now().is_empty());
    tenants.set(&acme, allowed(json!(["10.1.0.0/16"]))).await.unwrap();
    assert_eq!(of_vm.now(), before);
    drop(tenants);
    let tenants = open(&directory);
    assert_eq!(tenants.openable(&acme).now(), before);
    // The next one of its name begins with nothing, whatever this one has left.
    tenants.begin_to_go(&acme).await.unwrap();
    tenants.end(&acme).await.unwrap();
    tenants.create(&acme, new(), nothing()).await.unwrap();
    assert!(tenants.openable(&acme).now().is_empty() && of_vm.now() == before);
}

#[test]
fn a_damaged_file_is_named_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("namespaces.json");
    let key = || Key::read_or_make(&directory.path().join("key")).unwrap();
    for (text, part) in [
        ("", "EOF"),
        ("{ \"version\": 2 }", "version 2, this squeezy supports 1"),
        ("{ \"version\": 1 }", "missing field"),
        ("{ \"version\": 1, \"namespaces\": { \"_\": {} } }", "namespace's name must be"),
    ] {
        fs::write(&path, text).unwrap();
        let error = Tenants::open(directory.path(), key()).err().unwrap().to_string();
        assert!(error.contains("namespaces.json: ") && error.contains(part), "{text}: {error}");
        assert!(error.contains("move it away") && error.lines().count() == 1, "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[tokio::test]
async fn strangers_leave_half_of_the_calls_to_those_with_a_key() {
    let directory = tempfile::tempdir().unwrap();
    let tenants = open(&directory);
    let acme = namespace("acme");
    let quotas = quotas(json!({ "concurrent_calls": 4, "calls_per_minute": 6 }));
    tenants.create(&acme, new(), quotas).await.unwrap();
    let calls = [(); 2].map(|()| tenants.call(&acme, true).unwrap());
    let refused = tenants.call(&acme, true).unwrap_err().to_string();
    assert_eq!(refused, "Too many concurrent requests in flight (count: 2, allowed: 2).");
    let own = [(); 2].map(|()| tenants.call(&acme, false).unwrap());
    assert!(tenants.call(&acme, false).is_err());
    drop((calls, own));
    // Two of six in a minute were theirs, and a third one is.
    assert!(tenants.call(&acme, true).is_ok());
    assert!(tenants.call(&acme, true).is_err());
    assert!(tenants.call(&acme, false).is_ok());
}

#[tokio::test]
async fn a_part_of_what_is_everybody_s_is_for_one_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let tenants = open(&directory);
    let (acme, guest) = (namespace("acme"), Namespace::guest());
    assert_eq!(tenants.payer(&guest).portion, Portion::All);
    tenants.create(&acme, new(), nothing()).await.unwrap();
    assert_eq!(tenants.payer(&acme).portion, Portion::Quarter);
    // The operator's has more, and not all of it.
    assert_eq!(tenants.payer(&guest).portion, Portion::ThreeQuarters);
}
