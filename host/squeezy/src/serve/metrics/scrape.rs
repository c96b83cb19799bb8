//! Samples the current state for a scrape.

use super::{
    Watch,
    classic::wants_open_metrics,
    labels::{Of, OfReason, OfState, State},
};
use axum::{
    http::header::{ACCEPT, CONTENT_TYPE, VARY},
    response::{IntoResponse, Response},
};
use squeezy_node::{Node, NodeStatus};
use squeezy_openwhisk::{Namespace, QualifiedName};
use squeezy_protocol::{Partition, PartitionState};
use squeezy_scaler::{Counts, VmIndex, VmState};
use squeezy_store::{Health, Store};
use squeezy_vmm::network::{NetworkCounts, Refusal};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::timeout,
};

/// Content type by which Prometheus recognizes the text format.
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How long a scrape may take. The node's limit for each VM is shorter.
const LIMIT: Duration = Duration::from_secs(4);

/// A scrape sooner than this after another one gets the same data, because sampling costs the
/// guests CPU time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);

/// The guests' partitions; `None` for a guest that did not answer.
type Partitions = Vec<(VmIndex, Option<Vec<Partition>>)>;

/// Answers scrapes.
pub struct Scraper {
    node: Node,
    watch: Arc<Watch>,
    store: Arc<Store>,
    /// Time of the last sample. Held while sampling, so that concurrent scrapes cost as much as
    /// one.
    looked: Mutex<Option<Instant>>,
}

impl Scraper {
    /// A scraper for this node and this store.
    pub fn new(node: Node, watch: Arc<Watch>, store: Arc<Store>) -> Self {
        Self { node, watch, store, looked: Mutex::default() }
    }

    /// Samples the state and responds in the requested format, with the functions of one namespace or with everything.
    pub async fn scrape(&self, accept: &str, namespace: Option<&Namespace>) -> Response {
        let _current = self.look().await;
        let metrics = &self.watch.metrics;
        let (kind, text) = if wants_open_metrics(accept) {
            (OPEN_METRICS, metrics.text())
        } else {
            (CLASSIC, metrics.classic())
        };
        let text = match namespace {
            Some(namespace) => of_namespace(&text, namespace),
            None => text,
        };
        ([(CONTENT_TYPE, kind), (VARY, ACCEPT.as_str())], text).into_response()
    }

    /// Samples the state and returns it in the OpenMetrics format.
    pub async fn text(&self) -> String {
        let _current = self.look().await;
        self.watch.metrics.text()
    }

    /// Samples the state, unless that was done a moment ago. It stays as it is until the guard is dropped.
    async fn look(&self) -> MutexGuard<'_, Option<Instant>> {
        let mut looked = self.looked.lock().await;
        if looked.is_none_or(|looked| looked.elapsed() >= SHORTEST_PAUSE) {
            let look = async { tokio::join!(self.node.status(), self.node.partitions()) };
            // A node that has ended has nothing to report.
            let (status, partitions) = timeout(LIMIT, look).await.unwrap_or_default();
            let (status, partitions) = (status.unwrap_or_default(), partitions.unwrap_or_default());
            set(&self.watch, &status, &partitions);
            set_store(&self.watch, &self.store.health());
            *looked = Some(Instant::now());
        }
        looked
    }
}

/// The series of a namespace's functions alone.
fn of_namespace(text: &str, namespace: &Namespace) -> String {
    let is_own = |line: &str| {
        let whole = format!("{{namespace=\"{namespace}\"}}");
        let Some((_, label)) = line.split_once("function=\"") else {
            return line.contains(&whole);
        };
        let function = label.split(['"', '+']).next().unwrap_or_default();
        function.parse::<QualifiedName>().is_ok_and(|name| name.namespace == *namespace)
    };
    let lines = text.lines().filter(|line| line.starts_with('#') || is_own(line));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Sets all gauges.
pub(super) fn set(watch: &Watch, status: &NodeStatus, partitions: &Partitions) {
    let Watch { metrics, names, .. } = watch;
    names.refresh();
    for gauges in [&metrics.asked, &metrics.plugged, &metrics.resident, &metrics.calls_waiting] {
        gauges.clear();
    }
    metrics.instances_minimum.clear();
    metrics.instances.clear();
    metrics.partitions.clear();
    metrics.vms.clear();
    metrics.memory_committed.set(signed(status.committed_bytes));
    let owners = watch.owners(status);
    for (index, counts) in &status.functions {
        let function = names.of(*index).name;
        metrics.expect(&function);
        for (state, count) in states(counts) {
            let labels = OfState { function: function.clone(), state };
            metrics.instances.get_or_create(&labels).inc_by(count as i64);
        }
        if counts.minimum > 0 {
            // Of two versions, either is to have as many.
            let of = Of { function: function.clone() };
            metrics.instances_minimum.get_or_create(&of).set(counts.minimum as i64);
        }
        metrics.calls_waiting.get_or_create(&Of { function }).inc_by(counts.queued as i64);
    }
    for state in ["booting", "up", "paused", "ending"] {
        drop(metrics.vms.get_or_create(&State { state }));
    }
    let mut silent: Vec<VmIndex> = Vec::new();
    for (vm, state, memory) in &status.vms {
        let Some(state) = vm_state(*state) else { continue };
        metrics.vms.get_or_create(&State { state }).inc();
        let Some(memory) = memory else {
            silent.extend(["up", "paused"].contains(&state).then_some(*vm));
            continue;
        };
        let Some(function) = owners.get(vm) else { continue };
        let labels = Of { function: function.clone() };
        metrics.asked.get_or_create(&labels).inc_by(signed(memory.asked_bytes));
        metrics.plugged.get_or_create(&labels).inc_by(signed(memory.plugged_bytes));
        metrics.resident.get_or_create(&labels).inc_by(signed(memory.resident.resident_bytes));
    }
    for (vm, counts) in &status.networks {
        let NetworkCounts { opened, refused, dropped, sent_bytes, received_bytes } =
            watch.newly_reached(*vm, *counts);
        let Some(function) = owners.get(vm) else { continue };
        let labels = Of { function: function.clone() };
        metrics.connections_opened.get_or_create(&labels).inc_by(opened);
        metrics.datagrams_dropped.get_or_create(&labels).inc_by(dropped);
        metrics.network_sent.get_or_create(&labels).inc_by(sent_bytes);
        metrics.network_received.get_or_create(&labels).inc_by(received_bytes);
        for (refusal, count) in Refusal::ALL.into_iter().zip(refused) {
            let labels = OfReason { function: function.clone(), reason: refusal.name() };
            metrics.connections_refused.get_or_create(&labels).inc_by(count);
        }
    }
    watch.forget_vms(|vm| {
        let networks = status.networks.iter().map(|(there, _)| there);
        status.vms.iter().map(|(there, ..)| there).chain(networks).any(|there| *there == vm)
    });
    for (vm, partitions) in partitions {
        let Some(partitions) = partitions else {
            silent.push(*vm);
            continue;
        };
        let Some(function) = owners.get(vm) else { continue };
        for partition in partitions {
            let state = partition_state(partition.state);
            let labels = OfState { function: function.clone(), state };
            metrics.partitions.get_or_create(&labels).inc();
        }
    }
    silent.sort_unstable();
    silent.dedup();
    metrics.vms_silent.set(silent.len() as i64);
}

/// Sets what is known of the store.
fn set_store(watch: &Watch, health: &Health) {
    let metrics = &watch.metrics;
    metrics.activations_unwritten.set(signed(health.unwritten as u64));
    metrics.activations_unwritable.set(health.problem.is_some().into());
    let lost = &metrics.activations_lost;
    lost.inc_by(health.lost.saturating_sub(lost.get()));
}

fn signed(bytes: u64) -> i64 {
    bytes.try_into().unwrap_or(i64::MAX)
}

/// Number of instances in each state; each instance is in one state.
fn states(counts: &Counts) -> [(&'static str, usize); 8] {
    [
        ("starting", counts.starting),
        ("idle", counts.idle.saturating_sub(counts.frozen)),
        ("frozen", counts.frozen),
        ("condemned", counts.condemned),
        ("busy", counts.busy),
        ("stopping", counts.stopping),
        ("reclaiming", counts.reclaiming),
        ("stranded", counts.stranded),
    ]
}

/// The state of a VM, if there is one.
pub fn vm_state(state: VmState) -> Option<&'static str> {
    match state {
        VmState::Absent => None,
        VmState::Booting => Some("booting"),
        VmState::Up { .. } => Some("up"),
        VmState::Paused { .. } => Some("paused"),
        VmState::Ending => Some("ending"),
    }
}

/// The states' names in docs/abi.md.
fn partition_state(state: PartitionState) -> &'static str {
    match state {
        PartitionState::Absent => "absent",
        PartitionState::Populating => "populating",
        PartitionState::Owed => "owed",
        PartitionState::Free => "free",
        PartitionState::Assigned => "assigned",
        PartitionState::Draining => "draining",
        PartitionState::Quarantined => "quarantined",
        PartitionState::Unplugging => "unplugging",
        PartitionState::Unplugged => "unplugged",
        PartitionState::Plugging => "plugging",
    }
}
