//! The calls of both tenants.

use super::tenant::{Called, Outcome, Tenant, Work};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// How long a client waits before it calls again after it was refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// Calls an action at a fixed rate, whether or not earlier calls have been answered, and waits for all answers.
pub(super) async fn at_a_rate(
    tenant: &Tenant,
    action: &'static str,
    work: Work,
    every: Duration,
    count: u32,
) -> Vec<Called> {
    let begin = Instant::now();
    let mut calls = JoinSet::new();
    for number in 0..count {
        tokio::time::sleep_until((begin + every * number).into()).await;
        let tenant = tenant.clone();
        calls.spawn(async move { tenant.call(action, work).await });
    }
    calls.join_all().await
}

/// Clients that each have one call at a time, until they are dropped.
pub(super) struct Clients {
    told: Arc<Told>,
    // Dropped with the clients, and what they wait for.
    _clients: JoinSet<()>,
}

/// What the clients have heard.
#[derive(Default)]
struct Told {
    answered: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    /// Whether the tenant is about to end, so that failures say nothing.
    ends: AtomicBool,
}

/// How many calls have ended how.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) answered: u64,
    pub(super) refused: u64,
    pub(super) failed: u64,
}

impl Counts {
    /// What has come since then.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            answered: self.answered - earlier.answered,
            refused: self.refused - earlier.refused,
            failed: self.failed - earlier.failed,
        }
    }
}

impl Clients {
    /// Starts `each` clients for each action.
    pub(super) fn start(tenant: &Tenant, actions: &[String], each: usize, work: Work) -> Self {
        let told = Arc::<Told>::default();
        let mut clients = JoinSet::new();
        for action in actions.iter().flat_map(|action| std::iter::repeat_n(action, each)) {
            let (tenant, action, told) = (tenant.clone(), action.clone(), told.clone());
            clients.spawn(async move { call_on(&tenant, &action, work, &told).await });
        }
        Self { told, _clients: clients }
    }

    /// Until now.
    pub(super) fn counts(&self) -> Counts {
        let Told { answered, refused, failed, .. } = &*self.told;
        let [answered, refused, failed] =
            [answered, refused, failed].map(|count| count.load(Relaxed));
        Counts { answered, refused, failed }
    }

    /// No call is begun, and none counted any more.
    pub(super) fn end(self) {
        self.told.ends.store(true, Relaxed);
    }
}

async fn call_on(tenant: &Tenant, action: &str, work: Work, told: &Told) {
    while !told.ends.load(Relaxed) {
        let Called { outcome, .. } = tenant.call(action, work).await;
        let count = match outcome {
            Outcome::Warm | Outcome::Cold => &told.answered,
            Outcome::Refused => &told.refused,
            Outcome::Failed => &told.failed,
        };
        count.fetch_add(1, Relaxed);
        if matches!(outcome, Outcome::Refused | Outcome::Failed) {
            tokio::time::sleep(REFUSED_PAUSE).await;
        }
    }
}
