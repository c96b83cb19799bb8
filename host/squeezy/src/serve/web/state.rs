//! The page's public data: numbers, as in `/metrics`.

use super::{
    Page,
    history::{LENGTH, Point},
    sight::Sight,
};
use crate::serve::{
    failure_reasons::{Problem, without_directories},
    metrics::{Name, Reclaim, Start, Window},
};
use serde::Serialize;
use serde_json::{Value, json};
use squeezy_scaler::Moment;
use squeezy_store::{Health, Totals};
use squeezy_vmm::VmError;
use std::{collections::BTreeMap, time::Duration};

/// The current state, and samples since `since_ms`, as far as they may be seen.
pub fn state(page: &Page, since_ms: u64, sight: &Sight) -> Value {
    let mut latest = page.latest();
    latest.functions.retain(|name, _| sight.sees(name));
    if sight.namespace().is_some() {
        latest.committed_bytes = latest.functions.values().map(|point| point.promised_bytes).sum();
    }
    let names: Vec<_> = latest.functions.keys().cloned().collect();
    let has_key = sight.has_reasons;
    let functions: Vec<_> =
        names.iter().map(|name| function(page, name, &latest.functions[name], has_key)).collect();
    let reclaims: Vec<_> = page.watch.recent(|recent| {
        let seen = recent
            .reclaims()
            .filter(|reclaim| sight.sees(&reclaim.function) && reclaim.at_ms >= sight.since_ms);
        seen.map(describe_reclaim).collect()
    });
    page.history(|history| {
        let since_ms = since_ms.max(sight.since_ms);
        let samples: Vec<_> = history.since(since_ms).map(|sample| sample.seen(sight)).collect();
        json!({
            "now_ms": latest.at_ms,
            "age_ms": page.begin.elapsed().as_millis() as u64,
            "version": env!("CARGO_PKG_VERSION"),
            "policy": page.policy,
            "history_seconds": LENGTH.as_secs(),
            "memory_limit_bytes": page.memory_limit_bytes,
            "memory_committed_bytes": latest.committed_bytes,
            "functions": functions,
            "reclaims": reclaims,
            "activations": describe_store(page.service.store.health()),
            "samples": samples,
        })
    })
}

/// The state at the last sample.
#[derive(Clone, Default)]
pub struct Latest {
    pub at_ms: u64,
    pub committed_bytes: u64,
    pub functions: BTreeMap<Name, Point>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a Name,
    vm: Option<&'static str>,
    point: &'a Point,
    instance_bytes: u64,
    promised_bytes: u64,
    minimum_instances: usize,
    starts: BTreeMap<&'static str, u64>,
    reclaimed_bytes: u64,
    taken_bytes: u64,
    condemned_bytes: u64,
    /// How long the host took for both, in milliseconds.
    taking_ms: f64,
    failed: u64,
    problem: Option<Value>,
    times_ms: BTreeMap<&'static str, Value>,
}

fn function(page: &Page, name: &Name, point: &Point, has_key: bool) -> Value {
    let Totals {
        cold,
        warm,
        recreated,
        failed,
        reclaimed_bytes,
        taken_bytes,
        condemned_bytes,
        taking,
    } = page.watch.metrics.totals(name);
    let since = Moment(page.begin.elapsed().saturating_sub(LENGTH));
    let times_ms = page.watch.recent(|recent| {
        let times = recent.times(name);
        let windows: [(_, &Window); 8] = [
            ("total", &times.total),
            ("queue", &times.queue),
            ("run", &times.run),
            ("init", &times.init),
            ("plug", &times.plug),
            ("unplug", &times.unplug),
            ("take", &times.take),
            ("condemn", &times.condemn),
        ];
        let described = |(name, window): (_, &Window)| {
            let found = window.percentiles(since)?;
            let [p50, p90, p99] = [found.p50, found.p90, found.p99].map(ms);
            Some((name, json!({ "count": found.count, "p50": p50, "p90": p90, "p99": p99 })))
        };
        windows.into_iter().filter_map(described).collect()
    });
    let function = Function {
        name,
        vm: point.vm,
        point,
        instance_bytes: page.instance_bytes(name),
        promised_bytes: point.promised_bytes,
        minimum_instances: point.minimum,
        starts: [(Start::Cold, cold), (Start::Warm, warm), (Start::Recreated, recreated)]
            .map(|(start, count)| (start.name(), count))
            .into(),
        reclaimed_bytes,
        taken_bytes,
        condemned_bytes,
        taking_ms: ms(taking),
        failed,
        problem: page.problem(name).map(|problem| describe_problem(&problem, has_key)),
        times_ms,
    };
    json!(function)
}

fn describe_problem(problem: &Problem, has_key: bool) -> Value {
    let Problem { at_ms, what, why, .. } = problem;
    json!({ "at_ms": at_ms, "what": what, "why": has_key.then_some(why) })
}

fn describe_store(health: Health) -> Value {
    let Health { unwritten, lost, problem } = health;
    let problem = problem.map(|problem| without_directories(&problem));
    json!({ "unwritten": unwritten, "lost": lost, "problem": problem })
}

fn describe_reclaim(reclaim: &Reclaim) -> Value {
    // Other errors may quote a guest's console, which is only for clients with the key.
    let error = reclaim.error.as_ref().map(|error| match error {
        VmError::Resize { .. } | VmError::Held { .. } => error.to_string(),
        _ => "it failed; the daemon's log says why".to_owned(),
    });
    json!({
        "at_ms": reclaim.at_ms,
        "function": reclaim.function,
        "instance": reclaim.instance.0,
        "size_bytes": reclaim.size_bytes,
        "reason": reclaim.reason,
        "stop_ms": reclaim.stop.map(ms),
        "unplug_ms": reclaim.unplug.map(ms),
        "resident_drop_bytes": reclaim.resident_drop_bytes,
        "error": error,
        "settled": reclaim.settled,
    })
}

fn ms(time: Duration) -> f64 {
    // Microseconds are precise enough, and keep the text short.
    (time.as_secs_f64() * 1e6).round() / 1e3
}
