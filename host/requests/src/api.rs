//! The API server of Kubernetes.

use crate::{
    cluster::{Cluster, Denied, Problem, short},
    places::Places,
    pod::Pod,
};
use serde_json::Value;
use squeezy_requests::PodName;
use squeezy_trust::trusting_pem;
use std::{
    env,
    fmt::Display,
    fs,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The longest answer, in bytes: a pod may have 1.5 MiB in the API server's database, and its JSON is longer.
const MAX_ANSWER_BYTES: u64 = 4 << 20;
/// Most requests to the API server at a time, so that the answers that are held take 32 MiB at most, whatever tenants write
/// into their pods. The program's container has 128 MiB.
const MAX_EXCHANGES: usize = 8;

/// The API server of the cluster.
pub struct Api {
    url: String,
    token_file: PathBuf,
    certificate_file: PathBuf,
    agents: Agents,
    exchanges: Places,
}

impl Api {
    /// The one at this URL, or the one that the environment of a pod names; or why it cannot be asked.
    pub fn new(
        url: Option<String>,
        token_file: PathBuf,
        certificate_file: PathBuf,
    ) -> Result<Self, String> {
        let url = url.or_else(of_pod).ok_or(
            "the API server is not known: this is no pod of Kubernetes, so name it with --server",
        )?;
        let api = Self {
            url: url.trim_end_matches('/').to_owned(),
            token_file,
            certificate_file,
            agents: Agents::default(),
            exchanges: Places::new(MAX_EXCHANGES),
        };
        // A certificate that cannot be used is told of at once.
        api.agent()?;
        Ok(api)
    }

    /// What trusts whom the cluster's certificate vouches for now: a cluster may change it.
    fn agent(&self) -> Result<ureq::Agent, String> {
        let file = &self.certificate_file;
        let pem = fs::read(file).map_err(|error| error.to_string());
        pem.and_then(|pem| self.agents.trusting(pem))
            .map_err(|reason| format!("{}: {reason}", file.display()))
    }

    /// Makes a request, and something of the answer. It is one of [`MAX_EXCHANGES`] until that is made, because it holds the
    /// answer.
    fn exchange<R>(
        &self,
        request: http::request::Builder,
        body: Vec<u8>,
        until: Instant,
        make: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Denied> {
        let failed = |error: &dyn Display| Denied { status: 0, message: error.to_string() };
        let Some(_place) = self.exchanges.take(until) else {
            return Err(failed(&"squeezy-requests asks the API server for too many others"));
        };
        let agent = self.agent().map_err(|error| failed(&error))?;
        // It is another one every hour.
        let token = fs::read_to_string(&self.token_file)
            .map_err(|error| failed(&format_args!("{}: {error}", self.token_file.display())))?;
        let bearer = format!("Bearer {}", token.trim());
        let request = request.header(http::header::AUTHORIZATION, bearer).body(body);
        let request = request.map_err(|error| failed(&error))?;
        let limit = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let request = agent.configure_request(request).timeout_global(Some(limit)).build();
        let mut answer = agent.run(request).map_err(|error| failed(&error))?;
        let body = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES);
        let body = body.read_to_vec().map_err(|error| failed(&error))?;
        match answer.status().as_u16() {
            200 => Ok(make(&body)),
            status => Err(Denied { status, message: message(status, &body) }),
        }
    }
}

impl Cluster for Api {
    fn pod(&self, name: &PodName, until: Instant) -> Result<Pod, Problem> {
        let request = http::Request::get(format!("{}{}", self.url, path(name)));
        let read = |body: &[u8]| {
            serde_json::from_slice::<Pod>(body)
                .map_err(|error| Problem::Failed(short(&format!("its answer is no pod: {error}"))))
        };
        let answered = self.exchange(request, Vec::new(), until, read);
        let pod = answered.map_err(|denied| match denied.status {
            404 => Problem::Gone,
            _ => Problem::Failed(short(&denied.message)),
        })??;
        if pod.has_uid(name.uid.as_str()) { Ok(pod) } else { Err(Problem::Gone) }
    }

    fn resize(&self, name: &PodName, patch: &Value, until: Instant) -> Result<(), Denied> {
        let request = http::Request::patch(format!("{}{}/resize", self.url, path(name)))
            .header(http::header::CONTENT_TYPE, "application/strategic-merge-patch+json");
        self.exchange(request, patch.to_string().into_bytes(), until, |_| ())
    }
}

/// The last agent, with its connections, and the certificates in PEM that it was made for.
#[derive(Default)]
struct Agents(Mutex<Option<(Vec<u8>, ureq::Agent)>>);

impl Agents {
    /// One that trusts whom these certificates vouch for, and nobody else: the last one, if it was made for the same.
    fn trusting(&self, pem: Vec<u8>) -> Result<ureq::Agent, String> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((trusted, agent)) = &*last
            && *trusted == pem
        {
            return Ok(agent.clone());
        }
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .https_only(true)
            .max_redirects(0)
            .user_agent(concat!("squeezy-requests/", env!("CARGO_PKG_VERSION")))
            .tls_config(trusting_pem(&pem)?);
        let agent = config.build().new_agent();
        *last = Some((pem, agent.clone()));
        Ok(agent)
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
    use std::ptr;

    #[test]
    fn other_certificates_have_another_agent() {
        let trusting = |agents: &Agents, base64: &str| {
            let pem = format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n");
            agents.trusting(pem.into_bytes()).unwrap()
        };
        let are_one =
            |one: &ureq::Agent, other: &ureq::Agent| ptr::eq(one.config(), other.config());
        let agents = Agents::default();
        let first = trusting(&agents, "AAAA");
        assert!(are_one(&first, &trusting(&agents, "AAAA")), "its connections are used again");
        let second = trusting(&agents, "AAAB");
        assert!(!are_one(&first, &second));
        assert!(agents.trusting(b"none".to_vec()).is_err());
        assert!(are_one(&second, &trusting(&agents, "AAAB")));
    }

    #[test]
    fn what_an_answer_says_is_its_message() {
        let body = serde_json::json!({ "kind": "Status", "message": "exceeded quota" }).to_string();
        assert_eq!(message(403, body.as_bytes()), "exceeded quota");
        for body in ["", "<html>", "{}", "[1]"] {
            assert_eq!(message(503, body.as_bytes()), "the API server answers with status 503");
        }
    }
}
