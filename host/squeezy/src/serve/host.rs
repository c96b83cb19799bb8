//! Which names the daemon answers to.
//!
//! A page of somebody else's may have its own name lead to this machine's loopback address, and a
//! browser on this machine takes what is there for a part of that page (DNS rebinding). The browser says
//! which name it was, in `Host`.

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

/// The names; any if there are none.
#[derive(Clone)]
pub struct Names(Option<Arc<str>>);

impl Names {
    /// Of a daemon that was told to listen at `name`, and does at `address`: where only this machine can
    /// connect, what leads there by nature, and that name.
    pub fn new(name: &str, address: SocketAddr) -> Self {
        Self(address.ip().is_loopback().then(|| name.into()))
    }

    fn has(&self, host: &str) -> bool {
        let Some(own) = &self.0 else { return true };
        // As the authority of a URL.
        let Ok(uri) = host.parse::<Uri>() else { return false };
        let name = uri.host().unwrap_or_default();
        let name = name.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        let is_loopback = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        is_loopback || name.eq_ignore_ascii_case("localhost") || name.eq_ignore_ascii_case(own)
    }
}

/// Answers only those who have asked for one of the names, or for none, as browsers never do.
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
