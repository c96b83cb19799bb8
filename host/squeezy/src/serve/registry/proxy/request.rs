//! What the proxy is asked.

use super::{operator::Upstream, target::Target};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest head of a request or an answer, in bytes. Tokens for a registry may have some thousand.
const MOST_BYTES: usize = 32 << 10;

/// Headers that are for the proxy alone, or about a body, which no request has here. `Host` is made anew.
const NOT_PASSED_ON: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// The lines before a body.
#[derive(Debug)]
pub struct Head {
    /// These lines, without what ends the last one.
    pub text: String,
    /// What has arrived behind them.
    pub rest: Vec<u8>,
}

impl Head {
    /// Reads it; fails with a status if it is too long or no text.
    pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> Result<Self, &'static str> {
        let (mut bytes, mut part) = (Vec::new(), [0; 1024]);
        loop {
            let before = bytes.len();
            match from.read(&mut part).await {
                Ok(length @ 1..) => bytes.extend_from_slice(&part[..length]),
                _ => return Err("400 Bad Request"),
            }
            let looked_at = before.saturating_sub(3);
            let end = bytes[looked_at..].windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end.map(|end| looked_at + end) {
                let rest = bytes.split_off(end + 4);
                bytes.truncate(end);
                let text = String::from_utf8(bytes).ok().filter(|text| is_head(text));
                return text.map(|text| Self { text, rest }).ok_or("400 Bad Request");
            }
            if bytes.len() > MOST_BYTES {
                return Err("431 Request Header Fields Too Large");
            }
        }
    }
}

/// Whether all its lines are of characters that can be seen.
fn is_head(text: &str) -> bool {
    let is_right = |b: u8| b == b' ' || b == b'\t' || b.is_ascii_graphic();
    text.split("\r\n").all(|line| line.bytes().all(is_right))
}

/// A request to the proxy.
#[derive(Debug)]
pub enum Request {
    /// A connection for whatever is in it.
    Connect(Target),
    /// One request by plain HTTP.
    Plain(Plain),
}

/// A request by plain HTTP, without a body.
#[derive(Debug)]
pub struct Plain {
    /// To whom it is.
    pub target: Target,
    /// That as the client has written it, which may be part of what it has signed.
    authority: String,
    method: String,
    path: String,
    /// Those that are passed on, each with the end of its line.
    headers: String,
}

impl Request {
    /// Reads the head of a request; fails with a status.
    pub fn parse(head: &str) -> Result<Self, &'static str> {
        const MALFORMED: &str = "400 Bad Request";
        let (first, headers) = head.split_once("\r\n").unwrap_or((head, ""));
        let words: Vec<_> = first.split(' ').collect();
        let [method, target, "HTTP/1.1"] = words[..] else { return Err(MALFORMED) };
        match method {
            "CONNECT" => Target::parse(target, None).map(Self::Connect).ok_or(MALFORMED),
            "GET" | "HEAD" => {
                let url = target.strip_prefix("http://").ok_or(MALFORMED)?;
                let (authority, path) = url.split_at(url.find(['/', '?']).unwrap_or(url.len()));
                let path = match path.starts_with('/') {
                    true => path.to_owned(),
                    false => format!("/{path}"),
                };
                Ok(Self::Plain(Plain {
                    target: Target::parse(authority, Some(80)).ok_or(MALFORMED)?,
                    authority: authority.to_owned(),
                    method: method.to_owned(),
                    path,
                    headers: passed_on(headers).ok_or(MALFORMED)?,
                }))
            }
            _ => Err("405 Method Not Allowed"),
        }
    }
}

/// Those of these headers that are passed on; `None` if a line is not one.
fn passed_on(headers: &str) -> Option<String> {
    let mut kept = String::new();
    for line in headers.split("\r\n").filter(|line| !line.is_empty()) {
        let (name, _) = line.split_once(':')?;
        if name.is_empty() || name.contains([' ', '\t']) {
            return None;
        }
        if !NOT_PASSED_ON.iter().any(|other| name.eq_ignore_ascii_case(other)) {
            kept.push_str(line);
            kept.push_str("\r\n");
        }
    }
    Some(kept)
}

impl Plain {
    /// It as it is sent on, to the target itself or to another proxy. It asks for the connection to be closed after the
    /// answer, because nothing else of the client goes there.
    pub fn head(&self, to: Option<&Upstream>) -> String {
        let Self { authority, method, path, headers, .. } = self;
        let (origin, credentials) = match to {
            Some(upstream) => (format!("http://{authority}"), upstream.header()),
            None => (String::new(), ""),
        };
        format!(
            "{method} {origin}{path} HTTP/1.1\r\nHost: {authority}\r\n{headers}{credentials}Connection: close\r\n\r\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_the_proxy_and_of_a_body_is_not_passed_on() {
        let head = "GET http://R.example/v2/?n=1 HTTP/1.1\r\nHost: other.example\r\nAuthorization: Basic YTpi\r\n\
                    Proxy-Authorization: Basic c2VjcmV0\r\nContent-Length: 3\r\ntransfer-encoding: chunked\r\n\
                    Connection: keep-alive";
        let Ok(Request::Plain(plain)) = Request::parse(head) else { panic!() };
        assert_eq!(plain.target.to_string(), "r.example:80");
        assert_eq!(
            plain.head(None),
            "GET /v2/?n=1 HTTP/1.1\r\nHost: R.example\r\nAuthorization: Basic YTpi\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn what_is_no_request_to_a_proxy_is_refused() {
        for (head, status) in [
            ("", "400"),
            ("GET / HTTP/1.1", "400"),
            ("GET http://a/ HTTP/1.0", "400"),
            ("GET http://a/ b HTTP/1.1", "400"),
            ("GET http://u:p@a/ HTTP/1.1", "400"),
            ("GET https://a/ HTTP/1.1", "400"),
            ("GET http:/// HTTP/1.1", "400"),
            ("GET http://a/ HTTP/1.1\r\nno header", "400"),
            ("GET http://a/ HTTP/1.1\r\nA: b\r\n folded: c", "400"),
            ("POST http://a/ HTTP/1.1", "405"),
            ("PUT http://a/ HTTP/1.1", "405"),
            ("connect a:1 HTTP/1.1", "405"),
            ("CONNECT a HTTP/1.1", "400"),
            ("CONNECT http://a:1 HTTP/1.1", "400"),
            ("CONNECT u@a:1 HTTP/1.1", "400"),
            ("CONNECT a:1,b:1 HTTP/1.1", "400"),
        ] {
            let refused = Request::parse(head).unwrap_err();
            assert!(refused.starts_with(status), "{head}: {refused}");
        }
    }

    #[tokio::test]
    async fn a_head_is_bounded_and_of_text() {
        let read = async |bytes: &[u8]| Head::read(&mut &*bytes).await;
        let head = read(b"CONNECT a:1 HTTP/1.1\r\nA: b\r\n\r\nmore").await.unwrap();
        assert_eq!((&*head.text, &*head.rest), ("CONNECT a:1 HTTP/1.1\r\nA: b", &b"more"[..]));
        for (bytes, status) in [
            (b"CONNECT a:1 HTTP/1.1\r\n".to_vec(), "400"),
            (b"GET http://a/ HTTP/1.1\r\nA: b\nC: d\r\n\r\n".to_vec(), "400"),
            (b"GET http://a/ HTTP/1.1\r\nA: b\rC: d\r\n\r\n".to_vec(), "400"),
            (b"GET http://a/\xff HTTP/1.1\r\n\r\n".to_vec(), "400"),
            (b"GET http://a/\0 HTTP/1.1\r\n\r\n".to_vec(), "400"),
            (vec![b'a'; 1 << 20], "431"),
        ] {
            let refused = read(&bytes).await.unwrap_err();
            assert!(refused.starts_with(status), "{refused}");
        }
    }
}
