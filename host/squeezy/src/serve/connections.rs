//! Connections of clients: how many there may be, and how slow.

use super::patience::Patience;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::Semaphore, time::sleep};

/// How long after an error the next connection is taken: most likely there are too many open files.
const ERROR_PAUSE: Duration = Duration::from_millis(200);

/// What connections are limited to.
#[derive(Clone, Copy)]
pub struct ConnectionLimits {
    /// How many there are at once; further ones wait until they are accepted.
    pub count: usize,
    /// How long a client may take to send the head of a request, and how long it may keep a
    /// connection without one.
    pub head: Duration,
    /// How long it may read nothing of an answer.
    pub answer: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        let patience = Duration::from_secs(30);
        Self { count: 1024, head: patience, answer: patience }
    }
}

/// Serves until `end`, then answers what has been asked.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    end: impl Future<Output = ()>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head);
    let places = Arc::new(Semaphore::new(limits.count));
    let graceful = GracefulShutdown::new();
    let mut end = pin!(end);
    loop {
        let accept = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accept => accepted,
            () = &mut end => break,
        };
        let Ok((stream, _)) = accepted else {
            sleep(ERROR_PAUSE).await;
            continue;
        };
        let service = TowerToHyperService::new(router.clone());
        let stream = TokioIo::new(Patience::new(stream, limits.answer));
        let connection = graceful.watch(http.serve_connection(stream, service));
        tokio::spawn(async move {
            // The client has gone, or was too slow.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::net::SocketAddr;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        sync::oneshot,
        task::JoinHandle,
    };

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    /// What comes on a connection until it is closed.
    async fn read(mut stream: TcpStream) -> String {
        let mut text = String::new();
        let read = stream.read_to_string(&mut text);
        let _ = tokio::time::timeout(Duration::from_secs(10), read).await.expect("it is closed");
        text
    }

    /// Serves one connection at a time, until the sender is dropped.
    async fn serve_one(router: Router) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, told) = oneshot::channel::<()>();
        let patience = Duration::from_millis(200);
        let limits = ConnectionLimits { count: 1, head: patience, answer: patience };
        let serving = tokio::spawn(serve(listener, router, limits, async {
            let _ = told.await;
        }));
        (address, end, serving)
    }

    #[tokio::test]
    async fn slow_and_many_clients_do_not_keep_others_out() {
        let (address, end, serving) =
            serve_one(Router::new().route("/", get(|| async { "here" }))).await;
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(&REQUEST[..20]).await.unwrap();
        let mut next = TcpStream::connect(address).await.unwrap();
        next.write_all(REQUEST).await.unwrap();
        // The one place is free once the slow client has been sent away.
        assert!(!read(slow).await.contains("here"));
        assert!(read(next).await.ends_with("here"));
        drop(end);
        tokio::time::timeout(Duration::from_secs(10), serving).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn who_does_not_read_its_answer_does_not_keep_others_out() {
        // More than the buffers of both ends hold.
        let large = || async { "x".repeat(64 << 20) };
        let router = Router::new().route("/", get(|| async { "here" })).route("/large", get(large));
        let (address, _end, _serving) = serve_one(router).await;
        let mut deaf = TcpStream::connect(address).await.unwrap();
        deaf.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        // It has been answered to some part before the next one comes.
        deaf.readable().await.unwrap();
        let mut next = TcpStream::connect(address).await.unwrap();
        next.write_all(REQUEST).await.unwrap();
        assert!(read(next).await.ends_with("here"));
        assert!(read(deaf).await.len() < 64 << 20);
    }
}
