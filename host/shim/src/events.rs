//! Events for containerd: a queue in order, and what sends it.
//!
//! Whoever changes a task's state pushes its event under the same lock, so that events are in the order of what
//! happened. Sending is apart from that: no task waits for containerd, which may be restarting.

use crate::{Id, mutex::lock, timestamp};
use containerd_shim_protos::{
    api::ForwardRequest,
    events::task::{
        TaskCreate, TaskDelete, TaskExecAdded, TaskExecStarted, TaskExit, TaskOOM, TaskPaused,
        TaskResumed, TaskStart,
    },
    protobuf::{MessageDyn, MessageField, well_known_types::any::Any},
    shim::event::Envelope,
    shim_async::{Client, EventsClient},
    topics,
    ttrpc::context,
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

/// Most events that wait. containerd asks for the state of each task when it comes back, so that the oldest are the
/// ones that it can do without.
const MAX_WAITING: usize = 4096;
/// How long containerd may take to accept a connection, and an event.
const SEND_LIMIT: Duration = Duration::from_secs(5);
/// The pause after a failure: from this to that, doubled each time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Something that has happened to a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It was created.
    Create(TaskCreate),
    /// Its process has started.
    Start(TaskStart),
    /// Its processes do not run until it is resumed.
    Paused(TaskPaused),
    /// They run again.
    Resumed(TaskResumed),
    /// Its process was killed because its memory was full; an exit follows.
    OutOfMemory(TaskOOM),
    /// A process was added to it.
    ExecAdded(TaskExecAdded),
    /// A process that was added has started.
    ExecStarted(TaskExecStarted),
    /// Its process has ended, or one that was added.
    Exit(TaskExit),
    /// It was deleted.
    Delete(TaskDelete),
}

impl Event {
    fn parts(&self) -> (&'static str, &dyn MessageDyn) {
        match self {
            Self::Create(event) => (topics::TASK_CREATE_EVENT_TOPIC, event),
            Self::Start(event) => (topics::TASK_START_EVENT_TOPIC, event),
            Self::Paused(event) => (topics::TASK_PAUSED_EVENT_TOPIC, event),
            Self::Resumed(event) => (topics::TASK_RESUMED_EVENT_TOPIC, event),
            Self::OutOfMemory(event) => (topics::TASK_OOM_EVENT_TOPIC, event),
            Self::ExecAdded(event) => (topics::TASK_EXEC_ADDED_EVENT_TOPIC, event),
            Self::ExecStarted(event) => (topics::TASK_EXEC_STARTED_EVENT_TOPIC, event),
            Self::Exit(event) => (topics::TASK_EXIT_EVENT_TOPIC, event),
            Self::Delete(event) => (topics::TASK_DELETE_EVENT_TOPIC, event),
        }
    }

    /// As containerd takes it.
    fn envelope(&self, namespace: &Id) -> Envelope {
        let (topic, message) = self.parts();
        let event = Any {
            type_url: message.descriptor_dyn().full_name().to_owned(),
            value: message.write_to_bytes_dyn().expect("an event can be written to memory"),
            ..Default::default()
        };
        Envelope {
            timestamp: MessageField::some(timestamp::now()),
            namespace: namespace.to_string(),
            topic: topic.to_owned(),
            event: MessageField::some(event),
            ..Default::default()
        }
    }
}

/// Events that wait to be sent, the oldest first.
#[derive(Clone)]
pub struct Events {
    namespace: Id,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// Told of each event, and of each that is no longer waiting.
    changed: Notify,
}

#[derive(Default)]
struct Waiting {
    envelopes: VecDeque<Envelope>,
    /// How many were ever taken from the front.
    taken: u64,
}

impl Events {
    /// An empty queue for the tasks of a namespace.
    pub fn new(namespace: Id) -> Self {
        Self { namespace, queue: Arc::default() }
    }

    /// Adds an event. If too many wait, the oldest is lost.
    pub fn push(&self, event: &Event) {
        let envelope = event.envelope(&self.namespace);
        let mut waiting = self.waiting();
        if waiting.envelopes.len() >= MAX_WAITING
            && let Some(lost) = waiting.envelopes.pop_front()
        {
            waiting.taken += 1;
            tracing::warn!(
                "containerd has not taken {MAX_WAITING} events, and one of {} is lost",
                lost.topic
            );
        }
        waiting.envelopes.push_back(envelope);
        drop(waiting);
        self.queue.changed.notify_waiters();
    }

    /// Sends the events to the socket at `address`, one after the other, without an end. An event for which containerd's
    /// answer does not come is sent again, so that it can come twice.
    pub async fn send(&self, address: &str) {
        let mut client = None;
        let mut pause = SHORTEST_PAUSE;
        loop {
            let (number, envelope) = self.first().await;
            match timeout(SEND_LIMIT, forward(&mut client, address, envelope)).await {
                Ok(Ok(())) => {
                    self.sent(number);
                    pause = SHORTEST_PAUSE;
                    continue;
                }
                Ok(Err(error)) => tracing::warn!("containerd does not take an event: {error}"),
                Err(_) => tracing::warn!("containerd does not take an event within {SEND_LIMIT:?}"),
            }
            client = None;
            sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Waits until all events have been sent, or lost.
    pub async fn are_sent(&self) {
        self.until(|waiting| waiting.envelopes.is_empty().then_some(())).await;
    }

    /// The event that is sent next, and its number among all.
    async fn first(&self) -> (u64, Envelope) {
        self.until(|waiting| Some((waiting.taken, waiting.envelopes.front()?.clone()))).await
    }

    /// Takes an event that has been sent, if it has not been lost in the meantime.
    fn sent(&self, number: u64) {
        let mut waiting = self.waiting();
        if waiting.taken == number {
            waiting.envelopes.pop_front();
            waiting.taken += 1;
        }
        drop(waiting);
        self.queue.changed.notify_waiters();
    }

    async fn until<T>(&self, found: impl Fn(&Waiting) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.queue.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = found(&self.waiting()) {
                return found;
            }
            changed.await;
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.queue.waiting)
    }

    /// All events that wait, for tests that look at them.
    #[cfg(test)]
    pub(crate) fn envelopes(&self) -> Vec<Envelope> {
        self.waiting().envelopes.iter().cloned().collect()
    }
}

/// Sends an event, over a new connection if there is none.
async fn forward(
    connected: &mut Option<EventsClient>,
    address: &str,
    envelope: Envelope,
) -> containerd_shim_protos::ttrpc::Result<()> {
    let client = match connected {
        Some(client) => client,
        None => connected
            .insert(EventsClient::new(Client::connect(&format!("unix://{address}")).await?)),
    };
    let request = ForwardRequest { envelope: MessageField::some(envelope), ..Default::default() };
    client.forward(context::with_duration(SEND_LIMIT), &request).await?;
    Ok(())
}

#[cfg(test)]
mod tests;
