//! Web actions, as far as they need no VM: who may call them, and what is sent in any case.

use super::*;

/// The answer to a request without a key: status, head and body.
fn ask(
    daemon: &Daemon,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, String, String) {
    let address = daemon.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let host = if headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
    let length = body.len();
    let head = format!(
        "{method} /api/v1/web/{path} HTTP/1.1\r\n{host}{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    // It may have been refused before all was sent.
    let _ = stream.write_all(body.as_bytes());
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
}

/// Gives `f` these annotations.
fn annotate(daemon: &Daemon, annotations: &Value) {
    let pairs = annotations.as_object().unwrap().iter();
    let pairs: Vec<_> = pairs.map(|(key, value)| json!({ "key": key, "value": value })).collect();
    let parameters = json!([{ "key": "fixed", "value": 1 }]);
    let body = json!({ "annotations": pairs, "parameters": parameters });
    let path = "/namespaces/_/actions/f?overwrite=true";
    let (status, answer) = daemon.ask("PUT", path, Some(body));
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn only_whom_an_action_admits_gets_to_it() {
    let directory = own_empty_build();
    let daemon = daemon(directory.path());
    let status = |method, headers: &str| ask(&daemon, method, "guest/default/f", headers, "").0;
    let key = format!("Authorization: {}\r\n", daemon.authorization);
    let secret = "X-Require-Whisk-Auth: open\r\n";

    assert_eq!(status("GET", &key), 404, "it is not exported");
    annotate(&daemon, &json!({ "web-export": true, "require-whisk-auth": true }));
    // The VM cannot be booted.
    assert_eq!((status("GET", ""), status("GET", secret), status("GET", &key)), (401, 401, 400));
    // No browser is made to ask for the key.
    assert!(!ask(&daemon, "GET", "guest/default/f", "", "").1.contains("www-authenticate"));
    assert_eq!(status("OPTIONS", ""), 200);
    annotate(&daemon, &json!({ "web-export": true, "require-whisk-auth": "open" }));
    assert_eq!((status("GET", ""), status("GET", &key), status("GET", secret)), (401, 401, 400));
    for nobody in [json!(""), json!([])] {
        annotate(
            &daemon,
            &json!({ "web-export": true, "require-whisk-auth": nobody, "web-custom-options": true }),
        );
        for method in ["GET", "OPTIONS"] {
            assert_eq!(status(method, "X-Require-Whisk-Auth: \r\n"), 401, "{method} {nobody}");
        }
    }
    annotate(&daemon, &json!({ "web-export": true }));
    assert_eq!(status("PATCH", "Authorization: Basic eDp5\r\n"), 400);
    assert_eq!(status("HEAD", ""), 400);
    assert_eq!(status("TRACE", ""), 405);
    assert_eq!(status("GET", "Host: evil.example\r\n"), 421);
    for none in ["guest/default/g", "_/default/f", "guest/package/f", "other/default/f.json"] {
        assert_eq!(ask(&daemon, "GET", none, "", "").0, 404, "{none}");
    }
    annotate(&daemon, &json!({ "web-export": false }));
    assert_eq!(status("GET", ""), 404);
}

/// Begins to call a web action with JSON of this length, whose head has been judged: a client is told to go on when its
/// body is about to be read.
fn begin(daemon: &Daemon, name: &str, length: usize) -> TcpStream {
    const GO_ON: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut stream = TcpStream::connect(daemon.url.strip_prefix("http://").unwrap()).unwrap();
    let head = format!(
        "POST /api/v1/web/guest/default/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut told = vec![0; GO_ON.len()];
    stream.read_exact(&mut told).unwrap();
    assert_eq!(told, GO_ON, "{}", String::from_utf8_lossy(&told));
    stream
}

#[test]
fn what_has_changed_while_a_body_came_counts() {
    let directory = own_empty_build();
    let daemon = daemon(directory.path());
    let body = b"{\"mine\": 1}";
    for (annotations, right) in [
        (json!({ "web-export": true, "description": "another version" }), 400),
        (json!({ "web-export": false }), 404),
        (json!({ "web-export": true, "require-whisk-auth": "s" }), 404),
    ] {
        annotate(&daemon, &json!({ "web-export": true }));
        let mut stream = begin(&daemon, "f", body.len());
        stream.write_all(&body[..3]).unwrap();
        annotate(&daemon, &annotations);
        stream.write_all(&body[3..]).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer[9..12].parse(), Ok(right), "{annotations}: {answer}");
    }
}

#[test]
fn a_sequence_that_is_deleted_while_a_body_comes_is_not_run() {
    let directory = own_empty_build();
    let daemon = daemon(directory.path());
    let sequence = json!({
        "exec": { "kind": "sequence", "components": ["/_/f"] },
        "annotations": [{ "key": "web-export", "value": true }],
    });
    let path = "/namespaces/_/actions/s";
    assert_eq!(daemon.ask("PUT", path, Some(sequence)).0, 200);
    let mut stream = begin(&daemon, "s", 2);
    stream.write_all(b"{").unwrap();
    assert_eq!(daemon.ask("DELETE", path, None).0, 200);
    stream.write_all(b"}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}

#[test]
fn strangers_hear_that_something_failed_and_not_why() {
    let directory = own_empty_build();
    let daemon = daemon(directory.path());
    annotate(&daemon, &json!({ "web-export": true }));
    let asked = "Access-Control-Request-Headers: X-Own\r\n";
    let (status, head, _) = ask(&daemon, "OPTIONS", "guest/default/f", asked, "");
    assert_eq!(status, 200);
    assert!(head.contains("\r\naccess-control-allow-headers: x-own"), "{head}");
    assert!(!head.contains("activation-id"), "it was not called: {head}");

    let (status, head, body) = ask(&daemon, "POST", "guest/default/f.json/a", "", "x");
    assert_eq!(status, 400);
    for part in [
        "\r\naccess-control-allow-origin: *",
        "\r\ncontent-security-policy: sandbox ",
        "\r\nx-openwhisk-activation-id: ",
    ] {
        assert!(head.contains(part), "{head}");
    }
    assert!(body.contains("There was an error processing your request."), "{body}");
    let (_, id) = head.split_once("activation-id: ").unwrap();
    let path = format!("/namespaces/_/activations/{}", &id[..32]);
    let (_, activation) = daemon.ask("GET", &path, None);
    let why = activation["response"]["result"]["error"].as_str().unwrap();
    assert!(why.contains("could not be booted"), "{why}");

    // The action answers by itself what other sites may do, also those without what it requires.
    let own = json!({ "web-export": true, "web-custom-options": true, "require-whisk-auth": "s" });
    annotate(&daemon, &own);
    let json = "Content-Type: application/json\r\n";
    // That is all they get to it: what would be refused has been left out.
    let (status, head, _) =
        ask(&daemon, "OPTIONS", "guest/default/f?fixed=2", json, "{\"fixed\": 2}");
    assert!(status == 400 && !head.contains("access-control"), "{head}");
    assert!(head.contains("activation-id"), "{head}");
    let (_, head, _) =
        ask(&daemon, "OPTIONS", "guest/default/f?fixed=2", "X-Require-Whisk-Auth: s\r\n", "");
    assert!(!head.contains("activation-id"), "{head}");
}

#[test]
fn what_an_action_cannot_get_is_refused() {
    let directory = own_empty_build();
    let daemon = daemon(directory.path());
    annotate(&daemon, &json!({ "web-export": true }));
    let long = "x".repeat((1 << 20) + 1);
    let text = "Content-Type: text/plain\r\n";
    // Also where code may be put in the rest of the API.
    for method in ["POST", "PUT"] {
        assert_eq!(ask(&daemon, method, "guest/default/f", text, &long).0, 413, "{method}");
    }
    let json = "Content-Type: application/json\r\n";
    for (query, body) in [("?fixed=2", ""), ("?__ow_user=a", ""), ("", "{"), ("", "{\"fixed\": 2}")]
    {
        let path = format!("guest/default/f{query}");
        let (status, _, said) = ask(&daemon, "POST", &path, json, body);
        assert!(status == 400 && said.contains("\"error\":"), "{query} {body}: {said}");
    }
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let short: String = (0..1001).map(|number| format!("{number:x}&")).collect();
    let (status, _, said) = ask(&daemon, "POST", "guest/default/f", form, &short);
    assert!(status == 400 && said.contains("at most 1000 parameters"), "{said}");
    // Small as text, large as values.
    let (status, _, said) = ask(&daemon, "POST", "guest/default/f", json, &"[[0],".repeat(200_000));
    assert!((status, said.contains("malformed")) == (400, true) || status == 413, "{said}");
    let arrays = format!("[{}0]", "[0],".repeat(200_000));
    let (status, _, said) = ask(&daemon, "POST", "guest/default/f", json, &arrays);
    assert!(status == 413 && said.contains("too much memory"), "{said}");
}

#[test]
fn pages_of_other_sites_cannot_use_the_key_that_a_browser_has() {
    let directory = own_empty_build();
    let daemon = daemon(directory.path());
    let post = |path: &str, headers: &str| {
        let authorization = &daemon.authorization;
        let headers =
            format!("Authorization: {authorization}\r\nContent-Type: text/plain\r\n{headers}");
        let address = daemon.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!(
            "POST /api/v1/{path} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text[9..12].parse::<u16>().unwrap()
    };
    let own = format!("Origin: {}\r\n", daemon.url);
    let call = "namespaces/_/actions/f";
    for path in [call, "reload"] {
        for foreign in
            ["Origin: null\r\n", "Origin: http://localhost:1\r\n", "Sec-Fetch-Site: cross-site\r\n"]
        {
            assert_eq!(post(path, foreign), 403, "{path} {foreign}");
        }
    }
    for own in ["", &own, "Sec-Fetch-Site: same-origin\r\n"] {
        assert_eq!(post(call, own), 202, "{own}");
    }
}
