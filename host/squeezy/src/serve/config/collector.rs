//! Where traces and metrics are sent.

use http::Uri;
use std::{
    fmt::{self, Display},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

/// A collector, and what it gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Collector {
    /// Its address.
    pub endpoint: Endpoint,
    /// A file with headers of each request, such as credentials.
    pub headers_file: Option<PathBuf>,
    /// The part of the calls that is traced, of those whose caller does not say, from 0 to 1.
    pub sampling: f64,
    /// How often it gets the metrics; `None` for never.
    pub metrics_interval: Option<Duration>,
}

/// The URL of a collector, without the paths that OTLP adds, and without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(String);

impl FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = "must be the http or https URL of a collector: http://127.0.0.1:4318";
        let uri: Uri = text.parse().map_err(|_| wanted)?;
        if !matches!(uri.scheme_str(), Some("http" | "https"))
            || uri.host().is_none_or(str::is_empty)
        {
            return Err(wanted);
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("must not have credentials, which belong in otlp_headers_file");
        }
        if uri.query().is_some() || text.contains('#') {
            return Err("must end with its path: /v1/traces and /v1/metrics are appended to it");
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

impl Endpoint {
    /// Whether it is spoken to by HTTPS.
    pub fn is_secure(&self) -> bool {
        self.0.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"))
    }
}

impl Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_without_secrets() {
        for (text, right) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
            ("https://collector.example/otlp/", "https://collector.example/otlp"),
            ("http://[::1]:4318/", "http://[::1]:4318"),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), right);
            assert_eq!(endpoint.is_secure(), right.starts_with("https"));
        }
        for wrong in [
            "",
            "127.0.0.1:4318",
            "grpc://a:4317",
            "http://",
            "http:///v1",
            "/v1/traces",
            "http://a b",
            "http://me:secret@a",
            "http://a/?token=1",
            "http://a/#b",
        ] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }
}
