//! Replays a load on a node: sends the requests on time, and checks the responses.

use super::{
    record::{Outcome, PolicyRecord, RequestRecord},
    recorder::Recorder,
};
use crate::interrupt::Interrupt;
use serde_json::Value;
use squeezy_node::{Answer, Call, CallError, Node, NodeStatus, function::Function};
use squeezy_openwhisk::contract;
use squeezy_scaler::{Counts, FunctionIndex, Moment, RejectReason};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep_until},
};

/// How often memory is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// How long to continue recording once everything has ended.
const TAIL: Duration = Duration::from_secs(2);

/// How long instances may take to end after Ctrl-C.
const DRAIN_LIMIT: Duration = Duration::from_secs(15);

/// How long reclaiming the first instance's memory may take.
const EVICT_LIMIT: Duration = Duration::from_secs(60);

/// One function on a node of its own.
pub struct Replay {
    /// The node.
    pub node: Node,
    /// When it was started, the origin of its timestamps.
    pub begin: Instant,
    /// The function.
    pub index: FunctionIndex,
    /// The function's definition.
    pub function: Arc<Function>,
    /// Records the node's events.
    pub recorder: Arc<Recorder>,
}

impl Replay {
    /// Has a first instance answer a request and end, which leaves the function's files in the page
    /// cache, as in a VM that has been in use. Returns how long it took, excluding the VM's boot.
    pub async fn warm_up(&self) -> Result<Duration, String> {
        let start = Instant::now();
        let answer = self.call(u64::MAX).await;
        let boot = self.recorder.booted().map_or(Duration::ZERO, |booted| booted.took);
        let took = start.elapsed().saturating_sub(boot);
        match self.judge(&answer) {
            Outcome::Right => {}
            Outcome::Wrong(reason) => {
                return Err(format!("its answer is wrong: {reason}"));
            }
            Outcome::Failed(reason) | Outcome::Rejected(reason) => return Err(reason),
        }
        self.node.evict_idle();
        let limit = Instant::now() + EVICT_LIMIT;
        while Instant::now() < limit {
            match self.node.status().await {
                // If the guest does not give the memory back, the run will show that.
                Some(status) if counts(&status).is_quiet() => return Ok(took),
                Some(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                None => return Err("the node has ended".to_owned()),
            }
        }
        Err("it does not end".to_owned())
    }

    /// Sends the requests on time and waits until everything has ended.
    pub async fn run(self, arrivals: &[Duration], interrupt: &Interrupt) -> PolicyRecord {
        let replay = Arc::new(self);
        let recorder = &replay.recorder;
        let load = Instant::now();
        let mut arrivals = (0..).zip(arrivals.iter().map(|at| load + *at)).peekable();
        let mut calls = JoinSet::new();
        let mut sampler = interval(SAMPLE_INTERVAL);
        sampler.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut draining = None;
        let mut quiet_since = None;
        loop {
            let next = arrivals.peek().filter(|_| draining.is_none()).map(|(_, at)| *at);
            tokio::select! {
                reason = recorder.vm_ended(), if draining.is_none() => {
                    recorder.end_early(&reason);
                    break;
                }
                () = interrupt.raised(2) => {
                    recorder.end_early("interrupted twice");
                    break;
                }
                () = interrupt.raised(1), if draining.is_none() => {
                    recorder.end_early("interrupted");
                    let node = replay.node.clone();
                    draining = Some(tokio::spawn(async move {
                        tokio::time::timeout(DRAIN_LIMIT, node.drain()).await.is_ok()
                    }));
                }
                drained = ended(draining.as_mut()), if draining.is_some() => {
                    if !drained {
                        recorder.note("instances did not end in time; the VM is killed");
                    }
                    break;
                }
                () = sleep_until(next.unwrap_or(load).into()), if next.is_some() => {
                    if let Some((number, _)) = arrivals.next() {
                        let replay = replay.clone();
                        calls.spawn(async move { replay.request(load, number).await });
                    }
                    quiet_since = None;
                }
                Some(done) = calls.join_next(), if !calls.is_empty() => {
                    if let Ok(request) = done {
                        recorder.request(request);
                    }
                    quiet_since = None;
                }
                _ = sampler.tick() => {
                    let status = match replay.node.status().await {
                        Some(status) => status,
                        // It has ended as it was told to; the drain reports that in a moment.
                        None if draining.is_some() => continue,
                        None => break,
                    };
                    let counts = counts(&status);
                    if let Some((_, _, Some(memory))) = status.vms.first() {
                        recorder.sample(replay.now(), &counts, memory);
                    }
                    if draining.is_some()
                        || next.is_some()
                        || !calls.is_empty()
                        || !counts.is_quiet()
                    {
                        quiet_since = None;
                    } else if quiet_since.get_or_insert_with(Instant::now).elapsed() >= TAIL {
                        break;
                    }
                }
            }
        }
        let now = replay.now();
        // Failed requests are not retried, and a second interrupt skips the wait.
        if recorder.ended_early().is_some()
            || tokio::time::timeout(DRAIN_LIMIT, replay.node.drain()).await.is_err()
        {
            replay.node.kill();
        }
        // Each call completes once the node or its VM is gone.
        while let Some(done) = calls.join_next().await {
            if let Ok(request) = done {
                recorder.request(request);
            }
        }
        recorder.finish(now)
    }

    fn now(&self) -> Moment {
        Moment(self.begin.elapsed())
    }

    async fn call(&self, number: u64) -> Result<Answer, CallError> {
        let value = serde_json::to_value(&self.function.request).unwrap_or(Value::Null);
        self.node
            .call(
                self.index,
                Call {
                    id: format!("{number:032x}"),
                    value,
                    logs: false,
                    trace: None,
                    sent_on: false,
                },
            )
            .await
    }

    async fn request(&self, load: Instant, number: u64) -> RequestRecord {
        let came = Instant::now();
        let answer = self.call(number).await;
        let latency = came.elapsed();
        let (wait, waited_for) = match &answer {
            Ok(answer) => (answer.waited, Some(answer.waited_for)),
            Err(CallError::Failed { waited, waited_for, .. }) => (*waited, Some(*waited_for)),
            Err(_) => (latency, None),
        };
        RequestRecord {
            at_seconds: came.duration_since(load).as_secs_f64(),
            latency_seconds: latency.as_secs_f64(),
            wait_seconds: wait.as_secs_f64(),
            waited_for,
            outcome: self.judge(&answer),
        }
    }

    fn judge(&self, answer: &Result<Answer, CallError>) -> Outcome {
        match answer {
            Ok(answer) => match contract::problem(&self.function, &answer.response) {
                None => Outcome::Right,
                Some(problem) => Outcome::Wrong(problem),
            },
            Err(CallError::Failed { reason, .. }) => Outcome::Failed(reason.to_string()),
            Err(CallError::Ended) => {
                let reason = self.recorder.ended_early();
                Outcome::Failed(reason.unwrap_or_else(|| "the run ended".to_owned()))
            }
            Err(error @ CallError::Rejected(RejectReason::VmFailed)) => {
                Outcome::Failed(error.to_string())
            }
            Err(error @ CallError::Rejected(_)) => Outcome::Rejected(error.to_string()),
        }
    }
}

fn counts(status: &NodeStatus) -> Counts {
    status.functions.first().map(|(_, counts)| *counts).unwrap_or_default()
}

async fn ended(drain: Option<&mut tokio::task::JoinHandle<bool>>) -> bool {
    match drain {
        Some(drain) => drain.await.unwrap_or(false),
        None => std::future::pending().await,
    }
}
