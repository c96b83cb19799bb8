//! The API server of Kubernetes.

use crate::{
    cluster::{Cluster, Denied, Problem, short},
    pod::Pod,
};
use serde_json::Value;
use squeezy_requests::PodName;
use squeezy_trust::trusting;
use std::{
    env, fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The longest answer, in bytes: a pod may have 1.5 MiB in the API server's database, and its JSON is longer.
const MAX_ANSWER_BYTES: u64 = 4 << 20;

/// The API server of the cluster.
pub struct Api {
    url: String,
    token_file: PathBuf,
    agent: ureq::Agent,
}

impl Api {
    /// The one at this URL, or the one that the environment of a pod names; or why it cannot be asked.
    pub fn new(
        url: Option<String>,
        token_file: PathBuf,
        certificate_file: &Path,
    ) -> Result<Self, String> {
        let url = url.or_else(of_pod).ok_or(
            "the API server is not known: this is no pod of Kubernetes, so name it with --server",
        )?;
        let tls = trusting(certificate_file)
            .map_err(|reason| format!("{}: {reason}", certificate_file.display()))?;
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .https_only(true)
            .max_redirects(0)
            .user_agent(concat!("squeezy-requests/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls);
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            token_file,
            agent: agent.build().new_agent(),
        })
    }

    fn exchange(
        &self,
        request: http::request::Builder,
        body: Vec<u8>,
        until: Instant,
    ) -> Result<Vec<u8>, Denied> {
        let failed =
            |error: &dyn std::fmt::Display| Denied { status: 0, message: error.to_string() };
        // It is another one every hour.
        let token = fs::read_to_string(&self.token_file)
            .map_err(|error| failed(&format_args!("{}: {error}", self.token_file.display())))?;
        let bearer = format!("Bearer {}", token.trim());
        let request = request.header(http::header::AUTHORIZATION, bearer).body(body);
        let request = request.map_err(|error| failed(&error))?;
        let limit = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let request = self.agent.configure_request(request).timeout_global(Some(limit)).build();
        let mut answer = self.agent.run(request).map_err(|error| failed(&error))?;
        let body = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES);
        let body = body.read_to_vec().map_err(|error| failed(&error))?;
        match answer.status().as_u16() {
            200 => Ok(body),
            status => Err(Denied { status, message: message(status, &body) }),
        }
    }
}

impl Cluster for Api {
    fn pod(&self, name: &PodName, until: Instant) -> Result<Pod, Problem> {
        let request = http::Request::get(format!("{}{}", self.url, path(name)));
        let body =
            self.exchange(request, Vec::new(), until).map_err(|denied| match denied.status {
                404 => Problem::Gone,
                _ => Problem::Failed(short(&denied.message)),
            })?;
        let pod: Pod = serde_json::from_slice(&body)
            .map_err(|error| Problem::Failed(short(&format!("its answer is no pod: {error}"))))?;
        if pod.stays(name.uid.as_str()) { Ok(pod) } else { Err(Problem::Gone) }
    }

    fn resize(&self, name: &PodName, patch: &Value, until: Instant) -> Result<(), Denied> {
        let request = http::Request::patch(format!("{}{}/resize", self.url, path(name)))
            .header(http::header::CONTENT_TYPE, "application/strategic-merge-patch+json");
        self.exchange(request, patch.to_string().into_bytes(), until).map(drop)
    }
}

/// What an answer with this status says, for people.
fn message(status: u16, body: &[u8]) -> String {
    let said: Option<Value> = serde_json::from_slice(body).ok();
    let said = said.as_ref().and_then(|said| said["message"].as_str()).map(str::to_owned);
    said.unwrap_or_else(|| format!("the API server answers with status {status}"))
}

/// Where a pod is. Its names have nothing in them that would be more than a name there.
fn path(pod: &PodName) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.namespace.as_str(), pod.name.as_str())
}

/// Where a pod of Kubernetes finds the API server.
fn of_pod() -> Option<String> {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
    // An address of IPv6 has colons.
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Some(format!("https://{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_says_is_its_message() {
        let body = serde_json::json!({ "kind": "Status", "message": "exceeded quota" }).to_string();
        assert_eq!(message(403, body.as_bytes()), "exceeded quota");
        for body in ["", "<html>", "{}", "[1]"] {
            assert_eq!(message(503, body.as_bytes()), "the API server answers with status 503");
        }
    }
}
