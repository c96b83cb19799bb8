//! Replays a load on a rig.

use super::{Answered, NodeRig, NodeRigPlan, Sample, Seen, Trial, call};
use crate::{error::Result, harness::Session, record::Recorded, rigs::load::Arrival};
use squeezy_node::MachineDetails;
use std::time::{Duration, Instant};
use tokio::{task::JoinSet, time::MissedTickBehavior};

/// How often memory is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// The results of a replayed load.
pub(crate) struct Replayed {
    /// What ran the guests.
    pub(crate) details: Option<MachineDetails>,
    pub(crate) answered: Vec<Answered>,
    pub(crate) samples: Vec<Sample>,
    /// Observations, by time since the load began.
    pub(crate) seen: Vec<(Duration, Seen)>,
}

impl Replayed {
    /// Latencies of the measured reclaims of a function's instances, and whether each failed.
    pub(crate) fn reclaims(&self, function: usize) -> Vec<(Duration, bool)> {
        let reclaim = |(_, seen): &(Duration, Seen)| match *seen {
            Seen::Reclaimed { member, latency, failed, .. } if member == function => {
                Some((latency?, failed))
            }
            _ => None,
        };
        self.seen.iter().filter_map(reclaim).collect()
    }
}

impl NodeRig {
    /// Sends all calls when they are due, waits for their responses, and samples meanwhile.
    async fn replay(
        &self,
        arrivals: &[Arrival],
        mut tell: impl FnMut(Duration, usize),
    ) -> Result<Replayed> {
        let load = Instant::now();
        let first_seen = self.watch.lock().seen.len();
        let mut answered = Vec::new();
        let mut samples = Vec::new();
        let mut calls = JoinSet::new();
        let mut next = arrivals.iter().peekable();
        let mut sampler = tokio::time::interval(SAMPLE_INTERVAL);
        sampler.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while next.peek().is_some() || !calls.is_empty() {
            let due = next.peek().map(|arrival| load + arrival.at);
            tokio::select! {
                () = tokio::time::sleep_until(due.unwrap_or(load).into()), if due.is_some() => {
                    let Some(&arrival) = next.next() else { continue };
                    let (node, member) = (self.node.clone(), self.members[arrival.member].clone());
                    calls.spawn(async move { call(&node, &member, arrival).await });
                }
                Some(done) = calls.join_next(), if !calls.is_empty() => {
                    answered.extend(done.ok());
                }
                _ = sampler.tick() => {
                    samples.push(self.sample(load).await?);
                    tell(load.elapsed(), answered.len());
                }
            }
        }
        let offset = load.duration_since(self.begin);
        let seen = self.watch.lock().seen[first_seen..].to_vec();
        let seen = seen.into_iter().map(|(at, seen)| (at.0.saturating_sub(offset), seen)).collect();
        Ok(Replayed { details: self.details(), answered, samples, seen })
    }
}

/// Starts a rig for a trial, warms it up, replays a load and shuts it down.
pub(crate) async fn replay<F: Recorded>(
    session: &Session<F>,
    trial: &Trial<'_>,
    plan: &NodeRigPlan,
    arrivals: &[Arrival],
) -> Result<Replayed> {
    let rig = NodeRig::start(session, trial.functions, plan).await?;
    rig.warm_up().await?;
    let calls = arrivals.len();
    let tell = |at: Duration, answered: usize| {
        session
            .progress
            .tick(&format!("{trial}: {answered} of {calls} answered after {} s", at.as_secs()));
    };
    let replayed = rig.replay(arrivals, tell).await?;
    for trouble in rig.trouble() {
        session.progress.note(&format!("{trial}: {trouble}"));
    }
    rig.stop().await;
    Ok(replayed)
}
