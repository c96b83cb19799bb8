//! Keeps pages of other sites from using the key that a browser has.
//!
//! A browser that has once asked for the key sends it with each request to this daemon, also with those that
//! a page of another site makes it send, a form for instance. A web action's page is such a site: its origin is
//! `null`. Browsers say which page a request comes from, and pages cannot change that; other clients say nothing.

use super::error::ApiError;
use axum::{
    extract::Request,
    http::{
        HeaderMap, HeaderName, StatusCode, Uri,
        header::{HOST, ORIGIN},
    },
    middleware::Next,
    response::Response,
};

/// How the page that a request comes from is related to this daemon.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Passes on requests of the daemon's own page and of clients that are no browsers.
pub async fn own(request: Request, next: Next) -> Result<Response, ApiError> {
    if is_foreign(request.headers()) {
        let message = "Pages of other sites may not use this API.";
        return Err(ApiError::new(StatusCode::FORBIDDEN, message));
    }
    Ok(next.run(request).await)
}

fn is_foreign(headers: &HeaderMap) -> bool {
    // Browsers send it to localhost and with TLS. A proxy may change `Host`, but not this.
    if let Some(site) = headers.get(SITE) {
        // Nobody but the person at the browser.
        return site != "same-origin" && site != "none";
    }
    let Some(origin) = headers.get(ORIGIN) else { return false };
    let authority = |text: &str| text.parse::<Uri>().ok()?.into_parts().authority;
    let origin = origin.to_str().ok().filter(|origin| origin.contains("://"));
    let own = headers.get(HOST).and_then(|host| authority(host.to_str().ok()?));
    match (origin.and_then(authority), own) {
        (Some(origin), Some(own)) => origin != own,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn pages_of_other_sites_are_told_apart() {
        let headers = |all: &[(&str, &'static str)]| {
            let all = all.iter().map(|(name, value)| {
                (name.parse::<HeaderName>().unwrap(), HeaderValue::from_static(value))
            });
            HeaderMap::from_iter(all)
        };
        let host = ("host", "box:3233");
        for own in [
            &[host][..],
            &[],
            &[host, ("origin", "http://box:3233")],
            &[host, ("origin", "https://BOX:3233")],
            &[host, ("sec-fetch-site", "same-origin")],
            &[host, ("sec-fetch-site", "none")],
            // Behind a proxy with a name of its own.
            &[host, ("sec-fetch-site", "same-origin"), ("origin", "https://functions.example")],
        ] {
            assert!(!is_foreign(&headers(own)), "{own:?}");
        }
        for foreign in [
            &[host, ("origin", "null")][..],
            &[host, ("origin", "")],
            &[host, ("origin", "box:3233")],
            &[host, ("origin", "http://box:8000")],
            &[host, ("origin", "http://evil.example")],
            &[("origin", "http://box:3233")],
            &[host, ("sec-fetch-site", "cross-site")],
            &[host, ("sec-fetch-site", "same-site"), ("origin", "http://box:3233")],
            &[host, ("sec-fetch-site", "cross-site"), ("origin", "null")],
        ] {
            assert!(is_foreign(&headers(foreign)), "{foreign:?}");
        }
    }
}
