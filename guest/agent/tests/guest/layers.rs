//! Roots made of layers, streams of output, and signals: what containers need.

use super::*;
use crate::vm::{BASE_LAYER, LAYER_BYTES, NO_LAYER, POOL_BYTES, UPPER_LAYER};

async fn add(client: &Client, offset_bytes: u64, length_bytes: u64) -> Result<(), ErrorCode> {
    let layer = json!({"offset_bytes": offset_bytes, "length_bytes": length_bytes});
    let answer = client.call("POST", "/v1/layers", layer.to_string()).await;
    if answer.status == StatusCode::CREATED { Ok(()) } else { Err(answer.error().code) }
}

async fn remove(client: &Client, offset_bytes: u64) -> Result<(), ErrorCode> {
    let answer = client.call("DELETE", &format!("/v1/layers/{offset_bytes}"), "").await;
    if answer.status == StatusCode::NO_CONTENT { Ok(()) } else { Err(answer.error().code) }
}

fn layered(id: &str, script: &str, layers: &[u64]) -> Value {
    let mut spec = shell(id, script);
    spec["image"] = Value::Null;
    spec["layers"] = json!(layers);
    spec["command"][0] = "sh".into();
    spec
}

pub(super) async fn a_root_is_a_stack_of_layers(client: &Client) {
    let both = &[UPPER_LAYER, BASE_LAYER];
    let error = client.start(layered("early", "true", both)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound, "{error:?}");
    for offset in both {
        add(client, *offset, LAYER_BYTES).await.unwrap();
    }
    let script = "cat /www/hello /www/new; ls /bin/rm; echo own > /www/hello; cat /www/hello; ls -ln /www/new \
        | busybox awk '{ print $3, $4 }'";
    for id in ["first", "second"] {
        let (reason, log) = run(client, layered(id, script, both)).await;
        let expected = "hello from abovenewls: /bin/rm: No such file or directory\nown\n0 0\n";
        assert_eq!((reason, log.as_str()), (ExitReason::Exited(0), expected));
    }
    let (_, log) = run(client, layered("below", "cat /www/hello; ls /bin/rm", &[BASE_LAYER])).await;
    assert_eq!(log, "hello/bin/rm\n");
}

pub(super) async fn code_is_over_its_image_for_each_instance(client: &Client) {
    let script = "cat /www/hello /www/new; echo own > /www/hello; cat /www/hello";
    let with_code = |id: &str, code: u8| {
        let mut spec = shell(id, script);
        spec["code"] = code.into();
        spec
    };
    // What the first one writes is nobody else's.
    for id in ["first", "second"] {
        let (reason, log) = run(client, with_code(id, 1)).await;
        let expected = "hello from abovenewown\n";
        assert_eq!((reason, log.as_str()), (ExitReason::Exited(0), expected));
    }
    let (_, log) = run(client, shell("without", "cat /www/hello")).await;
    assert_eq!(log, "hello");
    let error = client.start(with_code("missing", 2)).await.unwrap_err();
    assert!(error.message.contains("image 2: "), "{error:?}");
}

pub(super) async fn a_layer_is_removed_when_nobody_has_it(client: &Client) {
    client.start(layered("user", "sleep 1000", &[UPPER_LAYER, BASE_LAYER])).await.unwrap();
    assert_eq!(remove(client, BASE_LAYER).await, Err(ErrorCode::Unavailable));
    // It is still there.
    let (reason, _) = run(client, layered("other", "true", &[BASE_LAYER])).await;
    assert_eq!(reason, ExitReason::Exited(0));
    client.delete("user", 0).await;
    for offset in [BASE_LAYER, UPPER_LAYER] {
        assert_eq!(remove(client, offset).await, Ok(()));
        assert_eq!(remove(client, offset).await, Err(ErrorCode::NotFound));
    }
    add(client, BASE_LAYER, LAYER_BYTES).await.unwrap();
    assert_eq!(remove(client, BASE_LAYER).await, Ok(()));
}

pub(super) async fn what_is_no_layer_is_refused_and_leaves_nothing(client: &Client) {
    add(client, BASE_LAYER, LAYER_BYTES).await.unwrap();
    for (offset, length, code) in [
        (BASE_LAYER, LAYER_BYTES, ErrorCode::Exists),
        (BASE_LAYER + 4096, 4096, ErrorCode::Invalid),
        (UPPER_LAYER, POOL_BYTES, ErrorCode::Invalid),
        (UPPER_LAYER + 512, 4096, ErrorCode::Invalid),
        (UPPER_LAYER, 0, ErrorCode::Invalid),
        // Nothing is there.
        (NO_LAYER, LAYER_BYTES, ErrorCode::Invalid),
        (NO_LAYER, LAYER_BYTES, ErrorCode::Invalid),
    ] {
        assert_eq!(add(client, offset, length).await, Err(code), "{offset} {length}");
    }
    add(client, UPPER_LAYER, LAYER_BYTES).await.unwrap();
    for offset in [BASE_LAYER, UPPER_LAYER] {
        assert_eq!(remove(client, offset).await, Ok(()));
    }
    for path in ["/v1/layers/x", "/v1/layers/-1", "/v1/layers/1/2"] {
        assert_eq!(client.call("DELETE", path, "").await.error().code, ErrorCode::NotFound);
    }
    let mut both = layered("both", "true", &[BASE_LAYER]);
    both["image"] = 0.into();
    assert_eq!(client.start(both).await.unwrap_err().code, ErrorCode::Invalid);
}

/// More than the agent and the channel hold together, so that the writer has to wait.
pub(super) async fn streams_lose_nothing(client: &Client) {
    const BYTES: usize = 4 << 20;
    let script = format!("busybox yes abcdefg | busybox head -c {BYTES}; echo error >&2; exit 5");
    let mut spec = shell("streams", &script);
    spec["output"] = "streams".into();
    client.start(spec).await.unwrap();
    let begin = Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let instance: Instance = client.get("/v1/instances/streams").await;
    assert_eq!(instance.state, InstanceState::Running);
    let output = client.call("GET", "/v1/instances/streams/stdout", "").await.body;
    eprintln!("{BYTES} bytes after {:?}", begin.elapsed());
    assert_eq!(output.len(), BYTES);
    assert!(output.chunks(8).all(|line| line == b"abcdefg\n"));
    let instance: Instance = client.get("/v1/instances/streams/wait").await;
    assert_eq!(instance.state, InstanceState::Ended(ExitReason::Exited(5)));
    // What was written is there after the end, too.
    assert_eq!(client.call("GET", "/v1/instances/streams/stderr", "").await.body, "error\n");
    let again = client.call("GET", "/v1/instances/streams/stderr", "").await;
    assert_eq!(again.error().code, ErrorCode::Unavailable);
    assert_eq!(client.log("streams").await, "");
    client.delete("streams", 0).await;
}

pub(super) async fn an_instance_is_whoever_it_is_told_to_be(client: &Client) {
    let script = "id=\"$(busybox id -u) $(busybox id -g) $(busybox id -G)\"; echo $id; echo said > /dev/stdout
        grep -E 'Cap(Prm|Eff|Bnd|Amb)' /proc/self/status | busybox awk '{ print $2 }' | busybox sort -u
        echo x > /own || echo closed; echo x > /tmp/own && ls -ln /tmp/own | busybox awk '{ print $3, $4 }'
        busybox chown 0 /tmp/own || echo no";
    let mut spec = shell("somebody", script);
    spec["user"] = json!({"user": 1000, "group": 50, "other_groups": [7, 65535]});
    let (reason, log) = run(client, spec).await;
    assert_eq!(reason, ExitReason::Exited(0), "{log}");
    for line in ["1000 50 50 7 65535", "said", "0000000000000000", "closed", "1000 50", "no"] {
        assert!(log.lines().any(|found| found == line), "no line '{line}' in:\n{log}");
    }
    let script = "echo x > /own || echo closed; rm /www/hello || echo kept; echo x > /tmp/own && cat /tmp/own; \
        busybox mount -o remount,rw / 2>/dev/null || echo stays";
    let mut spec = shell("reader", script);
    spec["read_only_root"] = true.into();
    let (reason, log) = run(client, spec).await;
    assert_eq!(reason, ExitReason::Exited(0), "{log}");
    for line in ["closed", "kept", "x", "stays"] {
        assert!(log.lines().any(|found| found == line), "no line '{line}' in:\n{log}");
    }
}

pub(super) async fn signals_are_sent_as_told(client: &Client) {
    let signal = async |id: &str, body: Value| {
        client.call("POST", &format!("/v1/instances/{id}/signal"), body.to_string()).await
    };
    let script = "trap 'echo one' USR1; trap 'echo bye; exit 4' TERM; echo ready; while :; do sleep 0.1; done";
    client.start(shell("told", script)).await.unwrap();
    let said = async |words: &str| {
        while !client.log("told").await.ends_with(words) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    said("ready\n").await;
    for bad in [0, 65] {
        let answer = signal("told", json!({"signal": bad, "all": false})).await;
        assert_eq!(answer.error().code, ErrorCode::Invalid);
    }
    let answer = signal("told", json!({"signal": 10, "all": false})).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{answer:?}");
    said("one\n").await;
    let usage: Usage = client.get("/v1/instances/told/usage").await;
    assert!(usage.memory_bytes > 0 && usage.cpu_us > 0 && usage.processes >= 2, "{usage:?}");
    signal("told", json!({"signal": 15, "all": true})).await;
    let ended: Instance = client.get("/v1/instances/told/wait").await;
    assert_eq!(ended.state, InstanceState::Ended(ExitReason::Exited(4)));
    let answer = signal("told", json!({"signal": 15, "all": true})).await;
    assert_eq!(answer.error().code, ErrorCode::Unavailable);
    client.delete("told", 0).await;
    client.start(shell("killed", "sleep 1000 & sleep 1000")).await.unwrap();
    signal("killed", json!({"signal": 9, "all": true})).await;
    let ended: Instance = client.get("/v1/instances/killed/wait").await;
    assert_eq!(ended.state, InstanceState::Ended(ExitReason::Killed(9)));
    client.delete("killed", 0).await;
}
