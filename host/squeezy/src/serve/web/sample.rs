//! Samples the node every second.

use super::{Page, history, state::Latest};
use crate::mutex::lock;
use squeezy_node::NodeStatus;
use squeezy_openwhisk::now_ms;
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::{MissedTickBehavior, interval};

/// Interval between samples.
const PAUSE: Duration = Duration::from_secs(1);

impl Page {
    /// Samples the node until it ends.
    pub async fn sample(self: Arc<Self>) {
        let mut ticks = interval(PAUSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut since = Instant::now();
        loop {
            ticks.tick().await;
            let Some(status) = self.node.status().await else { return };
            self.take(now_ms(), &status);
            self.count_usage(&status, std::mem::replace(&mut since, Instant::now()).elapsed());
        }
    }

    /// Gives the totals that have changed to the store. A daemon that is killed loses what it has
    /// counted since the last sample.
    pub fn keep_totals(&self) {
        let mut kept = lock(&self.totals);
        let mut changed = Vec::new();
        for name in self.latest().functions.into_keys() {
            let totals = self.watch.metrics.totals(&name);
            if kept.get(&name).copied().unwrap_or_default() != totals {
                changed.push((name.0.to_string(), Some(totals)));
                kept.insert(name, totals);
            }
        }
        if !changed.is_empty() {
            self.service.store.put_totals(changed);
        }
    }

    /// Records a sample of the node's state.
    pub(super) fn take(&self, at_ms: u64, status: &NodeStatus) {
        self.watch.names.refresh();
        let there: BTreeSet<_> = status.functions.iter().map(|(index, _)| *index).collect();
        let functions = history::points(status, |index| self.watch.names.of(index).name);
        self.watch.names.retain(|index| there.contains(&index));
        self.watch.failure_reasons.retain(|index| there.contains(&index));
        let committed_bytes = status.committed_bytes;
        let latest = Latest { at_ms, committed_bytes, functions: functions.clone() };
        let earlier = {
            let mut kept = lock(&self.latest);
            std::mem::replace(&mut *kept, latest)
        };
        for gone in earlier.functions.keys().filter(|name| !functions.contains_key(name)) {
            self.watch.forget(gone);
            lock(&self.totals).remove(gone);
            self.service.store.put_totals([(gone.0.to_string(), None)]);
        }
        self.watch.count_sweeps(status);
        self.keep_totals();
        self.history(|history| history.push(at_ms, functions));
    }
}
