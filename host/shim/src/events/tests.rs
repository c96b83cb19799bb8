use super::*;
use async_trait::async_trait;
use containerd_shim_protos::{
    protobuf::{Message, well_known_types::empty::Empty},
    shim_async::{self, create_events},
    ttrpc::{
        self,
        r#async::{Server, TtrpcContext},
    },
};
use std::path::Path;
use tempfile::TempDir;
use tokio::sync::mpsc;

/// containerd's end.
struct Containerd {
    seen: mpsc::UnboundedSender<String>,
}

#[async_trait]
impl shim_async::Events for Containerd {
    async fn forward(&self, _: &TtrpcContext, request: ForwardRequest) -> ttrpc::Result<Empty> {
        let envelope = request.envelope.unwrap();
        assert_eq!(
            (envelope.namespace.as_str(), envelope.topic.as_str()),
            ("k8s.io", "/tasks/start")
        );
        let event = envelope.event.unwrap();
        assert_eq!(event.type_url, "containerd.events.TaskStart");
        self.seen.send(TaskStart::parse_from_bytes(&event.value).unwrap().container_id).unwrap();
        Ok(Empty::new())
    }
}

async fn containerd(socket: &Path) -> (Server, mpsc::UnboundedReceiver<String>) {
    let (seen, events) = mpsc::unbounded_channel();
    let _ = std::fs::remove_file(socket);
    let service = create_events(Arc::new(Containerd { seen }));
    let mut server = Server::new()
        .bind(&format!("unix://{}", socket.display()))
        .unwrap()
        .register_service(service);
    server.start().await.unwrap();
    (server, events)
}

fn events() -> Events {
    Events::new("k8s.io".parse().unwrap())
}

fn start(container_id: impl ToString) -> Event {
    Event::Start(TaskStart { container_id: container_id.to_string(), ..Default::default() })
}

#[tokio::test]
async fn events_arrive_in_order_also_when_containerd_comes_late_and_restarts() {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("c.sock");
    let events = events();
    for number in 0..3 {
        events.push(&start(number));
    }
    let sending = {
        let (events, address) = (events.clone(), socket.to_str().unwrap().to_owned());
        tokio::spawn(async move { events.send(&address).await })
    };
    sleep(Duration::from_millis(20)).await;
    let (mut server, mut seen) = containerd(&socket).await;
    for number in 0..3 {
        assert_eq!(seen.recv().await.unwrap(), number.to_string());
    }
    // An event whose answer does not come is sent again.
    timeout(Duration::from_secs(10), events.are_sent()).await.expect("they are answered");
    server.shutdown().await.unwrap();
    drop(server);
    for number in 3..6 {
        events.push(&start(number));
    }
    let (_server, mut seen) = containerd(&socket).await;
    for number in 3..6 {
        assert_eq!(seen.recv().await.unwrap(), number.to_string());
    }
    timeout(Duration::from_secs(10), events.are_sent()).await.expect("nothing waits");
    sending.abort();
}

#[tokio::test]
async fn a_containerd_that_is_away_costs_a_bounded_number_of_events_the_oldest_first() {
    let events = events();
    for number in 0..MAX_WAITING + 10 {
        events.push(&start(number));
    }
    let waiting = events.envelopes();
    assert_eq!(waiting.len(), MAX_WAITING);
    assert_eq!(events.first().await.0, 10);
    let first = waiting[0].event.as_ref().unwrap();
    assert_eq!(TaskStart::parse_from_bytes(&first.value).unwrap().container_id, "10");
}

#[tokio::test]
async fn an_event_that_is_lost_while_it_is_sent_takes_no_other_along() {
    let events = events();
    events.push(&start("first"));
    let (number, _) = events.first().await;
    for further in 0..MAX_WAITING {
        events.push(&start(further));
    }
    events.sent(number);
    assert_eq!(events.envelopes().len(), MAX_WAITING);
}
