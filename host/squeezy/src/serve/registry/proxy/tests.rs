use super::*;
use std::{net, time::Instant};
use tokio::net::TcpSocket;

/// An entry of `registries`.
pub fn entry(text: &str) -> RegistryEntry {
    let table: toml::Table = format!("r = {text}").parse().unwrap();
    table["r"].clone().try_into().unwrap()
}

/// A proxy that listens without a sandbox.
struct Running {
    proxy: Proxy,
    address: SocketAddr,
    accepting: JoinSet<()>,
}

impl Running {
    async fn new(text: &str, bounds: Bounds, most_bytes: u64) -> Self {
        Self::with(text, OperatorsProxies::default(), bounds, most_bytes).await
    }

    async fn with(
        text: &str,
        operators: OperatorsProxies,
        bounds: Bounds,
        most_bytes: u64,
    ) -> Self {
        let proxy = Proxy::with(Judge::new(&entry(text)), operators, false, bounds, most_bytes);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut accepting = JoinSet::new();
        accepting.spawn(proxy.0.clone().accept(listener, None));
        Self { proxy, address, accepting }
    }

    /// A client that says this.
    async fn client(&self, said: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.address).await.unwrap();
        // It may be cut off before it has said all.
        let _ = client.write_all(said.as_bytes()).await;
        client
    }

    /// What a client hears that says this, until the end.
    async fn answer(&self, said: &str) -> String {
        heard(&mut self.client(said).await).await
    }

    fn reason(&self) -> &'static str {
        self.proxy.noted().and_then(|noted| noted.reason).unwrap_or_default()
    }
}

/// What is heard until the end, which has to come soon, however that is.
async fn heard(from: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    let _ = timeout(Duration::from_secs(20), from.read_to_end(&mut bytes)).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The port of a server that says back what it hears.
async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut from, mut to) = client.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    port
}

/// Has an address at which nobody listens, for as long as it is there.
fn closed() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

fn connect_to(target: &str) -> String {
    format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
}

#[tokio::test]
async fn a_hostile_client_is_refused_or_cut_off() {
    let running = Running::new("'r.example'", BOUNDS, 1 << 20).await;
    for (said, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("POST http://r.example/ HTTP/1.1\r\n\r\n", "405"),
        ("CONNECT r.example HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT r.example:443\r\n\r\n", "400"),
        ("CONNECT u:p@r.example:443 HTTP/1.1\r\n\r\n", "400"),
        ("\r\n\r\n", "400"),
        ("\x16\x03\x01\0\0\r\n\r\n", "400"),
    ] {
        let answer = running.answer(said).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{said}: {answer}");
    }
    let long = format!("CONNECT r.example:443 HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(1 << 20));
    let answer = running.answer(&long).await;
    // The answer may be lost with what was not read.
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(running.reason(), "");
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_is_not_waited_for() {
    let bounds = Bounds { request: Duration::from_millis(300), ..BOUNDS };
    let running = Running::new("'r.example'", bounds, 1 << 20).await;
    let mut client = running.client("CONNECT r.example:443 HTTP/1.1\r\n").await;
    let (mut from, mut to) = client.split();
    let begun = Instant::now();
    let trickling = async {
        while to.write_all(b"a").await.is_ok() {
            sleep(Duration::from_millis(50)).await;
        }
        pending::<()>().await;
    };
    tokio::select! {
        answer = heard(&mut from) => {
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
        }
        () = trickling => {}
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn what_is_private_is_reached_neither_by_name_nor_by_number() {
    let inside = net::TcpListener::bind("127.0.0.1:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let port = inside.local_addr().unwrap().port();
    for host in [
        "10.0.0.1",
        "169.254.169.254",
        "127.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
    ] {
        let running = Running::new("{ host = 'r.example', plain_http = true }", BOUNDS, 1 << 20);
        let running = running.await;
        let plain = format!("GET http://{host}:{port}/latest HTTP/1.1\r\nHost: r.example\r\n\r\n");
        for said in [connect_to(&format!("{host}:{port}")), plain] {
            let answer = running.answer(&said).await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "{host}: {answer}");
        }
        assert!(running.reason().contains("a private one or the machine's own"), "{host}");
    }
    assert_eq!(inside.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn what_is_listed_is_reached_and_nothing_else_at_its_address() {
    let port = echo().await;
    let running = Running::new(&format!("'127.1:{port}'"), BOUNDS, 1 << 20).await;
    let said = connect_to(&format!("127.1:{port}"));
    let mut client = running.client(&format!("{said}first")).await;
    client.write_all(b" second").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(heard(&mut client).await, "HTTP/1.1 200 OK\r\n\r\nfirst second");
    let other = running.answer(&connect_to(&format!("127.0.0.1:{port}"))).await;
    assert!(other.starts_with("HTTP/1.1 403 "), "{other}");
}

#[tokio::test]
async fn addresses_are_tried_in_their_order_and_none_is_left_out() {
    let closed = [closed(), closed()];
    let [first, second] = closed.each_ref().map(|socket| socket.local_addr().unwrap());
    let listeners = [(); 2].map(|()| net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [one, other] = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
    let reached = async |addresses: &[SocketAddr]| {
        first_of(addresses.to_vec()).await.map(|stream| stream.peer_addr().unwrap())
    };
    assert_eq!(reached(&[first, one, other]).await.unwrap(), one);
    assert_eq!(reached(&[first, second, other, one]).await.unwrap(), other);
    let refused = reached(&[first, second]).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn what_cannot_be_reached_is_told_apart_from_what_may_not_be() {
    let closed = closed();
    let port = closed.local_addr().unwrap().port();
    let running = Running::new(&format!("'127.1:{port}'"), BOUNDS, 1 << 20).await;
    let answer = running.answer(&connect_to(&format!("127.1:{port}"))).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    let noted = running.proxy.noted().unwrap();
    assert!(noted.reason.is_none() && noted.log.contains("refused"), "{noted:?}");
    // What is refused is what counts, and it stays.
    for target in ["10.0.0.1:1".to_owned(), format!("127.1:{port}"), "169.254.169.254:1".into()] {
        running.answer(&connect_to(&target)).await;
    }
    let noted = running.proxy.noted().unwrap();
    assert!(noted.reason.is_some() && noted.log.contains("10.0.0.1:1"), "{noted:?}");
}

#[tokio::test]
async fn a_registry_on_the_loopback_interface_is_behind_a_door_of_its_own() {
    let port = echo().await;
    let mut running = Running::new("'r.example'", BOUNDS, 1 << 20).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let door = listener.local_addr().unwrap();
    let target = Target::parse(&format!("127.0.0.1:{port}"), None).unwrap();
    // Whatever is said there is for nobody else; here the registry's entry does not list it.
    running.accepting.spawn(running.proxy.0.clone().accept(listener, Some(target)));
    let mut client = TcpStream::connect(door).await.unwrap();
    client.write_all(b"CONNECT").await.unwrap();
    assert_eq!(heard(&mut client).await, "");
    assert!(!running.reason().is_empty());

    let running = Running::new(&format!("'127.0.0.1:{port}'"), BOUNDS, 1 << 20).await;
    let shared = running.proxy.0.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let door = listener.local_addr().unwrap();
    let target = shared.judge.on_loopback().next().unwrap().clone();
    tokio::spawn(shared.accept(listener, Some(target)));
    let mut client = TcpStream::connect(door).await.unwrap();
    client.write_all(b"CONNECT").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(heard(&mut client).await, "CONNECT");
}

#[tokio::test]
async fn no_more_is_passed_on_than_the_pull_may_have() {
    let port = echo().await;
    let running = Running::new(&format!("'127.1:{port}'"), BOUNDS, 100_000).await;
    let mut client = running.client(&connect_to(&format!("127.1:{port}"))).await;
    let (mut from, mut to) = client.split();
    let saying = async {
        let _ = to.write_all(&vec![b'a'; 1 << 20]).await;
        pending::<()>().await;
    };
    tokio::select! {
        answer = heard(&mut from) => assert!(answer.len() < 100_000, "{}", answer.len()),
        () = saying => {}
    }
    assert_eq!(running.reason(), TOO_MUCH);
}

#[tokio::test]
async fn a_connection_on_which_nothing_happens_ends() {
    let port = echo().await;
    let bounds = Bounds { pause: Duration::from_secs(2), ..BOUNDS };
    let running = Running::new(&format!("'127.1:{port}'"), bounds, 1 << 20).await;
    let mut client = running.client(&connect_to(&format!("127.1:{port}"))).await;
    // For longer than it would last without.
    for _ in 0..25 {
        client.write_all(b"a").await.unwrap();
        sleep(Duration::from_millis(200)).await;
    }
    let begun = Instant::now();
    assert_eq!(heard(&mut client).await, format!("HTTP/1.1 200 OK\r\n\r\n{}", "a".repeat(25)));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn whoever_holds_all_connections_waits_for_one_of_them() {
    let port = echo().await;
    let bounds = Bounds { connections: 2, connections_in_all: 4, ..BOUNDS };
    let running = Running::new(&format!("'127.1:{port}'"), bounds, 1 << 20).await;
    let said = connect_to(&format!("127.1:{port}"));
    let open = async || {
        let mut client = running.client(&said).await;
        let mut answer = [0; 19];
        timeout(Duration::from_secs(20), client.read_exact(&mut answer)).await.unwrap().unwrap();
        client
    };
    let first = open().await;
    let _second = open().await;
    let mut third = running.client(&said).await;
    let mut answer = [0; 19];
    let waiting = timeout(Duration::from_millis(500), third.read_exact(&mut answer)).await;
    assert!(waiting.is_err());
    drop(first);
    timeout(Duration::from_secs(10), third.read_exact(&mut answer)).await.unwrap().unwrap();
    drop(third);
    drop(open().await);
    // That was the last one.
    assert!(TcpStream::connect(running.address).await.is_err());
}

#[tokio::test]
async fn of_plain_http_one_request_is_passed_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let bounds = Bounds { pause: Duration::from_secs(2), ..BOUNDS };
    let listed = format!("{{ host = '127.1:{port}', plain_http = true }}");
    let running = Running::new(&listed, bounds, 1 << 20).await;
    let serving = async {
        let (mut client, _) = listener.accept().await.unwrap();
        let head = Head::read(&mut client).await.unwrap();
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await.unwrap();
        (head.text, heard(&mut client).await)
    };
    let asking = async {
        let request = format!(
            "GET http://127.1:{port}/a?b HTTP/1.1\r\nHost: x\r\nA: b\r\nProxy-Connection: keep-alive\r\n\r\n"
        );
        let mut client = running.client(&request).await;
        // It is answered, and then the client wants something of somebody else.
        let mut first = [0; 8];
        client.read_exact(&mut first).await.unwrap();
        client.write_all(b"GET http://other.example/ HTTP/1.1\r\n\r\n").await.unwrap();
        heard(&mut client).await
    };
    let ((head, more), answer) = tokio::join!(serving, asking);
    assert_eq!(
        head,
        format!("GET /a?b HTTP/1.1\r\nHost: 127.1:{port}\r\nA: b\r\nConnection: close")
    );
    assert_eq!((&*more, answer.ends_with("\r\n\r\nhi")), ("", true), "{answer}");

    let running = Running::new(&format!("'127.1:{port}'"), BOUNDS, 1 << 20).await;
    let plain = format!("GET http://127.1:{port}/ HTTP/1.1\r\n\r\n");
    let answer = running.answer(&plain).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && running.reason().contains("plain HTTP"));
}

#[tokio::test]
async fn the_operators_proxy_is_asked_for_what_is_not_private() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://u:p@{}", listener.local_addr().unwrap());
    let operators = OperatorsProxies::in_environment(|name| {
        ["HTTPS_PROXY", "HTTP_PROXY"].contains(&name).then(|| url.clone())
    });
    let listed = "{ host = 'r.example', plain_http = true }";
    let running = Running::with(listed, operators.unwrap(), BOUNDS, 1 << 20).await;
    let authorization = "Proxy-Authorization: Basic dTpw";
    for (said, asked, answered, wanted) in [
        (
            connect_to("cdn.example:443"),
            format!("CONNECT cdn.example:443 HTTP/1.1\r\nHost: cdn.example:443\r\n{authorization}"),
            "HTTP/1.1 200 Fine\r\nA: b\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\n\r\nhello",
        ),
        (
            connect_to("cdn.example:443"),
            format!("CONNECT cdn.example:443 HTTP/1.1\r\nHost: cdn.example:443\r\n{authorization}"),
            "HTTP/1.1 407 No\r\n\r\n",
            "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        ),
        (
            "GET http://cdn.example/a HTTP/1.1\r\nHost: cdn.example\r\n\r\n".to_owned(),
            format!(
                "GET http://cdn.example/a HTTP/1.1\r\nHost: cdn.example\r\n{authorization}\r\nConnection: close"
            ),
            "HTTP/1.1 200 OK\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\n\r\nhello",
        ),
    ] {
        let serving = async {
            let (mut client, _) = listener.accept().await.unwrap();
            let head = Head::read(&mut client).await.unwrap();
            client.write_all(answered.as_bytes()).await.unwrap();
            head.text
        };
        let asking = async {
            let mut client = running.client(&said).await;
            let _ = client.shutdown().await;
            heard(&mut client).await
        };
        let (head, answer) = tokio::join!(serving, asking);
        assert_eq!((head, &*answer), (asked, wanted));
    }
    let noted = running.proxy.noted().unwrap();
    assert!(noted.log.contains("it answers 407") && !noted.log.contains("dTpw"), "{noted:?}");
    // It is not asked for these.
    for host in
        ["169.254.169.254:80", "127.0.0.1:80", "[::1]:80", "2130706433:80", "x.localhost:80"]
    {
        let answer = running.answer(&connect_to(host)).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{host}: {answer}");
    }
    let asked = timeout(Duration::from_millis(200), listener.accept()).await;
    assert!(asked.is_err());
}
