//! A single request and response, on a connection of its own.

use serde_json::Value;
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// How long a response may take. Nothing takes that long, so a slower one counts as lost.
const LIMIT: Duration = Duration::from_secs(180);

/// The daemon's address and key.
#[derive(Clone, Debug, Default)]
pub struct Endpoint {
    pub address: String,
    pub authorization: String,
}

/// Why there is no response.
#[derive(Debug)]
pub enum Failure {
    /// The connection was refused.
    Refused(String),
    /// The connection was closed before the response was complete.
    Broken(String),
    /// What was received is not a single response.
    Wrong(String),
}

impl Endpoint {
    pub fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(stream)
    }

    /// A request as it is sent.
    pub fn request(&self, method: &str, path: &str, body: Option<&Value>) -> String {
        let body = body.map_or(String::new(), Value::to_string);
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            self.authorization,
            body.len()
        )
    }

    /// Sends a request; returns the response's status and body.
    pub fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), Failure> {
        let mut stream = self.connect().map_err(|error| Failure::Refused(error.to_string()))?;
        let mut answer = Vec::new();
        let sent = stream.write_all(self.request(method, path, body).as_bytes());
        match sent.and_then(|()| stream.read_to_end(&mut answer)) {
            Ok(_) => parse(&answer),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(Failure::Wrong(format!("no answer within {} s", LIMIT.as_secs())))
            }
            Err(error) => Err(Failure::Broken(error.to_string())),
        }
    }
}

/// Parses what was received, which has to be a single response.
fn parse(answer: &[u8]) -> Result<(u16, Value), Failure> {
    let broken = || Failure::Broken(format!("it was cut off after {} bytes", answer.len()));
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or_else(broken)?;
    let wrong = |what: &str| {
        let head = String::from_utf8_lossy(&answer[..end]);
        Failure::Wrong(format!("{what}: {head:?}"))
    };
    let head = str::from_utf8(&answer[..end]).map_err(|_| wrong("no HTTP"))?;
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3));
    let status = status.and_then(|status| status.parse().ok()).ok_or_else(|| wrong("no HTTP"))?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let length: usize = length.ok_or_else(|| wrong("no length"))?;
    let body = &answer[end + 4..];
    if body.len() < length {
        return Err(broken());
    }
    if body.len() > length {
        return Err(wrong("more than one answer"));
    }
    let text = || Value::String(String::from_utf8_lossy(body).into_owned());
    Ok((status, serde_json::from_slice(body).unwrap_or_else(|_| text())))
}
