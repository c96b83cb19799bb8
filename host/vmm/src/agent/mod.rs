//! The host's end of the channel to the agent: a typed method for each call in `squeezy-protocol`.

mod input;
mod output;
mod running_time;
mod turns;

use crate::{Result, VmError, fate::Fate};
use bytes::{Bytes, BytesMut};
use bytesize::ByteSize;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use input::InputBody;
use serde::{Serialize, de::DeserializeOwned};
use squeezy_protocol::{
    Clock, ErrorBody, INSTANCE_HEADER, Info, Instance, InstanceId, InstanceSpec, LOG_END_HEADER,
    Layer, LimitsRequest, MAX_BODY_BYTES, MAX_PAYLOAD_BYTES, MAX_REQUEST_BYTES, Memory,
    PartitionState, Profile, ProfileRequest, SQUEEZE_LIMIT, SignalRequest, Squeezed, TerminalSize,
    Usage, Volume, network::Network,
};
use std::time::{Duration, SystemTime};
use tokio::{io::AsyncRead, net::UnixStream};

pub use output::{OutputReader, OutputStream};
pub(crate) use running_time::RunningTime;
use turns::Turns;

/// How much of one answer may be on its way or wait here for whoever reads it, in bytes.
const STREAM_WINDOW_BYTES: u32 = 128 << 10;
/// The same of all answers: so much that output that nobody reads, two streams for each of 255 instances, and answers that
/// wait for their turn, do not hold up anything else.
const CONNECTION_WINDOW_BYTES: u32 = 2048 * STREAM_WINDOW_BYTES;

/// What of an answer is gathered beside others of its instance, in bytes. The rest waits for its turn.
const SMALL_ANSWER_BYTES: usize = 64 << 10;

/// What a request brings.
type RequestBody = Either<Full<Bytes>, InputBody>;

/// A client of one VM's agent. Clones share the channel; any number of calls may be in flight.
///
/// When the VM ends, every call fails with the reason.
#[derive(Clone)]
pub struct AgentClient {
    sender: http2::SendRequest<RequestBody>,
    fate: Fate,
    limit: Duration,
    turns: Turns,
}

impl AgentClient {
    /// Opens the connection. The agent may answer later.
    pub(crate) async fn connect(
        channel: UnixStream,
        fate: Fate,
        timer: RunningTime,
        limit: Duration,
    ) -> Result<Self> {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(timer)
            // Detects a hung guest, during calls of any length and without any.
            .keep_alive_interval(Some(Duration::from_secs(5)))
            .keep_alive_timeout(Duration::from_secs(15))
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .handshake(TokioIo::new(channel))
            .await
            .map_err(|e| VmError::AgentLost(chain(&e)))?;
        let lost = fate.clone();
        tokio::spawn(async move {
            let reason = match connection.await {
                Ok(()) => "it has closed the channel, or answers no more".to_owned(),
                Err(error) => chain(&error),
            };
            tracing::debug!(reason, "the agent's channel has closed");
            lost.seal_later(VmError::AgentLost(reason)).await;
        });
        Ok(Self { sender, fate, limit, turns: Turns::default() })
    }

    /// The agent's version and the guest's kernel.
    pub async fn info(&self) -> Result<Info> {
        self.get("/v1/info").await
    }

    /// The guest's view of its memory.
    pub async fn memory(&self) -> Result<Memory> {
        self.get("/v1/memory").await
    }

    /// The state of each partition, by number.
    pub async fn partition_states(&self) -> Result<Vec<PartitionState>> {
        self.get("/v1/partitions").await
    }

    /// Starts an instance. Returns once its command has been executed in its partition.
    pub async fn start(&self, spec: &InstanceSpec) -> Result<Instance> {
        let limit = self.limit + Duration::from_millis(spec.wait_ms.into());
        self.json(Method::POST, "/v1/instances", Some(spec), Some(limit)).await
    }

    /// All instances, including those that have ended.
    pub async fn instances(&self) -> Result<Vec<Instance>> {
        self.get("/v1/instances").await
    }

    /// One instance.
    pub async fn instance(&self, id: &InstanceId) -> Result<Instance> {
        self.get(&format!("/v1/instances/{id}")).await
    }

    /// Waits, without a limit, until an instance has ended.
    pub async fn wait(&self, id: &InstanceId) -> Result<Instance> {
        self.json(Method::GET, &format!("/v1/instances/{id}/wait"), None::<&()>, None).await
    }

    /// The most recent output of an instance.
    pub async fn log(&self, id: &InstanceId) -> Result<String> {
        self.log_from(id, 0).await.map(|(text, _)| text)
    }

    /// The output of an instance from byte `from` on, as far as the guest still has it, and the
    /// offset to continue from.
    pub async fn log_from(&self, id: &InstanceId, from: u64) -> Result<(String, u64)> {
        let path = format!("/v1/instances/{id}/log?from={from}");
        let response = self.send(Method::GET, &path, Bytes::new(), Some(self.limit)).await?;
        let end =
            response.headers().get(LOG_END_HEADER).and_then(|end| end.to_str().ok()?.parse().ok());
        let end = end.ok_or_else(|| {
            VmError::AgentAnswer(format!("to {path}, without the offset of the log's end"))
        })?;
        Ok((String::from_utf8_lossy(response.body()).into_owned(), end))
    }

    /// What an instance writes to one of its streams, from the start to the end of its last writer; once for each. Only
    /// if it was started with [`OutputKind::Streams`](squeezy_protocol::OutputKind::Streams).
    pub async fn output(&self, id: &InstanceId, stream: OutputStream) -> Result<OutputReader> {
        let asked = format!("/v1/instances/{id}/{stream}");
        let request = request(Method::GET, &asked, Bytes::new())?;
        let response = self.begin(request, Some(self.limit)).await?;
        if response.status().as_u16() < 400 {
            return Ok(OutputReader::new(response.into_body()));
        }
        let response =
            self.within(Some(self.limit), &asked, collect(response, MAX_BODY_BYTES)).await?;
        Err(refusal(asked, &response))
    }

    /// Sends to an instance's standard input what there is to read, and closes it then. Returns, without a limit, when the
    /// guest has it all, or nobody there reads it any more. Once, and only if it was started with
    /// [`input`](InstanceSpec::input).
    pub async fn input(
        &self,
        id: &InstanceId,
        from: impl AsyncRead + Send + Unpin + 'static,
    ) -> Result<()> {
        let asked = format!("/v1/instances/{id}/stdin");
        let request = Request::put(&asked).body(Either::Right(InputBody::new(from)));
        let request = request.map_err(|e| VmError::Request(format!("{asked}: {e}")))?;
        let response = self.exchange(request, None, MAX_BODY_BYTES).await?;
        accepted(asked, response).map(drop)
    }

    /// Sets the size of an instance's terminal.
    pub async fn resize_terminal(&self, id: &InstanceId, size: TerminalSize) -> Result<()> {
        let path = format!("/v1/instances/{id}/terminal");
        self.send(Method::PUT, &path, encode(&size)?, Some(self.limit)).await.map(drop)
    }

    /// Sends a signal to an instance.
    pub async fn signal(&self, id: &InstanceId, request: SignalRequest) -> Result<()> {
        let path = format!("/v1/instances/{id}/signal");
        self.send(Method::POST, &path, encode(&request)?, Some(self.limit)).await.map(drop)
    }

    /// Changes limits of an instance, or none of them if the guest refuses. If it does not answer in time, it may still
    /// change all of them.
    pub async fn change_limits(&self, id: &InstanceId, limits: LimitsRequest) -> Result<()> {
        let path = format!("/v1/instances/{id}/limits");
        self.send(Method::PUT, &path, encode(&limits)?, Some(self.limit)).await.map(drop)
    }

    /// The ids, in the guest, of the processes of an instance that is not inside another one.
    pub async fn processes(&self, id: &InstanceId) -> Result<Vec<u32>> {
        self.get(&format!("/v1/instances/{id}/processes")).await
    }

    /// What an instance uses.
    pub async fn usage(&self, id: &InstanceId) -> Result<Usage> {
        self.get(&format!("/v1/instances/{id}/usage")).await
    }

    /// For how long the processes of an instance have run, or at least one of them has waited for a processor or a drive,
    /// since its start.
    pub async fn busy(&self, id: &InstanceId) -> Result<Duration> {
        self.get(&format!("/v1/instances/{id}/busy")).await.map(Duration::from_micros)
    }

    /// Adds a layer of the pool, which the host has written, for instances to start on.
    pub async fn add_layer(&self, layer: Layer) -> Result<()> {
        self.send(Method::POST, "/v1/layers", encode(&layer)?, Some(self.limit)).await.map(drop)
    }

    /// Removes the layer at this offset. The guest reads nothing of it once this returns. Refused while an instance has
    /// it.
    pub async fn remove_layer(&self, offset_bytes: u64) -> Result<()> {
        let path = format!("/v1/layers/{offset_bytes}");
        self.send(Method::DELETE, &path, Bytes::new(), Some(self.limit)).await.map(drop)
    }

    /// Makes a volume of this number, which instances can be started with.
    pub async fn add_volume(&self, number: u32, volume: &Volume) -> Result<()> {
        let path = format!("/v1/volumes/{number}");
        self.send(Method::POST, &path, encode(volume)?, Some(self.limit)).await.map(drop)
    }

    /// Makes these the files and limits of a volume that instances do not write to.
    pub async fn change_volume(&self, number: u32, volume: &Volume) -> Result<()> {
        let path = format!("/v1/volumes/{number}");
        self.send(Method::PUT, &path, encode(volume)?, Some(self.limit)).await.map(drop)
    }

    /// The beginning of a file in the own directory of such a volume.
    pub async fn file_of_volume(&self, number: u32, name: &str) -> Result<Bytes> {
        let path = format!("/v1/volumes/{number}/{name}");
        let response = self.send(Method::GET, &path, Bytes::new(), Some(self.limit)).await?;
        Ok(response.into_body())
    }

    /// Removes a volume. Instances that have it keep it to their end.
    pub async fn remove_volume(&self, number: u32) -> Result<()> {
        let path = format!("/v1/volumes/{number}");
        self.send(Method::DELETE, &path, Bytes::new(), Some(self.limit)).await.map(drop)
    }

    /// Makes a network of this number, which instances can be started in.
    pub async fn add_network(&self, number: u8, network: Network) -> Result<()> {
        let path = format!("/v1/networks/{number}");
        self.send(Method::POST, &path, encode(&network)?, Some(self.limit)).await.map(drop)
    }

    /// Removes a network. Refused while an instance is in it.
    pub async fn remove_network(&self, number: u8) -> Result<()> {
        let path = format!("/v1/networks/{number}");
        self.send(Method::DELETE, &path, Bytes::new(), Some(self.limit)).await.map(drop)
    }

    /// Freezes an instance until the next request to its server. Returns once none of its processes
    /// runs.
    pub async fn freeze(&self, id: &InstanceId) -> Result<Instance> {
        let path = format!("/v1/instances/{id}/freeze");
        self.json(Method::POST, &path, None::<&()>, Some(self.limit)).await
    }

    /// Lets the processes of an instance run again. No error if they do.
    pub async fn thaw(&self, id: &InstanceId) -> Result<Instance> {
        let path = format!("/v1/instances/{id}/thaw");
        self.json(Method::POST, &path, None::<&()>, Some(self.limit)).await
    }

    /// Makes a frozen instance one that can only be killed, so that the host may discard its memory while the VM is
    /// paused ([`Vm::condemn`](crate::Vm::condemn)). The next request to its server and the next squeeze undo that,
    /// unless it was condemned. Refused if others have to do with its memory, which may be over the next moment.
    pub async fn doom(&self, id: &InstanceId) -> Result<Instance> {
        let path = format!("/v1/instances/{id}/doom");
        self.json(Method::POST, &path, None::<&()>, Some(self.limit)).await
    }

    /// Makes a frozen instance give back its garbage. Returns once it is frozen again and the free
    /// memory of its partition has been returned to the host.
    pub async fn squeeze(&self, id: &InstanceId) -> Result<Squeezed> {
        let path = format!("/v1/instances/{id}/squeeze");
        let limit = self.limit + SQUEEZE_LIMIT;
        self.json(Method::POST, &path, None::<&()>, Some(limit)).await
    }

    /// Stops an instance: SIGTERM, then SIGKILL if it has not exited after `grace`. Returns once
    /// all its processes have been reaped.
    pub async fn stop(&self, id: &InstanceId, grace: Duration) -> Result<Instance> {
        let path = format!("/v1/instances/{id}?grace_ms={}", grace.as_millis());
        self.json(Method::DELETE, &path, None::<&()>, Some(self.limit + grace)).await
    }

    /// Passes a request to an instance's HTTP server: `/run` in the request's URI becomes
    /// `/v1/instances/ID/http/run`. Returns the instance's response whatever its status, unless the
    /// agent could not get one. The call may take `limit`.
    pub async fn http(
        &self,
        id: &InstanceId,
        request: Request<Bytes>,
        limit: Duration,
    ) -> Result<Response<Bytes>> {
        let (mut parts, body) = request.into_parts();
        if body.len() > MAX_REQUEST_BYTES {
            return Err(VmError::Request(format!(
                "it has {}; at most {} are possible",
                ByteSize(body.len() as u64),
                ByteSize(MAX_REQUEST_BYTES as u64)
            )));
        }
        let rest = parts.uri.path_and_query().map_or("/", |p| p.as_str());
        let path = format!("/v1/instances/{id}/http{rest}");
        parts.uri =
            path.parse().map_err(|e| VmError::Request(format!("`{rest}` is not a path: {e}")))?;
        parts.headers.remove(header::CONNECTION);
        parts.version = http::Version::HTTP_2;
        let request = Request::from_parts(parts, Either::Left(Full::new(body)));
        let asked = format!("{} {}", request.method(), request.uri().path());
        let turn = self.turns.of(id);
        let exchange = async { collect_in_turn(self.respond(request).await?, &turn).await };
        self.within(Some(limit), &asked, exchange).await
    }

    /// Frees the guest's memory that only holds files' contents which no process has mapped.
    pub async fn drop_page_cache(&self) -> Result<()> {
        let path = "/v1/page-cache/drop";
        self.send(Method::POST, path, Bytes::new(), Some(self.limit)).await.map(drop)
    }

    /// Sets the guest's clock, which stops while its VM is paused.
    pub async fn set_clock(&self, time: SystemTime) -> Result<()> {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let body = encode(&Clock { unix_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX) })?;
        self.send(Method::PUT, "/v1/clock", body, Some(self.limit)).await.map(drop)
    }

    /// Starts counting calls of kernel functions from zero.
    pub async fn start_profile(&self, request: &ProfileRequest) -> Result<()> {
        let body = encode(request)?;
        self.send(Method::PUT, "/v1/profile", body, Some(self.limit)).await.map(drop)
    }

    /// The counts since [`Self::start_profile`].
    pub async fn profile(&self) -> Result<Profile> {
        self.get("/v1/profile").await
    }

    /// Asks the guest to power off.
    pub async fn shutdown(&self) -> Result<()> {
        self.send(Method::POST, "/v1/shutdown", Bytes::new(), Some(self.limit)).await.map(drop)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.json(Method::GET, path, None::<&()>, Some(self.limit)).await
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        limit: Option<Duration>,
    ) -> Result<T> {
        let body = body.map(encode).transpose()?.unwrap_or_default();
        let response = self.send(method, path, body, limit).await?;
        serde_json::from_slice(response.body())
            .map_err(|e| VmError::AgentAnswer(format!("to {path}, {e}")))
    }

    /// Sends one of the agent's own calls; a status of 400 or more is an error.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        limit: Option<Duration>,
    ) -> Result<Response<Bytes>> {
        let asked = format!("{method} {path}");
        let request = request(method, path, body)?;
        accepted(asked, self.exchange(request, limit, MAX_BODY_BYTES).await?)
    }

    async fn exchange(
        &self,
        request: Request<RequestBody>,
        limit: Option<Duration>,
        most: usize,
    ) -> Result<Response<Bytes>> {
        let asked = format!("{} {}", request.method(), request.uri().path());
        let exchange = async { collect(self.respond(request).await?, most).await };
        self.within(limit, &asked, exchange).await
    }

    /// Sends a request, and returns the response when it begins.
    async fn begin(
        &self,
        request: Request<RequestBody>,
        limit: Option<Duration>,
    ) -> Result<Response<Incoming>> {
        let asked = format!("{} {}", request.method(), request.uri().path());
        self.within(limit, &asked, self.respond(request)).await
    }

    async fn respond(&self, mut request: Request<RequestBody>) -> Result<Response<Incoming>> {
        // HTTP/2 requires a scheme and an authority; the channel has only one destination.
        let uri = format!("http://agent{}", request.uri());
        *request.uri_mut() = uri.parse().map_err(|e| VmError::Request(format!("{uri}: {e}")))?;
        let mut sender = self.sender.clone();
        sender.ready().await.map_err(|e| VmError::AgentLost(chain(&e)))?;
        sender.send_request(request).await.map_err(|e| VmError::AgentLost(chain(&e)))
    }

    /// Does what needs the agent, while there is a VM.
    async fn within<T>(
        &self,
        limit: Option<Duration>,
        asked: &str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let late = || {
            VmError::AgentLost(format!(
                "it has not answered {asked} in time; the guest may be overloaded"
            ))
        };
        self.fate
            .guard(async {
                match limit {
                    Some(limit) => tokio::time::timeout(limit, work).await.map_err(|_| late())?,
                    None => work.await,
                }
            })
            .await
    }
}

/// A request for one of the agent's own calls.
fn request(method: Method, path: &str, body: Bytes) -> Result<Request<RequestBody>> {
    let asked = format!("{method} {path}");
    let mut request = Request::builder().method(method).uri(path);
    if !body.is_empty() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    request
        .body(Either::Left(Full::new(body)))
        .map_err(|e| VmError::Request(format!("{asked}: {e}")))
}

/// The error of an answer with a status of 400 or more.
/// The agent's answer to one of its own calls; a status of 400 or more is an error.
fn accepted(request: String, response: Response<Bytes>) -> Result<Response<Bytes>> {
    if response.status().as_u16() < 400 { Ok(response) } else { Err(refusal(request, &response)) }
}

fn refusal(request: String, response: &Response<Bytes>) -> VmError {
    match serde_json::from_slice::<ErrorBody>(response.body()) {
        Ok(ErrorBody { code, message }) => VmError::Agent { request, code, message },
        Err(_) => VmError::AgentAnswer(format!("to {request}, status {}", response.status())),
    }
}

async fn collect(response: Response<Incoming>, most: usize) -> Result<Response<Bytes>> {
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, most).collect().await;
    let body = body.map_err(|error| cut_off(&parts, most, &*error))?;
    Ok(Response::from_parts(parts, body.to_bytes()))
}

/// The same for the answer of an instance's server, which waits for its turn once it is no small one any more.
async fn collect_in_turn(
    response: Response<Incoming>,
    turn: &tokio::sync::Mutex<()>,
) -> Result<Response<Bytes>> {
    let (parts, body) = response.into_parts();
    let mut body = Limited::new(body, MAX_PAYLOAD_BYTES);
    let (mut whole, mut held) = (BytesMut::new(), None);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| cut_off(&parts, MAX_PAYLOAD_BYTES, &*error))?;
        let Ok(data) = frame.into_data() else { continue };
        whole.extend_from_slice(&data);
        if held.is_none() && whole.len() > SMALL_ANSWER_BYTES {
            held = Some(turn.lock().await);
        }
    }
    Ok(Response::from_parts(parts, whole.freeze()))
}

/// Why an answer is not whole.
fn cut_off(
    parts: &http::response::Parts,
    most: usize,
    error: &(dyn std::error::Error + Send + Sync + 'static),
) -> VmError {
    let of_instance = parts.headers.contains_key(INSTANCE_HEADER);
    match (of_instance, error.is::<LengthLimitError>()) {
        (true, true) => VmError::AnswerTooLong,
        (true, false) => VmError::Answer(format!("its answer was cut off: {error}")),
        (false, true) => VmError::AgentAnswer(format!("more than {most} bytes")),
        (false, false) => VmError::AgentLost(format!("its answer was cut off: {error}")),
    }
}

fn encode(body: &impl Serialize) -> Result<Bytes> {
    serde_json::to_vec(body).map(Bytes::from).map_err(|e| VmError::Request(e.to_string()))
}

/// An error with its causes, because hyper's top-level messages say little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, StatusCode};
    use hyper::{server::conn::http2 as server, service::service_fn};
    use squeezy_protocol::ErrorCode;
    use std::pin::pin;
    use tokio::{io::AsyncWriteExt, sync::watch, time::timeout};

    /// An agent that misbehaves differently on each path.
    async fn answer(request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
        if request.uri().path() == "/v1/instances/a/stdin" {
            let input = request.into_body().collect().await?.to_bytes();
            let mut response = Response::new(Full::default());
            if input.len() != 100_000 {
                *response.status_mut() = StatusCode::BAD_REQUEST;
            }
            return Ok(response);
        }
        let (status, body) = match request.uri().path() {
            "/v1/instances" => {
                (StatusCode::CONFLICT, Bytes::from(r#"{"code":"exists","message":"there is one"}"#))
            }
            "/v1/memory" => (StatusCode::OK, Bytes::from(vec![b' '; MAX_BODY_BYTES + 1])),
            "/v1/profile" => (StatusCode::BAD_GATEWAY, Bytes::from("what?")),
            "/v1/instances/a/wait" => std::future::pending().await,
            "/v1/instances/a/http/run" if request.uri().query() == Some("x=1") => {
                (StatusCode::NOT_FOUND, Bytes::from("the instance says so"))
            }
            "/v1/instances/a/http/long" => {
                (StatusCode::OK, Bytes::from(vec![b' '; MAX_PAYLOAD_BYTES + 1]))
            }
            _ => (StatusCode::OK, Bytes::from("{")),
        };
        let of_instance = request.uri().path().contains("/http/");
        let mut response = Response::new(Full::new(body));
        if of_instance {
            response.headers_mut().insert(INSTANCE_HEADER, HeaderValue::from_static("a"));
        }
        *response.status_mut() = status;
        Ok(response)
    }

    async fn client(fate: &Fate) -> AgentClient {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let connection = server::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(theirs), service_fn(answer));
        let (paused, timer) = watch::channel(false);
        tokio::spawn(async move {
            let _ = connection.await;
            drop(paused);
        });
        let timer = RunningTime(timer);
        AgentClient::connect(ours, fate.clone(), timer, Duration::from_secs(10)).await.unwrap()
    }

    #[tokio::test]
    async fn wrong_answers_are_errors() {
        let client = client(&Fate::new()).await;
        let wrong = |error: VmError, part: &str| {
            assert!(matches!(&error, VmError::AgentAnswer(text) if text.contains(part)), "{error}");
        };
        wrong(client.info().await.unwrap_err(), "to /v1/info");
        wrong(client.memory().await.unwrap_err(), "more than");
        wrong(client.profile().await.unwrap_err(), "502");
        let refused = client.instances().await.unwrap_err();
        assert!(
            matches!(&refused, VmError::Agent { code: ErrorCode::Exists, message, .. } if message == "there is one")
        );
    }

    #[tokio::test]
    async fn an_instance_answers_for_itself() {
        let client = client(&Fate::new()).await;
        let id: InstanceId = "a".parse().unwrap();
        let request = Request::post("/run?x=1").body(Bytes::from("{}")).unwrap();
        let response = client.http(&id, request, Duration::from_secs(5)).await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(response.body(), "the instance says so");
        let request = Request::post("/long").body(Bytes::new()).unwrap();
        let error = client.http(&id, request, Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(error, VmError::AnswerTooLong);
        let large =
            Request::post("/run").body(Bytes::from(vec![0; MAX_REQUEST_BYTES + 1])).unwrap();
        assert!(client.http(&id, large, Duration::from_secs(5)).await.is_err());
    }

    #[tokio::test]
    async fn input_is_sent_to_its_end() {
        let client = client(&Fate::new()).await;
        let id: InstanceId = "a".parse().unwrap();
        let (mut writer, reader) = tokio::io::duplex(64);
        let sent = tokio::spawn(async move { client.input(&id, reader).await });
        for _ in 0..1000 {
            writer.write_all(&[b'x'; 100]).await.unwrap();
        }
        assert!(!sent.is_finished());
        drop(writer);
        assert_eq!(sent.await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn a_call_without_an_answer_ends_with_the_vm() {
        let fate = Fate::new();
        let client = client(&fate).await;
        let id: InstanceId = "a".parse().unwrap();
        let waiting = tokio::spawn(async move { client.wait(&id).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        fate.seal(VmError::Stopped);
        fate.end();
        assert_eq!(waiting.await.unwrap(), Err(VmError::Stopped));
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_hangs_is_found_by_a_call_without_a_limit_unless_its_vm_is_paused() {
        let (ours, _silent) = UnixStream::pair().unwrap();
        let (paused, timer) = watch::channel(true);
        let fate = Fate::new();
        let limit = Duration::from_secs(10);
        let client =
            AgentClient::connect(ours, fate.clone(), RunningTime(timer), limit).await.unwrap();
        let id: InstanceId = "a".parse().unwrap();
        let mut waiting = pin!(client.wait(&id));
        assert!(timeout(Duration::from_secs(1000), &mut waiting).await.is_err(), "it is paused");
        paused.send_replace(false);
        // As who watches the VM does.
        let ends = async {
            fate.sealed().await;
            fate.end();
        };
        let both = async { tokio::join!(waiting, ends) };
        let (waited, ()) = timeout(Duration::from_secs(30), both).await.expect("nobody finds out");
        assert!(matches!(waited, Err(VmError::AgentLost(_))), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_hangs_is_found_without_a_call_unless_its_vm_is_paused() {
        let (ours, _silent) = UnixStream::pair().unwrap();
        let (paused, timer) = watch::channel(true);
        let fate = Fate::new();
        let limit = Duration::from_secs(10);
        let _client =
            AgentClient::connect(ours, fate.clone(), RunningTime(timer), limit).await.unwrap();
        let sealed = timeout(Duration::from_secs(1000), fate.sealed()).await;
        assert!(sealed.is_err(), "it is paused");
        paused.send_replace(false);
        timeout(Duration::from_secs(30), fate.sealed()).await.expect("nobody finds out");
    }
}
