//! The only way out for what talks to a registry: a proxy that decides where a pull connects to.
//!
//! skopeo has a network of its own, in which nobody is but this. It asks for connections as it would ask any proxy. The
//! daemon looks names up itself, judges each address as one that a function connects to, and connects to what it has
//! judged, so that no registry can send a pull to what only the daemon's machine reaches. See ADR 0061.

mod judge;
mod lookup;
mod operator;
mod request;
mod target;
#[cfg(test)]
mod tests;

use super::PullError;
use crate::{mutex::lock, serve::config::RegistryEntry};
use judge::Judge;
use operator::OperatorsProxies;
use request::{Head, Plain, Request};
use squeezy_sandbox::{Listeners, Sandbox, ToolError, output};
use std::{
    convert::Infallible,
    future::pending,
    io, iter,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use target::Target;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};

/// Where it is in the network of the sandbox; no registry is there.
const ADDRESS: &str = "127.255.255.254:3128";

/// How much is passed on at a time, in bytes.
const PART_BYTES: usize = 32 << 10;

/// How many names of one pull are looked up at a time.
const MOST_LOOKUPS: usize = 4;

/// When the next address of a host is tried beside those that have not answered yet.
const NEXT_ADDRESS: Duration = Duration::from_millis(300);

/// How long it waits when no connection can be accepted.
const RETRY: Duration = Duration::from_millis(100);

/// What somebody hears whose image is larger than it says.
const TOO_MUCH: &str = "its registry sends more than the image has";

/// What a pull may take of the daemon.
struct Bounds {
    /// Connections at a time.
    connections: usize,
    /// Connections in all, to each socket.
    connections_in_all: usize,
    /// How long the head of a request may take to arrive.
    request: Duration,
    /// How long it may take to look a name up and to connect to one of its addresses.
    connect: Duration,
    /// How long nothing has to arrive on a connection before it is closed; at most twice as long.
    pause: Duration,
}

const BOUNDS: Bounds = Bounds {
    connections: 32,
    connections_in_all: 2000,
    request: Duration::from_secs(10),
    connect: Duration::from_secs(30),
    pause: Duration::from_secs(60),
};

/// The proxy of one run of skopeo. What it does for that ends with it.
pub struct Proxy(Arc<Shared>);

struct Shared {
    judge: Judge,
    operators: OperatorsProxies,
    bounds: Bounds,
    /// What may be passed on, in both directions together, and what has been, in bytes.
    most_bytes: u64,
    bytes: AtomicU64,
    connections: Arc<Semaphore>,
    lookups: Semaphore,
    is_guest: bool,
    noted: Mutex<Option<Noted>>,
}

/// Why a connection was not made.
#[derive(Clone, Debug)]
pub struct Noted {
    /// What whoever asked for the image hears of it; `None` if it is a failure like any other.
    pub reason: Option<&'static str>,
    /// What the log says of it.
    pub log: String,
}

/// Why a request is not done.
#[derive(Debug)]
pub struct Failure {
    /// The status of the answer.
    status: &'static str,
    /// What is noted of it.
    noted: Noted,
}

impl Failure {
    fn malformed(status: &'static str) -> Self {
        Self { status, noted: Noted { reason: None, log: format!("the proxy answers {status}") } }
    }

    fn refused(reason: &'static str, log: String) -> Self {
        Self { status: "403 Forbidden", noted: Noted { reason: Some(reason), log } }
    }

    fn unreachable(log: String) -> Self {
        Self { status: "502 Bad Gateway", noted: Noted { reason: None, log } }
    }
}

/// A connection to where a client wanted to go.
struct Server {
    stream: TcpStream,
    /// What has already arrived from there.
    arrived: Vec<u8>,
}

impl Proxy {
    /// For one run of skopeo with this registry, for the operator's namespace or another, of which so many bytes may be
    /// passed on.
    pub fn new(entry: &RegistryEntry, is_guest: bool, most_bytes: u64) -> Result<Self, PullError> {
        let operators = OperatorsProxies::in_environment(|name| std::env::var(name).ok());
        let operators = operators.map_err(|problem| {
            PullError::Internal(format!("images cannot be pulled here: {problem}"))
        })?;
        Ok(Self::with(Judge::new(entry), operators, is_guest, BOUNDS, most_bytes))
    }

    fn with(
        judge: Judge,
        operators: OperatorsProxies,
        is_guest: bool,
        bounds: Bounds,
        most_bytes: u64,
    ) -> Self {
        Self(Arc::new(Shared {
            judge,
            operators,
            connections: Arc::new(Semaphore::new(bounds.connections)),
            bounds,
            most_bytes,
            bytes: AtomicU64::new(0),
            lookups: Semaphore::new(MOST_LOOKUPS),
            is_guest,
            noted: Mutex::default(),
        }))
    }

    /// Runs a program in a sandbox that has no other way out; returns what it writes, of which there may be so much, in
    /// bytes.
    pub async fn run(
        &self,
        sandbox: &Sandbox<'_>,
        program: Vec<String>,
        most: usize,
    ) -> Result<Vec<u8>, ToolError> {
        // Programs in Go ask no proxy for what is on the loopback interface, so there it is itself.
        let (mut addresses, mut doors) = (vec![ADDRESS.to_owned()], Vec::new());
        for door in self.0.judge.on_loopback() {
            let address = door.to_string().replace("localhost", "127.0.0.1");
            if !addresses.contains(&address) {
                addresses.push(address);
                doors.push(door.clone());
            }
        }
        let started = sandbox.command_with_listeners(&addresses, program);
        let (mut command, listeners) = started.map_err(ToolError::Missing)?;
        for name in ["HTTP_PROXY", "HTTPS_PROXY"] {
            command.env(name, format!("http://{ADDRESS}"));
        }
        tokio::select! {
            said = output(command, most) => said,
            never = self.serve(listeners, doors) => match never {},
        }
    }

    /// Why it has not connected to something; what has been refused comes first.
    pub fn noted(&self) -> Option<Noted> {
        lock(&self.0.noted).clone()
    }

    /// Serves until it is dropped, with all connections.
    async fn serve(&self, listeners: Listeners, doors: Vec<Target>) -> Infallible {
        let mut accepting = JoinSet::new();
        match listeners.receive().await {
            Ok(listeners) => {
                let doors = iter::once(None).chain(doors.into_iter().map(Some));
                for (listener, door) in listeners.into_iter().zip(doors) {
                    accepting.spawn(self.0.clone().accept(listener, door));
                }
            }
            Err(error) => {
                let log = format!("skopeo cannot be connected to the daemon: {error}");
                self.0.note(Noted { reason: None, log });
            }
        }
        pending().await
    }
}

impl Shared {
    /// Serves those who connect to a socket: behind it is the proxy, or a registry.
    async fn accept(self: Arc<Self>, listener: TcpListener, door: Option<Target>) {
        let mut connections = JoinSet::new();
        for _ in 0..self.bounds.connections_in_all {
            let Ok((client, _)) = listener.accept().await else {
                sleep(RETRY).await;
                continue;
            };
            let Ok(place) = self.connections.clone().acquire_owned().await else { break };
            while connections.try_join_next().is_some() {}
            let (shared, door) = (self.clone(), door.clone());
            connections.spawn(async move {
                let _place = place;
                shared.connection(client, door).await;
            });
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    async fn connection(&self, mut client: TcpStream, door: Option<Target>) {
        let done = match &door {
            Some(target) => match self.direct(target).await {
                Ok(server) => {
                    self.tunnel(&mut client, &[], server).await;
                    Ok(())
                }
                Err(failure) => Err(failure),
            },
            None => self.answer(&mut client).await,
        };
        let Err(Failure { status, noted }) = done else { return };
        self.note(noted);
        if door.is_none() {
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            // It may be gone.
            let _ = timeout(self.bounds.request, client.write_all(answer.as_bytes())).await;
        }
    }

    /// Answers one request, which is all that there is on a connection.
    async fn answer(&self, client: &mut TcpStream) -> Result<(), Failure> {
        let head = timeout(self.bounds.request, Head::read(client)).await;
        let head = head.unwrap_or(Err("408 Request Timeout")).map_err(Failure::malformed)?;
        match Request::parse(&head.text).map_err(Failure::malformed)? {
            Request::Connect(target) => {
                let server = self.connect(&target).await?;
                if client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.is_ok() {
                    self.tunnel(client, &head.rest, server).await;
                }
            }
            Request::Plain(plain) => {
                let server = self.send(&plain).await?;
                self.pass_answer(server, client).await;
            }
        }
        Ok(())
    }

    /// Connects for whatever a client wants to say there.
    async fn connect(&self, target: &Target) -> Result<Server, Failure> {
        let Some(upstream) = self.operators.leading_to(target, false) else {
            return self.direct(target).await;
        };
        self.judge.through_proxy(target)?;
        let connected = self.soon(upstream.connect(target)).await;
        let (stream, arrived) = connected.map_err(|error| by_proxy(target, &error))?;
        Ok(Server { stream, arrived })
    }

    /// Sends a request by plain HTTP.
    async fn send(&self, plain: &Plain) -> Result<Server, Failure> {
        let target = &plain.target;
        self.judge.plain(target)?;
        let upstream = self.operators.leading_to(target, true);
        let mut server = match upstream {
            Some(upstream) => {
                self.judge.through_proxy(target)?;
                let opened = self.soon(upstream.open()).await;
                let stream = opened.map_err(|error| by_proxy(target, &error))?;
                Server { stream, arrived: Vec::new() }
            }
            None => self.direct(target).await?,
        };
        let head = plain.head(upstream);
        let sent = self.soon(server.stream.write_all(head.as_bytes())).await;
        sent.map_err(|error| Failure::unreachable(format!("{target}: {error}")))?;
        Ok(server)
    }

    /// Connects to one of the addresses of a host that may be connected to.
    async fn direct(&self, target: &Target) -> Result<Server, Failure> {
        let failed = |error: io::Error| Failure::unreachable(format!("{target}: {error}"));
        let looking_up = async {
            let _turn = self.lookups.acquire().await;
            lookup::addresses(target, self.is_guest).await
        };
        let addresses = self.soon(looking_up).await.map_err(failed)?;
        let permitted = self.judge.permitted(target, addresses)?;
        let stream = self.soon(first_of(permitted)).await.map_err(failed)?;
        Ok(Server { stream, arrived: Vec::new() })
    }

    /// Does something that has to be done soon.
    async fn soon<T>(&self, done: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let done = timeout(self.bounds.connect, done).await;
        done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Passes on what each says to the other, until both have ended or neither says anything.
    async fn tunnel(&self, client: &mut TcpStream, said: &[u8], mut server: Server) {
        let moved = AtomicU64::new(0);
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.stream.split();
        let both = async {
            tokio::try_join!(
                self.carry(from_client, to_server, said, &moved),
                self.carry(from_server, to_client, &server.arrived, &moved),
            )
        };
        tokio::select! {
            _ = both => {}
            () = quiet(&moved, self.bounds.pause) => {}
        }
    }

    /// Passes on an answer, and nothing more of the client: what it might ask next may be for somebody else.
    async fn pass_answer(&self, mut server: Server, client: &mut TcpStream) {
        let moved = AtomicU64::new(0);
        tokio::select! {
            _ = self.carry(&mut server.stream, client, &[], &moved) => {}
            () = quiet(&moved, self.bounds.pause) => {}
        }
    }

    /// Passes on first `said`, and then all that arrives. `moved` changes with each part.
    async fn carry(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        said: &[u8],
        moved: &AtomicU64,
    ) -> io::Result<()> {
        to.write_all(said).await?;
        let mut part = vec![0; PART_BYTES];
        loop {
            let length = from.read(&mut part).await?;
            if length == 0 {
                return to.shutdown().await;
            }
            moved.fetch_add(1, Ordering::Relaxed);
            let before = self.bytes.fetch_add(length as u64, Ordering::Relaxed);
            if before + length as u64 > self.most_bytes {
                let log = format!("more than {} bytes have been passed on", self.most_bytes);
                self.note(Noted { reason: Some(TOO_MUCH), log });
                return Err(io::ErrorKind::QuotaExceeded.into());
            }
            to.write_all(&part[..length]).await?;
        }
    }

    /// Notes why a connection was not made: the first time, and the first time that it was refused.
    fn note(&self, new: Noted) {
        let mut noted = lock(&self.noted);
        let is_known = |noted: &Noted| noted.reason.is_some() || new.reason.is_none();
        if !noted.as_ref().is_some_and(is_known) {
            *noted = Some(new);
        }
    }
}

fn by_proxy(target: &Target, error: &io::Error) -> Failure {
    Failure::unreachable(format!("{target}, by the proxy in the daemon's environment: {error}"))
}

/// Connects to the first of these addresses that answers. They are tried in their order: the next one when one fails, or
/// does not answer for a moment.
async fn first_of(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut addresses = addresses.into_iter();
    let mut trying = JoinSet::new();
    let mut last: io::Error = io::ErrorKind::AddrNotAvailable.into();
    loop {
        if let Some(address) = addresses.next() {
            trying.spawn(TcpStream::connect(address));
        } else if trying.is_empty() {
            return Err(last);
        }
        tokio::select! {
            Some(tried) = trying.join_next() => match tried {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error,
                Err(error) => last = io::Error::other(error),
            },
            () = sleep(NEXT_ADDRESS), if addresses.len() > 0 => {}
        }
    }
}

/// Waits until nothing has moved for this long, and no longer than twice as long.
async fn quiet(moved: &AtomicU64, pause: Duration) {
    let mut before = None;
    loop {
        let now = Some(moved.load(Ordering::Relaxed));
        if now == before {
            return;
        }
        before = now;
        sleep(pause).await;
    }
}
