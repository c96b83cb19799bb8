//! The store against a plain model of it.

use super::*;
use proptest::{collection::vec, prelude::*};

/// What happens to the store.
#[derive(Clone, Debug)]
enum Step {
    /// A call of one of few actions of two namespaces starts, at a time that may be long before the last one's.
    Start(u8, u64),
    /// One of those that run ends.
    End(prop::sample::Index),
    /// The process ends, and another one begins.
    Restart,
    /// Somebody looks.
    Look {
        is_acme: bool,
        action: Option<u8>,
        since: Option<u64>,
        upto: Option<u64>,
        skip: usize,
        limit: usize,
    },
}

/// Times lie around now, within this, in milliseconds.
const SPREAD: u64 = 1000;

fn step() -> impl Strategy<Value = Step> {
    let time = || prop::option::of(0..SPREAD);
    prop_oneof![
        4 => (0_u8..6, 0..SPREAD).prop_map(|(action, time)| Step::Start(action, time)),
        4 => any::<prop::sample::Index>().prop_map(Step::End),
        1 => Just(Step::Restart),
        4 => (any::<bool>(), prop::option::of(0_u8..4), time(), time(), 0_usize..12, 0_usize..12).prop_map(
            |(is_acme, action, since, upto, skip, limit)| Step::Look { is_acme, action, since, upto, skip, limit }
        ),
    ]
}

fn namespace(is_acme: bool) -> Namespace {
    if is_acme { "acme".parse().unwrap() } else { Namespace::guest() }
}

/// One of three names in one of two namespaces.
fn name(action: u8) -> QualifiedName {
    QualifiedName::new(namespace(action >= 3), &format!("f{}", action % 3))
}

/// What the store should contain.
#[derive(Default)]
struct Model {
    running: Vec<Running>,
    /// In the order in which they have ended.
    ended: Vec<Arc<Activation>>,
}

impl Model {
    /// Removes the oldest of each namespace beyond this many; returns how many.
    fn keep(&mut self, most: usize) -> usize {
        let before = self.ended.len();
        for is_acme in [false, true] {
            let own = |a: &Arc<Activation>| a.action.namespace == namespace(is_acme);
            let mut excess = self.ended.iter().filter(|a| own(a)).count().saturating_sub(most);
            self.ended.retain(|a| {
                let goes = own(a) && excess > 0;
                excess -= usize::from(goes);
                !goes
            });
        }
        before - self.ended.len()
    }

    fn list(&self, selection: &Selection) -> Vec<&str> {
        let mut list: Vec<_> = self.ended.iter().filter(|a| selection.admits(a)).collect();
        if selection.since_ms.is_some() || selection.upto_ms.is_some() {
            // Stable: of those that started at once, the last to end remains the last.
            list.sort_by_key(|activation| activation.start_ms);
        }
        list.iter().rev().map(|activation| activation.id.as_str()).collect()
    }
}

async fn check(steps: Vec<Step>, most: usize, waits: bool) {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { most, ..LIMITS };
    let mut store = open(directory.path(), limits);
    let (mut model, base, mut count) = (Model::default(), now_ms() - SPREAD, 0);
    for step in steps {
        match step {
            Step::Start(action, time) => {
                count += 1;
                let call =
                    Running { action: name(action), ..running(&format!("{count}"), base + time) };
                model.running.push(call.clone());
                let _ = store.start(call).wait().await;
            }
            Step::End(_) if model.running.is_empty() => {}
            Step::End(index) => {
                let call = model.running.remove(index.index(model.running.len()));
                let activation =
                    Arc::new(Activation { result: json!({ "id": call.id }), ..call.ended("") });
                model.ended.push(activation.clone());
                let written = store.end(activation);
                if waits {
                    written.wait().await;
                }
            }
            Step::Restart => {
                drop(store);
                store = open(directory.path(), limits);
                model.running.sort_by_key(|call| (call.start_ms, call.id.clone()));
                let ended = model.running.drain(..).map(|call| call.ended(ENDED_WITH_DAEMON));
                model.ended.extend(ended.map(Arc::new));
            }
            Step::Look { is_acme, action, since, upto, skip, limit } => {
                let time = |time: Option<u64>| time.map(|time| (base + time) as i64);
                let selection = Selection {
                    namespace: namespace(is_acme),
                    action: action.map(|action| match action {
                        // As another namespace's is called in the file.
                        3 => "/acme/f0".to_owned(),
                        _ => format!("f{action}"),
                    }),
                    since_ms: time(since),
                    upto_ms: time(upto),
                };
                let excess = model.keep(most);
                let right = model.list(&selection);
                if excess > 0 || right.len() < model.ended.len() || most < 100 {
                    // The oldest are removed after the latest were written.
                    until("all is written and removed", async || {
                        let acme = Selection::of(namespace(true));
                        let acme = store.count(&acme).await.unwrap();
                        let all = acme + store.count(&everything()).await.unwrap();
                        store.health().unwritten == 0 && all == model.ended.len()
                    })
                    .await;
                }
                assert_eq!(store.count(&selection).await.unwrap(), right.len());
                let list = store.list(&selection, skip, limit).await.unwrap();
                let ids: Vec<_> = list.iter().map(|f| f.activation.id.as_str()).collect();
                let right: Vec<_> = right.into_iter().skip(skip).take(limit).collect();
                assert_eq!(ids, right, "{selection:?}");
                for activation in store.load(list.clone()).await.unwrap() {
                    let right = model.ended.iter().find(|a| a.id == activation.id).unwrap();
                    assert_eq!(seen(&activation), seen(right));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_is_what_a_list_would_be(
        steps in vec(step(), 1..60),
        most in prop_oneof![1_usize..8, Just(1000)],
        waits: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(check(steps, most, waits));
    }
}

#[tokio::test]
async fn what_is_too_old_goes_even_while_nothing_comes() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Limits { keep: Duration::from_secs(3), ..LIMITS });
    let now = now_ms();
    for number in 0..300 {
        let _ = store.end(activation(&format!("old {number}"), now - 4000, 10));
    }
    // It has ended by now.
    let took = Duration::from_secs(4);
    let long = Activation { took, ..(*activation("long", now - 4000, 10)).clone() };
    let _ = store.end(long.into());
    let _ = store.end(activation("new", now, 10));
    let _ = store.end(activation("from the future", now + 3_600_000, 10));
    let count = async || store.count(&everything()).await.unwrap();
    until("the old are gone", async || count().await <= 3 && store.health().unwritten == 0).await;
    for id in ["long", "new"] {
        assert!(get(&store, id).await.is_some() || now_ms() >= now + 3000, "{id}");
    }
    until("the new ones are old", async || count().await == 1).await;
    assert!(now_ms() >= now + 3000);
}

/// The clock is set back by an hour: lists remain in the order in which calls have ended, and
/// restarts keep it.
#[tokio::test]
async fn a_clock_that_jumps_back_changes_no_order() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path(), LIMITS);
    let now = now_ms();
    for (number, time) in [now, now - 3_600_000, now + 5, now - 3_600_000].into_iter().enumerate() {
        start(&store, running(&format!("{number}"), time)).await;
        end(&store, activation(&format!("{number}"), time, 10)).await;
        drop(store);
        store = open(directory.path(), LIMITS);
    }
    let ids = async |selection: Selection| -> Vec<String> {
        let list = store.list(&selection, 0, 10).await.unwrap();
        list.iter().map(|found| found.activation.id.clone()).collect()
    };
    assert_eq!(ids(everything()).await, ["3", "2", "1", "0"]);
    let since_ms = Some(now as i64);
    assert_eq!(ids(Selection { since_ms, ..everything() }).await, ["2", "0"]);
    let upto_ms = Some(now as i64 - 1);
    assert_eq!(ids(Selection { upto_ms, ..everything() }).await, ["3", "1"]);
}
