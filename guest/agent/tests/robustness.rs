//! The HTTP layer against misbehaving hosts, over a socket pair.

#[path = "guest/client.rs"]
#[allow(dead_code)]
mod client;

use client::Client;
use proptest::prelude::*;
use squeezy_agent::{instance::Instances, profile::Profiler, server};
use std::{future::Future, rc::Rc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    task::LocalSet,
};

/// Serves one end of a socket pair while `host` uses the other. Everything must end in time.
fn with_server<F: Future<Output = ()>>(host: impl FnOnce(UnixStream) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let all = LocalSet::new();
    all.block_on(&runtime, async {
        let state = Rc::new(server::State {
            instances: Instances::start().unwrap(),
            profiler: Profiler::default(),
            on_shutdown: || panic!("nobody asked for that"),
        });
        let (ours, theirs) = UnixStream::pair().unwrap();
        let served = tokio::task::spawn_local(server::serve(theirs, state));
        tokio::time::timeout(Duration::from_secs(30), async {
            host(ours).await;
            // Whatever the result, serving must end.
            let _ = served.await.unwrap();
        })
        .await
        .expect("the server hangs");
    });
}

/// Makes calls that cannot succeed. Each must get a one-line error, also after the ones before it.
fn refused(calls: Vec<(String, String, Vec<u8>)>) {
    with_server(|stream| async move {
        let client = Client::new(stream).await;
        for (method, path, body) in calls {
            client.call(&method, &path, body).await.error();
        }
    });
}

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        ".{0,20}".prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map(".{0,8}", inner, 0..4)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn garbage_instead_of_http2(bytes in prop::collection::vec(any::<u8>(), 0..600), preface: bool) {
        with_server(|mut stream| async move {
            if preface {
                let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
            }
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
    }

    #[test]
    fn bodies_of_random_bytes(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8)) {
        refused(bodies.into_iter().map(|b| ("POST".into(), "/v1/instances".into(), b)).collect());
    }

    #[test]
    fn bodies_of_random_json(values in prop::collection::vec(json_value(), 1..8)) {
        for (method, path) in [("POST", "/v1/instances"), ("POST", "/v1/volumes/0"), ("PUT", "/v1/volumes/0")] {
            refused(values.iter().map(|v| (method.into(), path.into(), v.to_string().into())).collect());
        }
    }

    /// Replaces one field of a valid specification. If it is still valid, it fails later, because there are
    /// no cgroups for it on the machine that runs this test.
    #[test]
    fn specifications_with_one_field_off(field in 0usize..10, value in json_value()) {
        let mut spec = serde_json::json!({
            "id": "a", "command": ["/bin/true"], "environment": {}, "working_directory": "/",
            "image": null, "partition": "any", "wait_ms": 1, "memory_limit_bytes": 1 << 26,
            "cpu_limit_millis": 250, "port": 8080
        });
        let name = spec.as_object().unwrap().keys().nth(field).unwrap().clone();
        spec[&name] = value;
        refused(vec![("POST".into(), "/v1/instances".into(), spec.to_string().into())]);
    }

    #[test]
    fn random_paths(paths in prop::collection::vec("(/v1)?(/instances)?(/[a-z0-9%._~-]{0,70}){1,4}(\\?[a-z=0-9&]{0,20})?", 1..8)) {
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            refused(
                paths
                    .iter()
                    // These are valid.
                    .filter(|path| !["/v1/info", "/v1/memory", "/v1/instances", "/v1/profile"].contains(&path.as_str()))
                    .map(|path| (method.into(), path.clone(), Vec::new()))
                    .collect(),
            );
        }
    }
}

#[test]
fn oversize_headers_and_bodies() {
    refused(vec![
        ("POST".into(), "/v1/instances".into(), vec![b'['; (1 << 20) + 1]),
        // As deep as it is long: the parser's recursion must be bounded.
        ("POST".into(), "/v1/instances".into(), vec![b'['; 1 << 20]),
        ("GET".into(), format!("/v1/instances/{}", "a".repeat(64)), Vec::new()),
    ]);
    with_server(|stream| async move {
        let client = Client::new(stream).await;
        let path = format!("/v1/instances/a?{}", "x".repeat(60_000));
        // Rejected by HTTP/2 itself, with a status or by ending the stream.
        if let Ok(answer) = client.try_call("GET", &path, "").await {
            assert!(answer.status.as_u16() >= 400);
        }
        client.call("GET", "/v1/nothing", "").await.error();
    });
}

#[test]
fn a_host_that_goes_away_in_the_middle() {
    with_server(|stream| async move {
        let client = Client::new(stream).await;
        let call = tokio::spawn(async move { client.try_call("GET", "/v1/memory", "").await });
        tokio::task::yield_now().await;
        call.abort();
        let _ = call.await;
    });
}

#[test]
fn info_and_lists_answer() {
    with_server(|stream| async move {
        let client = Client::new(stream).await;
        let info: squeezy_protocol::Info = client.get("/v1/info").await;
        assert_eq!(info.agent_version, squeezy_agent::VERSION);
        let list: Vec<squeezy_protocol::Instance> = client.get("/v1/instances").await;
        assert_eq!(list, []);
        let memory: squeezy_protocol::Memory = client.get("/v1/memory").await;
        assert!(memory.meminfo_bytes.contains_key("MemFree"));
    });
}
