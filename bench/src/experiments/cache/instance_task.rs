//! The task of one instance: what it is told to do, one thing after the other.

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

/// How long a squeezer may take. Then the instance is left alone.
const SQUEEZE_LIMIT: Duration = Duration::from_secs(10);

/// What an instance is told to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Call { request: RequestNumber, thaw: bool, since: Instant },
    Freeze,
    Squeeze,
    Stop,
}

/// What an instance has done.
#[derive(Debug)]
pub(super) enum Completion {
    Started(Result),
    Answered(RequestNumber, Result),
    /// It is frozen and holds so many bytes that nobody else has.
    Frozen(u64),
    Squeezed(Result<Squeezed>),
    /// It could not be frozen or thawed.
    Lost(BenchError),
    Stopped,
}

/// What came of squeezing an instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Squeezed {
    /// What it held when it was frozen, in bytes that nobody else has.
    pub(super) before_bytes: u64,
    /// What it holds now; nothing when a request came first.
    pub(super) after_bytes: Option<u64>,
    /// Processor time of its process meanwhile.
    pub(super) cpu: Duration,
    /// How long it could not run.
    pub(super) pause: Duration,
    /// When a request came first, the longest that it can have waited for the squeezer.
    pub(super) waited: Option<Duration>,
}

/// What is told of an instance.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) instance: InstanceNumber,
    pub(super) completion: Completion,
    /// CPU time of its process since the last report.
    pub(super) cpu_ns: u64,
}

/// An instance, until it is told to stop.
pub(super) struct InstanceTask {
    number: InstanceNumber,
    orders: UnboundedReceiver<Order>,
    reports: UnboundedSender<Report>,
    /// CPU time that has been reported.
    reported_ns: u64,
    /// What it held when it was looked at last, in bytes that nobody else has.
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

    /// Starts an instance, and does what it is told to do.
    pub(super) async fn run(mut self, function: Arc<NativeFunction>, setup: Setup) {
        let mut spent_ns = None;
        match Instance::start(&function, setup).await {
            Ok(instance) => {
                self.report(Completion::Started(Ok(())), instance.cpu_ns().ok());
                self.serve(&instance).await;
                spent_ns = instance.cpu_ns().ok();
                // To end a process is to wait for it.
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

    /// Thaws the instance, has its runtime collect, freezes it again and evicts its libraries. Gives
    /// way to whatever it is told meanwhile, which is done here or handed back.
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
        // The runtime itself has the request wait while it collects.
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

    /// Freezes what has answered, or has not, and looks at what is left of it.
    async fn settle(&mut self, instance: &Instance, answer: Result<Answer>) -> Option<Order> {
        let mut squeezed = answer.map(|answer| self.squeezed(&answer));
        // This is not given up half-way: what is frozen late stays so.
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

    /// Reports what is done, and what CPU time the process has had in all, if it is known.
    fn report(&mut self, completion: Completion, spent_ns: Option<u64>) {
        let spent_ns = spent_ns.unwrap_or(0).max(self.reported_ns);
        let cpu_ns = spent_ns - self.reported_ns;
        self.reported_ns = spent_ns;
        // Nobody listens any more when everything ends.
        let _ = self.reports.send(Report { instance: self.number, completion, cpu_ns });
    }
}

/// Calls the instance, which is running or to be thawed.
async fn call(instance: &Instance, request: RequestNumber, thaw: bool) -> Completion {
    let answer = async {
        if thaw {
            instance.thaw().await?;
        }
        instance.call().await.map(drop)
    };
    Completion::Answered(request, answer.await)
}

/// Has the squeezer collect; an error when it takes too long.
async fn squeeze(instance: &Instance) -> Result<Answer> {
    match tokio::time::timeout(SQUEEZE_LIMIT, instance.squeeze(Request::default())).await {
        Ok(squeezed) => squeezed.map(|squeezed| squeezed.answer),
        Err(_) => Err(BenchError::Arguments(format!(
            "a squeezer has not answered within {} s",
            SQUEEZE_LIMIT.as_secs()
        ))),
    }
}
