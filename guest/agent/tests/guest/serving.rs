//! Calls to an instance, including servers that misbehave.

use super::*;

pub(super) fn server(id: &str) -> Value {
    json!({
        "id": id, "command": ["/bin/httpd", "-f", "-p", "8080", "-h", "/www"], "image": 0,
        "partition": "none", "port": 8080, "memory_limit_bytes": 64 << 20,
        "cpu_limit_millis": 500
    })
}

pub(super) async fn an_instance_serves_requests(client: &Client) {
    let instance = client.start(server("web")).await.unwrap();
    eprintln!("started in {:.1} ms", instance.start_ns as f64 / 1e6);
    let begin = Instant::now();
    let answer = client.call("GET", "/v1/instances/web/http/hello", "").await;
    eprintln!("first answer after {:?}", begin.elapsed());
    assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"hello"[..]));
    assert_eq!(answer.headers[INSTANCE_HEADER], "web");
    let body = "abc".repeat(100_000);
    let answer = client.call("POST", "/v1/instances/web/http/cgi-bin/echo?q=1", body.clone()).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.body, body);
    let answer = client.call("GET", "/v1/instances/web/http/none", "").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(answer.headers[INSTANCE_HEADER], "web");
    // Not the instance's own answer, so without its header.
    let long = vec![b'x'; squeezy_protocol::MAX_REQUEST_BYTES + 1];
    let answer = client.call("POST", "/v1/instances/web/http/cgi-bin/echo", long).await;
    assert_eq!(answer.error().code, ErrorCode::Invalid);
    assert!(!answer.headers.contains_key(INSTANCE_HEADER));
    client.delete("web", 0).await;
}

pub(super) async fn a_call_that_waits_stops_no_other(client: &Client) {
    client.start(shell("sleeper", "sleep 1000")).await.unwrap();
    let mut deaf = shell("deaf", "sleep 1000");
    deaf["port"] = 8080.into();
    client.start(deaf).await.unwrap();
    let waits: Vec<_> = ["sleeper/wait", "deaf/wait", "deaf/http/", "deaf/http/x"]
        .into_iter()
        .map(|path| {
            let client = client.clone();
            tokio::spawn(
                async move { client.call("GET", &format!("/v1/instances/{path}"), "").await },
            )
        })
        .collect();
    for _ in 0..20 {
        let _: Info = client.get("/v1/info").await;
    }
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    client.delete("sleeper", 0).await;
    client.delete("deaf", 0).await;
    for (number, wait) in waits.into_iter().enumerate() {
        let answer = wait.await.unwrap();
        if number < 2 {
            let instance: Instance = answer.json();
            assert_eq!(instance.state, InstanceState::Ended(ExitReason::Stopped));
        } else {
            assert_eq!(answer.error().code, ErrorCode::Unavailable);
        }
    }
}

pub(super) async fn a_frozen_instance_runs_when_a_request_comes(client: &Client) {
    let mut spec = server("cold");
    let script = "(while :; do echo tick; sleep 0.1; done) & exec httpd -f -p 8080 -h /www";
    spec["command"] = json!(["/bin/sh", "-c", script]);
    spec["environment"] = json!({"PATH": "/bin"});
    client.start(spec).await.unwrap();
    let ask = async || {
        let answer = client.call("GET", "/v1/instances/cold/http/hello", "").await;
        assert_eq!(answer.body, "hello", "{answer:?}");
    };
    let freeze = async || client.call("POST", "/v1/instances/cold/freeze", "").await;
    for _ in 0..3 {
        ask().await;
        assert!(freeze().await.json::<Instance>().frozen);
        let log = client.log("cold").await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(client.log("cold").await, log);
    }
    // Freezing is idempotent.
    assert!(freeze().await.json::<Instance>().frozen);
    // A request that comes while it is being frozen is answered.
    for _ in 0..20 {
        tokio::join!(freeze(), ask());
    }
    // An instance with a request under way is not frozen.
    let slow = client.call("GET", "/v1/instances/cold/http/cgi-bin/slow", "");
    let refused = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        freeze().await.error()
    };
    let (answer, error) = tokio::join!(slow, refused);
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(error.code, ErrorCode::Unavailable, "{error:?}");
    // A freeze delays neither SIGTERM nor a kill.
    for grace_ms in [0, 2000] {
        assert!(freeze().await.json::<Instance>().frozen);
        let ended = client.delete("cold", grace_ms).await;
        assert_eq!(ended.state, InstanceState::Ended(ExitReason::Stopped));
        client.start(server("cold")).await.unwrap();
        ask().await;
    }
    client.delete("cold", 0).await;
    assert_eq!(freeze().await.error().code, ErrorCode::NotFound);
}

pub(super) async fn a_log_is_read_on_from_where_it_ended(client: &Client) {
    client.start(shell("speaker", "echo one; read line; echo two; sleep 1000")).await.unwrap();
    let read = async |from: u64| {
        let path = format!("/v1/instances/speaker/log?from={from}");
        let answer = client.call("GET", &path, "").await;
        let end = answer.headers[LOG_END_HEADER].to_str().unwrap().parse::<u64>().unwrap();
        (String::from_utf8(answer.body.to_vec()).unwrap(), end)
    };
    while read(0).await.1 < 8 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(read(0).await, ("one\ntwo\n".to_owned(), 8));
    assert_eq!(read(4).await, ("two\n".to_owned(), 8));
    assert_eq!(read(u64::MAX).await, (String::new(), 8));
    let error = client.call("GET", "/v1/instances/speaker/log?from=x", "").await.error();
    assert_eq!(error.code, ErrorCode::Invalid);
    client.delete("speaker", 0).await;
}

pub(super) async fn what_is_no_http_is_the_instances_fault(client: &Client) {
    // Garbage, a close without an answer, and a close before the request is read, which resets the
    // connection.
    for (id, server) in [
        ("babble", "/bin/sh -c 'read line; echo nonsense; sleep 1'"),
        ("silent", "/bin/sh -c 'busybox timeout 1 cat > /dev/null'"),
        ("rude", "/bin/true"),
    ] {
        let mut spec = shell(id, &format!("exec busybox nc -ll -p 8080 -e {server}"));
        spec["port"] = 8080.into();
        client.start(spec).await.unwrap();
        let answer = client.call("GET", &format!("/v1/instances/{id}/http/"), "").await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{answer:?}");
        let error = answer.error();
        assert_eq!(error.code, ErrorCode::BadAnswer);
        assert!(error.message.contains(&format!("{id} did not answer in HTTP")), "{error:?}");
        client.delete(id, 0).await;
    }
}
