//! The task of an instance, which executes orders one after another.

use crate::{
    error::{BenchError, Result},
    rigs::process::{Instance, NativeFunction, Setup},
};
use squeezer::{Answer, Request};
use squeezy_scaler::{InstanceNumber, RequestNumber};
use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// The limit of a squeeze, after which the instance is left alone.
const SQUEEZE_LIMIT: Duration = Duration::from_secs(10);

/// An order to an instance.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Call { request: RequestNumber, thaw: bool, since: Instant },
    Freeze,
    Squeeze,
    Stop,
}

/// A completed order.
#[derive(Debug)]
pub(super) enum Completion {
    Started(Result),
    Answered(RequestNumber, Result),
    /// It is frozen, with this many bytes that no other process maps (USS).
    Frozen(u64),
    Squeezed(Result<Squeezed>),
    /// It could not be frozen or thawed.
    Lost(BenchError),
    Stopped,
}

/// The result of a squeeze.
#[derive(Clone, Copy, Debug)]
pub(super) struct Squeezed {
    /// USS when it was frozen, in bytes.
    pub(super) before_bytes: u64,
    /// USS now, in bytes; `None` if a request came first.
    pub(super) after_bytes: Option<u64>,
    /// CPU time of its process meanwhile.
    pub(super) cpu: Duration,
    /// How long it could not run.
    pub(super) pause: Duration,
    /// If a request came first, the maximum time that it waited for the squeezer.
    pub(super) waited: Option<Duration>,
}

/// A report to the host.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) instance: InstanceNumber,
    pub(super) completion: Completion,
    /// CPU time of the process since the previous report.
    pub(super) cpu_ns: u64,
}

/// An instance and its state, until it is told to stop.
pub(super) struct InstanceTask {
    number: InstanceNumber,
    orders: UnboundedReceiver<Order>,
    reports: UnboundedSender<Report>,
    /// CPU time reported so far.
    reported_ns: u64,
    /// USS when last measured, in bytes.
    held_bytes: u64,
}

impl InstanceTask {
    pub(super) fn new(
        number: InstanceNumber,
        orders: UnboundedReceiver<Order>,
        reports: UnboundedSender<Report>,
    ) -> Self {
        Self { number, orders, reports, reported_ns: 0, held_bytes: 0 }
    }

    /// Starts an instance and executes its orders.
    pub(super) async fn run(mut self, function: Arc<NativeFunction>, setup: Setup) {
        let mut spent_ns = None;
        match Instance::start(&function, setup).await {
            Ok(instance) => {
                self.report(Completion::Started(Ok(())), instance.cpu_ns().ok());
                self.serve(&instance).await;
                spent_ns = instance.cpu_ns().ok();
                // Ending a process blocks until it has exited.
                let _ = tokio::task::spawn_blocking(move || drop(instance)).await;
            }
            Err(error) => {
                self.report(Completion::Started(Err(error)), None);
                while !matches!(self.orders.recv().await, Some(Order::Stop) | None) {}
            }
        }
        self.report(Completion::Stopped, spent_ns);
    }

    async fn serve(&mut self, instance: &Instance) {
        let mut next = None;
        loop {
            let order = match next.take() {
                Some(order) => order,
                None => self.orders.recv().await.unwrap_or(Order::Stop),
            };
            let done = match order {
                Order::Call { request, thaw, .. } => call(instance, request, thaw).await,
                Order::Freeze => {
                    self.freeze(instance).await.map_or_else(Completion::Lost, Completion::Frozen)
                }
                Order::Squeeze => {
                    next = self.squeeze(instance).await;
                    continue;
                }
                Order::Stop => return,
            };
            self.report(done, instance.cpu_ns().ok());
        }
    }

    async fn freeze(&mut self, instance: &Instance) -> Result<u64> {
        instance.freeze().await?;
        self.held_bytes = instance.memory().await?.uss_bytes;
        Ok(self.held_bytes)
    }

    /// Thaws the instance, has its runtime collect garbage, freezes it again and evicts its
    /// libraries. Any order that arrives meanwhile takes precedence; it is executed here or
    /// returned.
    async fn squeeze(&mut self, instance: &Instance) -> Option<Order> {
        if let Err(error) = instance.thaw().await {
            self.report(Completion::Lost(error), instance.cpu_ns().ok());
            return None;
        }
        let mut squeeze = pin!(squeeze(instance));
        let order = tokio::select! {
            answer = &mut squeeze => return self.settle(instance, answer).await,
            order = self.orders.recv() => order?,
        };
        let Order::Call { request, since, .. } = order else { return Some(order) };
        // The runtime makes the request wait while it collects.
        let call = async {
            let done = call(instance, request, false).await;
            self.report(done, instance.cpu_ns().ok());
            since.elapsed()
        };
        let squeeze = async { squeeze.await.map(|answer| (answer, since.elapsed())) };
        let (answered, done) = tokio::join!(call, squeeze);
        let squeezed = done.map(|(answer, took)| Squeezed {
            waited: Some(took.min(answered)),
            ..self.squeezed(&answer)
        });
        self.report(Completion::Squeezed(squeezed), instance.cpu_ns().ok());
        None
    }

    /// Freezes the instance after the squeezer's answer or its failure, and measures what is left.
    async fn settle(&mut self, instance: &Instance, answer: Result<Answer>) -> Option<Order> {
        let mut squeezed = answer.map(|answer| self.squeezed(&answer));
        // Not abandoned half-way: an instance that is frozen late stays frozen.
        if let Err(error) = instance.freeze().await {
            self.report(Completion::Lost(error), instance.cpu_ns().ok());
            return None;
        }
        let look = async {
            instance.evict_libraries().await?;
            Ok(instance.memory().await?.uss_bytes)
        };
        let mut order = None;
        let left = tokio::select! {
            left = look => Some(left),
            next = self.orders.recv() => {
                order = next;
                None
            }
        };
        match (&mut squeezed, left) {
            (Ok(squeezed), Some(Ok(bytes))) => {
                squeezed.after_bytes = Some(bytes);
                self.held_bytes = bytes;
            }
            (Ok(squeezed), None) => {
                if let Some(Order::Call { since, .. }) = order {
                    squeezed.waited = Some(since.elapsed());
                }
            }
            (Ok(_), Some(Err(error))) => squeezed = Err(error),
            (Err(_), _) => {}
        }
        self.report(Completion::Squeezed(squeezed), instance.cpu_ns().ok());
        order
    }

    fn squeezed(&self, answer: &Answer) -> Squeezed {
        Squeezed {
            before_bytes: self.held_bytes,
            after_bytes: None,
            cpu: Duration::from_nanos(answer.cpu_ns),
            pause: Duration::from_nanos(answer.pause_ns),
            waited: None,
        }
    }

    /// Reports a completed order and the CPU time of the process, if known.
    fn report(&mut self, completion: Completion, spent_ns: Option<u64>) {
        let spent_ns = spent_ns.unwrap_or(0).max(self.reported_ns);
        let cpu_ns = spent_ns - self.reported_ns;
        self.reported_ns = spent_ns;
        // At the end of a run nobody receives reports any more.
        let _ = self.reports.send(Report { instance: self.number, completion, cpu_ns });
    }
}

/// Calls the instance, thawing it first if necessary.
async fn call(instance: &Instance, request: RequestNumber, thaw: bool) -> Completion {
    let answer = async {
        if thaw {
            instance.thaw().await?;
        }
        instance.call().await.map(drop)
    };
    Completion::Answered(request, answer.await)
}

/// Has the squeezer collect garbage; an error if that takes too long.
async fn squeeze(instance: &Instance) -> Result<Answer> {
    match tokio::time::timeout(SQUEEZE_LIMIT, instance.squeeze(Request::default())).await {
        Ok(squeezed) => squeezed.map(|squeezed| squeezed.answer),
        Err(_) => Err(BenchError::Arguments(format!(
            "a squeezer has not answered within {} s",
            SQUEEZE_LIMIT.as_secs()
        ))),
    }
}
