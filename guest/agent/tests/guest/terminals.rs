//! Instances with a terminal.

use super::*;

fn with_terminal(id: &str, script: &str) -> Value {
    let mut spec = shell(id, script);
    spec["terminal"] = json!({"columns": 80, "rows": 24});
    spec["output"] = "streams".into();
    spec["input"] = true.into();
    spec
}

async fn ended(client: &Client, id: &str) -> InstanceState {
    let ended: Instance = client.get(&format!("/v1/instances/{id}/wait")).await;
    client.delete(id, 0).await;
    ended.state
}

pub(super) async fn a_terminal_is_one_stream_that_can_be_resized(client: &Client) {
    let script = "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo terminal; read line; echo \"got $line\"
        until [ \"$(busybox stty size)\" = '30 100' ]; do sleep 0.1; done; echo resized
        echo own > /dev/tty; echo error >&2; exit 6";
    client.start(with_terminal("terminal", script)).await.unwrap();
    let put = async |path: &str, body: &str| {
        client.call("PUT", &format!("/v1/instances/{path}"), body.to_owned()).await
    };
    assert_eq!(put("terminal/stdin", "hello\n").await.status, StatusCode::NO_CONTENT);
    let size = json!({"columns": 100, "rows": 30}).to_string();
    assert_eq!(put("terminal/terminal", &size).await.status, StatusCode::NO_CONTENT);
    let error = client.call("GET", "/v1/instances/terminal/stderr", "").await;
    assert_eq!(error.error().code, ErrorCode::Invalid);
    let said = client.call("GET", "/v1/instances/terminal/stdout", "").await.body;
    let said = String::from_utf8_lossy(&said);
    for line in ["terminal", "hello", "got hello", "resized", "own", "error"] {
        assert!(said.lines().any(|found| found == line), "no line '{line}' in:\n{said}");
    }
    let state = ended(client, "terminal").await;
    assert_eq!(state, InstanceState::Ended(ExitReason::Exited(6)));

    // It is the one that the first process controls.
    let script = "trap 'exit 7' INT; : > /tmp/trapped; while :; do sleep 0.1; done";
    client.start(with_terminal("interrupted", script)).await.unwrap();
    // The trap is set a moment after the start.
    let looks = "until [ -e /tmp/trapped ]; do sleep 0.1; done";
    run(client, inside("looks", "interrupted", looks)).await;
    put("interrupted/stdin", "\x03").await;
    let state = ended(client, "interrupted").await;
    assert_eq!(state, InstanceState::Ended(ExitReason::Exited(7)));

    client.start(shell("without", "sleep 1000")).await.unwrap();
    assert_eq!(put("without/terminal", &size).await.error().code, ErrorCode::Invalid);
    let mut inside = with_terminal("inside", "busybox stty size; read line && exit 8");
    inside["image"] = Value::Null;
    inside["company"] = json!({"inside": "without"});
    client.start(inside).await.unwrap();
    put("inside/stdin", "\n").await;
    let said = client.call("GET", "/v1/instances/inside/stdout", "").await.body;
    assert!(said.windows(7).any(|part| part == b"24 80\r\n"), "{said:?}");
    let state = ended(client, "inside").await;
    assert_eq!(state, InstanceState::Ended(ExitReason::Exited(8)));
    client.delete("without", 0).await;
}
