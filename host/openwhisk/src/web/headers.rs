//! Headers of web actions: what of a request is passed on, and what of an answer is sent.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::{Map, Value};

/// The maximum number of an answer's headers, and their maximum size in bytes.
const MOST_HEADERS: usize = 100;
const MOST_BYTES: usize = 16 << 10;

/// Headers about one connection, not about the message (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers that speak for the whole host, which an action shares with others and with the daemon.
const OF_THE_HOST: [&str; 8] = [
    "alt-svc",
    "clear-site-data",
    "nel",
    "report-to",
    "reporting-endpoints",
    "service-worker-allowed",
    "strict-transport-security",
    // A browser sends what it has prompted for to the daemon too.
    "www-authenticate",
];

fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(&name.as_str())
}

/// The headers of a request, as an action receives them. Values of one name are joined.
pub fn received(headers: &HeaderMap) -> Value {
    let mut received = Map::new();
    for name in headers.keys().filter(|name| !is_hop_by_hop(name)) {
        let separator = if name == header::COOKIE { "; " } else { ", " };
        let values = headers.get_all(name).iter();
        let values: Vec<_> =
            values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        received.insert(name.as_str().to_owned(), values.join(separator).into());
    }
    received.into()
}

/// The headers of an answer, which an action gives. What it may not say is left out; `None` if there is
/// something that is no header, or too much.
pub fn sent(given: &Map<String, Value>) -> Option<HeaderMap> {
    let (mut sent, mut bytes) = (HeaderMap::new(), 0);
    let mut add = |name: &HeaderName, value: &Value| {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            _ => return None,
        };
        bytes += name.as_str().len() + text.len();
        let is_left_out = is_hop_by_hop(name)
            || OF_THE_HOST.contains(&name.as_str())
            // The server counts by itself.
            || name == header::CONTENT_LENGTH;
        // It refuses what would end the header.
        let value = HeaderValue::try_from(text).ok()?;
        if !is_left_out {
            sent.append(name, value);
        }
        (bytes <= MOST_BYTES && sent.len() <= MOST_HEADERS).then_some(())
    };
    for (name, value) in given {
        let name = HeaderName::try_from(name.as_str()).ok()?;
        match value {
            Value::Array(values) => values.iter().try_for_each(|value| add(&name, value))?,
            value => add(&name, value)?,
        }
    }
    Some(sent)
}

/// Makes cookies be for this path of the host only, whatever they say.
pub fn confine_cookies(headers: &mut HeaderMap, path: &str) {
    let header::Entry::Occupied(cookies) = headers.entry(header::SET_COOKIE) else { return };
    let (_, cookies) = cookies.remove_entry_mult();
    let confined: Vec<_> = cookies.filter_map(|cookie| confined(&cookie, path)).collect();
    for cookie in confined {
        headers.append(header::SET_COOKIE, cookie);
    }
}

fn confined(cookie: &HeaderValue, path: &str) -> Option<HeaderValue> {
    if path.contains(';') {
        return None;
    }
    let says_where = |attribute: &&[u8]| {
        let name = attribute.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
        name.eq_ignore_ascii_case(b"path") || name.eq_ignore_ascii_case(b"domain")
    };
    let mut parts = cookie.as_bytes().split(|byte| *byte == b';');
    let mut confined = parts.next()?.to_vec();
    for attribute in parts.filter(|attribute| !says_where(attribute)) {
        confined.push(b';');
        confined.extend_from_slice(attribute);
    }
    confined.extend_from_slice(format!("; Path={path}").as_bytes());
    HeaderValue::from_bytes(&confined).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sent(given: Value) -> Option<HeaderMap> {
        super::sent(given.as_object().unwrap())
    }

    #[test]
    fn an_action_gets_what_is_about_the_request() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "localhost:3233"),
            ("accept", "a"),
            ("accept", "b"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
            ("content-length", "3"),
            ("connection", "close"),
            ("keep-alive", "3"),
            ("transfer-encoding", "chunked"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers.append("x-latin", HeaderValue::from_bytes(b"\xe9").unwrap());
        let right = json!({
            "host": "localhost:3233", "accept": "a, b", "cookie": "a=1; b=2",
            "content-length": "3", "x-latin": "\u{fffd}",
        });
        assert_eq!(received(&headers), right);
    }

    #[test]
    fn headers_are_sent_as_they_were_given() {
        let given = json!({ "Set-Cookie": ["a=1", "b=2"], "x-n": 1, "x-b": true, "X-U": "ü" });
        let headers = sent(given).unwrap();
        assert_eq!(headers.get_all("set-cookie").iter().count(), 2);
        assert_eq!([&headers["x-n"], &headers["x-b"]], ["1", "true"]);
        assert_eq!(headers["x-u"].as_bytes(), "ü".as_bytes());
    }

    #[test]
    fn what_is_not_the_action_s_to_say_is_left_out() {
        let given = json!({
            "Connection": "close", "Transfer-Encoding": "chunked", "Content-Length": 7,
            "Keep-Alive": 1, "Upgrade": "h2c", "Clear-Site-Data": "*", "x": 1,
            "WWW-Authenticate": "Basic realm=\"squeezy\"",
        });
        let headers = sent(given).unwrap();
        assert_eq!(headers.keys().collect::<Vec<_>>(), ["x"]);
    }

    #[test]
    fn cookies_are_for_the_action_alone() {
        let mut headers = sent(json!({
            "x": 1,
            "set-cookie": ["a=1", "b=2; pAtH = /; Secure", "c=path=/;domain=localhost;Path", "d;;"],
        }))
        .unwrap();
        confine_cookies(&mut headers, "/web/f");
        let cookies: Vec<_> = headers.get_all("set-cookie").iter().collect();
        let right = [
            "a=1; Path=/web/f",
            "b=2; Secure; Path=/web/f",
            "c=path=/; Path=/web/f",
            "d;;; Path=/web/f",
        ];
        assert_eq!(cookies, right);
        assert_eq!(headers.len(), 5);
        confine_cookies(&mut headers, "/a; Path=/");
        assert_eq!(headers.keys().collect::<Vec<_>>(), ["x"]);
    }

    #[test]
    fn what_is_no_header_is_refused() {
        for wrong in [
            json!({ "a": "b\r\nSet-Cookie: c" }),
            json!({ "a": "b\nc" }),
            json!({ "a": "\u{0}" }),
            json!({ "a\r\nb": "c" }),
            json!({ "a b": "c" }),
            json!({ "": "c" }),
            json!({ "a": null }),
            json!({ "a": [["b"]] }),
            json!({ "a": { "b": 1 } }),
            json!({ "a": "x".repeat(MOST_BYTES) }),
            json!({ "a": vec!["b"; MOST_HEADERS + 1] }),
        ] {
            assert_eq!(sent(wrong.clone()), None, "{wrong}");
        }
    }
}
