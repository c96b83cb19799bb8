//! Registries that lead to private addresses, and those that have one themselves.

use super::{PROGRAM, Place, Registry, pull, refused};
use crate::common::until;
use serde_json::json;
use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
};

/// The host of a registry by plain HTTP with the images `a0`, `a1` and so on, which says that their layers are there.
fn leading_to(locations: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            answer(client.unwrap(), &locations);
        }
    });
    host
}

/// Answers one request.
fn answer(mut client: TcpStream, locations: &[String]) {
    let Some(request) = request(&mut client) else { return };
    let path = request.split(' ').nth(1).unwrap_or_default();
    let image =
        path.strip_prefix("/v2/a").and_then(|path| path.split('/').next()?.parse::<usize>().ok());
    let part = |kind: &str, digit: &str| {
        let digest = format!("sha256:{}", digit.repeat(64));
        json!({ "mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest, "size": 2 })
    };
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": part("config.v1+json", "1"),
        "layers": [part("layer.v1.tar+gzip", "2")],
    });
    let (head, body) = match image {
        Some(image) if path.contains("/blobs/") => {
            (format!("307 there\r\nLocation: {}", locations[image]), String::new())
        }
        Some(_) => {
            let kind = "application/vnd.oci.image.manifest.v1+json";
            (format!("200 here\r\nContent-Type: {kind}"), manifest.to_string())
        }
        None => ("200 registry".to_owned(), String::new()),
    };
    let length = body.len();
    let _ = write!(
        client,
        "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
}

/// The head of a request; `None` if it is not one, as when skopeo tries TLS.
fn request(client: &mut TcpStream) -> Option<String> {
    let (mut request, mut part) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = client.read(&mut part).ok().filter(|length| *length > 0)?;
        request.extend_from_slice(&part[..length]);
        request[0].is_ascii_uppercase().then_some(())?;
    }
    String::from_utf8(request).ok()
}

#[test]
fn a_registry_that_leads_to_a_private_address_is_not_followed() {
    const JUDGED: &str = "leads to an address to which the daemon does not connect for an image";
    let inside = TcpListener::bind("127.0.0.1:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let port = inside.local_addr().unwrap().port();
    let cases = [
        ("http://10.255.255.1/secret".to_owned(), JUDGED),
        ("https://169.254.169.254/secret".to_owned(), JUDGED),
        (format!("http://127.1:{port}/secret"), JUDGED),
        (format!("https://2130706433:{port}/secret"), JUDGED),
        // In skopeo's own network nobody is there.
        (format!("http://127.0.0.1:{port}/secret"), "cannot be reached, or does not give it"),
    ];
    let host = leading_to(cases.iter().map(|(location, _)| location.clone()).collect());
    let place = Place::new();
    let daemon =
        place.daemon(&format!("registries = [{{ host = {host:?}, plain_http = true }}]\n"));
    for (number, (location, reason)) in cases.iter().enumerate() {
        let answer = pull(&daemon, &format!("{host}/a{number}:1"));
        let shown = answer.1.to_string();
        assert!(
            !["secret", "10.255", "169.254"].iter().any(|part| shown.contains(part)),
            "{shown}"
        );
        refused(answer, 502, reason);
        if *reason == JUDGED {
            let said = daemon.says("`private_hosts = [");
            let led = location.split('/').nth(2).unwrap();
            assert!(said.contains(&format!("it leads to {led}")), "{location}: {said}");
        }
        place.has(0);
    }
    assert_eq!(inside.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_registry_is_followed_to_where_the_operator_allows_it() {
    let inside = TcpListener::bind("127.0.0.1:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let port = inside.local_addr().unwrap().port();
    let host = leading_to(vec![format!("http://127.1:{port}/layer")]);
    let place = Place::new();
    let daemon = place.daemon(&format!(
        "registries = [{{ host = {host:?}, plain_http = true, private_hosts = [\"127.1:{port}\"] }}]\n"
    ));
    let (answer, asked) = std::thread::scope(|scope| {
        let pulling = scope.spawn(|| pull(&daemon, &format!("{host}/a0:1")));
        let (mut client, _) = until("somebody to ask", || inside.accept().ok());
        client.set_nonblocking(false).unwrap();
        let asked = request(&mut client).unwrap();
        client.write_all(b"HTTP/1.1 404 gone\r\nContent-Length: 0\r\n\r\n").unwrap();
        drop(client);
        // Others that are waiting are refused from now on.
        drop(inside);
        (pulling.join().unwrap(), asked)
    });
    refused(answer, 502, "does not give it");
    assert!(asked.starts_with("GET /layer HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains(&format!("\r\nHost: 127.1:{port}\r\n")), "{asked}");
}

#[test]
fn a_registry_at_a_private_address_is_reached_if_it_is_listed() {
    let (registry, place) = (Registry::start(), Place::new());
    registry.push("thing:1", &format!("[layer({PROGRAM})]"), "Cmd=['serve']");
    // A name, to skopeo, so that it asks the proxy.
    let host = registry.host.replace("127.0.0.1", "127.1");
    let auth = fs::read_to_string(&registry.auth_file).unwrap().replace(&registry.host, &host);
    let auth_file = place.path("auth.json");
    fs::write(&auth_file, auth).unwrap();
    fs::set_permissions(&auth_file, fs::Permissions::from_mode(0o600)).unwrap();
    let daemon = place.daemon(&format!(
        "registry_auth = {auth_file:?}\nregistries = [{{ host = {host:?}, plain_http = true }}]\n"
    ));
    let (status, pulled) = pull(&daemon, &format!("{host}/thing:1"));
    assert_eq!(status, 200, "{pulled}");
    place.has(1);
}
