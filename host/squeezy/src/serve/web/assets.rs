//! The web page's files, which are compiled into the program.

use axum::{
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::{IntoResponse, Response},
};

macro_rules! files {
    ($($name:literal: $kind:literal,)+) => {
        /// Name, content type and content of each.
        pub const FILES: &[(&str, &str, &str)] =
            &[$(($name, $kind, include_str!(concat!("assets/", $name)))),+];
    };
}

files! {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "activations.js": "text/javascript; charset=utf-8",
    "chart.js": "text/javascript; charset=utf-8",
    "dom.js": "text/javascript; charset=utf-8",
    "format.js": "text/javascript; charset=utf-8",
    "function.js": "text/javascript; charset=utf-8",
    "history.js": "text/javascript; charset=utf-8",
    "reclaims.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}

/// The page may load its own files and contact its own daemon, nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// The file with this name.
pub fn file(name: &str) -> Response {
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, content)) => secured(([(CONTENT_TYPE, *kind)], *content)),
        None => secured(StatusCode::NOT_FOUND),
    }
}

/// A response with headers that make browsers treat it as its content type only.
pub fn secured(response: impl IntoResponse) -> Response {
    let mut response = response.into_response();
    let headers: [(HeaderName, &str); 4] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
