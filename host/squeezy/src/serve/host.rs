//! Restricts the host names that the daemon answers to.
//!
//! A foreign web page can have its own name resolve to this machine's loopback address; a browser
//! on this machine then treats the daemon as part of that page (DNS rebinding). The browser sends
//! the name it used in `Host`.

use super::api;
use axum::{
    extract::{Request, State},
    http::{Uri, header::HOST},
    middleware::Next,
    response::Response,
};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// Allowed names; empty allows any.
#[derive(Clone)]
pub struct Names(Option<Arc<str>>);

impl Names {
    /// Names of a daemon that was told to listen on `name` and listens on `address`. If only this
    /// machine can connect: the names of the loopback interface, and that name.
    pub fn new(name: &str, address: SocketAddr) -> Self {
        Self(address.ip().is_loopback().then(|| name.into()))
    }

    fn has(&self, host: &str) -> bool {
        let Some(own) = &self.0 else { return true };
        // Parsed as the authority of a URL.
        let Ok(uri) = host.parse::<Uri>() else { return false };
        let name = uri.host().unwrap_or_default();
        let name = name.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        let is_loopback = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        is_loopback || name.eq_ignore_ascii_case("localhost") || name.eq_ignore_ascii_case(own)
    }
}

/// Passes on only requests for one of the names, or without `Host`, which browsers never send.
pub async fn check(State(names): State<Names>, request: Request, next: Next) -> Response {
    match request.headers().get(HOST).map(|host| host.to_str().unwrap_or_default()) {
        Some(host) if !names.has(host) => api::misdirected(host),
        _ => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_loopback_only_own_names_are_answered() {
        let names = Names::new("box", "127.0.1.1:3233".parse().unwrap());
        for right in [
            "localhost",
            "LOCALHOST:3233",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:3233",
            "box",
            "Box:1",
            "box.",
        ] {
            assert!(names.has(right), "{right}");
        }
        for wrong in [
            "",
            "evil.example",
            "evil.example:3233",
            "localhost.evil.example",
            "127.0.0.1.evil",
            "10.0.0.1",
            "[fe80::1]",
            "a b",
        ] {
            assert!(!names.has(wrong), "{wrong}");
        }
        assert!(Names::new("0.0.0.0", "0.0.0.0:3233".parse().unwrap()).has("any.example"));
    }
}
