//! Clients' connections, with limits on their number and slowness.

use super::{
    crowd::{Crowd, Place},
    tls::Tls,
    write_timeout::WriteTimeout,
};
use axum::Router;
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    time::{sleep, timeout},
};

/// How long to wait after an error before accepting again; most likely too many files are open.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// The maximum number of bytes of a request, including its head, that are read ahead of the
/// handler.
const READ_AHEAD: usize = 16 << 10;

/// Limits on connections.
#[derive(Clone, Copy)]
pub struct ConnectionLimits {
    /// The maximum number of connections. Beyond it, a new one replaces an idle one ([`Crowd`]).
    pub count: usize,
    /// How long a client may take to send the head of a request, and how long it may keep a
    /// connection open without a request.
    /// With TLS, it has as long for the handshake.
    pub head: Duration,
    /// How long it may go without reading any of a response.
    pub answer: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        let patience = Duration::from_secs(30);
        Self { count: 1024, head: patience, answer: patience }
    }
}

/// Serves until `end`, then completes the requests that were received. With TLS if there is a certificate.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    router: Router,
    limits: ConnectionLimits,
    end: impl Future<Output = ()>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(READ_AHEAD);
    let crowd = Crowd::new(limits.count);
    let graceful = GracefulShutdown::new();
    let mut end = pin!(end);
    loop {
        let accept = async {
            match listener.accept().await {
                Ok((stream, _)) => Some((stream, crowd.enter().await)),
                Err(_) => None,
            }
        };
        let accepted = tokio::select! {
            accepted = accept => accepted,
            () = &mut end => break,
        };
        let Some((stream, place)) = accepted else {
            crowd.make_room();
            sleep(ERROR_PAUSE).await;
            continue;
        };
        let place = Arc::new(place);
        let stream = WriteTimeout::new(stream, limits.answer);
        let (http, watcher) = (http.clone(), graceful.watcher());
        let service = service(router.clone(), place.clone());
        let acceptor = tls.as_ref().map(|tls| tls.acceptor());
        let connection = async move {
            let stream: Box<dyn Stream> = match acceptor {
                None => Box::new(stream),
                // Who does not get through the handshake has not asked for anything.
                Some(acceptor) => match timeout(limits.head, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => Box::new(stream),
                    _ => return,
                },
            };
            // It ends with an error if the client has disconnected, or was too slow.
            let _ = watcher.watch(http.serve_connection(TokioIo::new(stream), service)).await;
        };
        tokio::spawn(async move {
            tokio::select! {
                () = connection => {}
                () = place.left() => {}
            }
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

/// A connection, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The service for one connection; adds the connection's [`Place`] to each request as an extension.
fn service(
    router: Router,
    place: Arc<Place>,
) -> impl Service<
    Request<Incoming>,
    Response = axum::response::Response,
    Error = std::convert::Infallible,
    Future: Send,
> {
    service_fn(move |mut request: Request<Incoming>| {
        place.works();
        request.extensions_mut().insert(place.clone());
        let answer = TowerToHyperService::new(router.clone()).call(request);
        let place = place.clone();
        async move {
            let answer = answer.await;
            place.waits();
            answer
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tls, *};
    use axum::routing::get;
    use std::net::SocketAddr;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        sync::oneshot,
        task::JoinHandle,
    };

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    /// Reads from a connection until it is closed.
    async fn read(mut stream: TcpStream) -> String {
        let mut text = String::new();
        let read = stream.read_to_string(&mut text);
        let _ = tokio::time::timeout(Duration::from_secs(10), read).await.expect("it is closed");
        text
    }

    /// Serves with a limit of one connection, until the sender is dropped.
    async fn serve_one(router: Router) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, told) = oneshot::channel::<()>();
        let patience = Duration::from_millis(200);
        let limits = ConnectionLimits { count: 1, head: patience, answer: patience };
        let serving = tokio::spawn(serve(listener, None, router, limits, async {
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
        // The only place is free once the slow client has been disconnected.
        assert!(!read(slow).await.contains("here"));
        assert!(read(next).await.ends_with("here"));
        drop(end);
        tokio::time::timeout(Duration::from_secs(10), serving).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn with_a_certificate_only_tls_is_spoken_and_handshakes_have_a_limit() {
        let directory = tempfile::tempdir().unwrap();
        let files = tls::tests::make(directory.path(), "own");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = Router::new().route("/", get(|| async { "here" }));
        // curl has to be done with its handshake by then.
        let head = Duration::from_secs(4);
        let limits = ConnectionLimits { head, ..ConnectionLimits::default() };
        let certificate = Some(Tls::open(files.clone()).unwrap());
        tokio::spawn(serve(listener, certificate, router, limits, std::future::pending()));

        let url = format!("https://localhost:{port}/");
        let curl = tokio::task::spawn_blocking(move || {
            let mut command = std::process::Command::new("curl");
            command.args(["-sS", "--max-time", "10", "--cacert"]).arg(&files.certificate).arg(url);
            command.output().expect("curl is installed")
        });
        let answer = curl.await.unwrap();
        assert_eq!(String::from_utf8_lossy(&answer.stdout), "here", "{answer:?}");

        let mut plain = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        plain.write_all(REQUEST).await.unwrap();
        assert!(!read(plain).await.contains("here"));
        let silent = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        assert_eq!(read(silent).await, "");
    }

    #[tokio::test]
    async fn who_does_not_read_its_answer_does_not_keep_others_out() {
        // More than the buffers of both ends can hold.
        let large = || async { "x".repeat(64 << 20) };
        let router = Router::new().route("/", get(|| async { "here" })).route("/large", get(large));
        let (address, _end, _serving) = serve_one(router).await;
        let mut deaf = TcpStream::connect(address).await.unwrap();
        deaf.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        // Part of the response has been sent before the next one connects.
        deaf.readable().await.unwrap();
        let mut next = TcpStream::connect(address).await.unwrap();
        next.write_all(REQUEST).await.unwrap();
        assert!(read(next).await.ends_with("here"));
        assert!(read(deaf).await.len() < 64 << 20);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn those_who_only_hold_a_connection_keep_nobody_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(|| async { "here" }));
        let limits = ConnectionLimits { count: 50, ..ConnectionLimits::default() };
        tokio::spawn(serve(listener, None, router, limits, std::future::pending()));
        let mut holders = Vec::new();
        for number in 0..400 {
            let mut holder = TcpStream::connect(address).await.unwrap();
            // Half of them send something, and then nothing more.
            if number % 2 == 0 {
                holder.write_all(&REQUEST[..20]).await.unwrap();
            }
            holders.push(holder);
        }
        for _ in 0..5 {
            let begin = std::time::Instant::now();
            let mut good = TcpStream::connect(address).await.unwrap();
            good.write_all(REQUEST).await.unwrap();
            good.readable().await.unwrap();
            let mut answer = [0; 15];
            good.read_exact(&mut answer).await.unwrap();
            assert!(answer.starts_with(b"HTTP/1.1 200 OK"));
            let took = begin.elapsed();
            assert!(took < Duration::from_secs(4), "{took:?}");
        }
    }
}
