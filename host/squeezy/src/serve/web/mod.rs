//! The web page: functions, instances, memory, and results of calls.
//!
//! Its files are in `assets/` and compiled into the program; it loads nothing from elsewhere.
//! Numbers are public, as in `/metrics`, as long as there is one namespace ([`sight`]). Activations,
//! with their results and logs, need the key: the page asks for it, and gets them from the API like
//! any other client.

mod assets;
mod history;
mod sample;
mod sight;
mod state;
mod usage;

use super::{
    action::Action,
    api::{ApiError, info},
    failure_reasons::Problem,
    metrics::{Known, Name, Scraper, Watch},
    service::Service,
    tenants::Used,
};
use crate::mutex::lock;
use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::{
        HeaderMap,
        header::{ACCEPT, VARY},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use history::History;
use serde::Deserialize;
use sight::Sight;
use squeezy_node::Node;
use squeezy_openwhisk::Namespace;
use squeezy_store::Totals;
use state::Latest;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Instant,
};

/// State of the page's handlers.
pub struct Page {
    node: Node,
    service: Arc<Service>,
    watch: Arc<Watch>,
    scraper: Scraper,
    /// The origin of the node's timestamps.
    begin: Instant,
    /// The policy by which instances get memory and give it back.
    policy: &'static str,
    memory_limit_bytes: u64,
    history: Mutex<History>,
    latest: Mutex<Latest>,
    /// The totals that were last given to the store.
    totals: Mutex<BTreeMap<Name, Totals>>,
    /// What namespaces had used when it was last counted.
    used: Mutex<BTreeMap<Namespace, Used>>,
}

impl Page {
    /// A page for a node that started at `begin`, and its service.
    pub fn new(
        node: Node,
        service: Arc<Service>,
        watch: Arc<Watch>,
        begin: Instant,
        policy: &'static str,
        memory_limit_bytes: u64,
    ) -> Arc<Self> {
        let weak = Arc::downgrade(&service);
        watch.names.set(Box::new(move || {
            let actions = weak.upgrade().map(|service| service.actions()).unwrap_or_default();
            actions.iter().map(|action| (action.index, Known::of(action))).collect()
        }));
        let used = service.tenants.used();
        Arc::new(Self {
            scraper: Scraper::new(node.clone(), watch.clone(), service.store.clone()),
            node,
            service,
            watch,
            begin,
            policy,
            memory_limit_bytes,
            history: Mutex::default(),
            latest: Mutex::default(),
            totals: Mutex::default(),
            used: Mutex::new(used),
        })
    }

    /// The metrics as they are now, in the OpenMetrics format.
    pub async fn metrics_text(&self) -> String {
        self.scraper.text().await
    }

    fn history<T>(&self, look: impl FnOnce(&mut History) -> T) -> T {
        look(&mut lock(&self.history))
    }

    fn latest(&self) -> Latest {
        lock(&self.latest).clone()
    }

    fn action(&self, function: &Name) -> Option<Arc<Action>> {
        self.service.action(&function.0.parse().ok()?)
    }

    fn problem(&self, function: &Name) -> Option<Problem> {
        self.watch.failure_reasons.of(self.action(function)?.index)
    }

    fn instance_bytes(&self, function: &Name) -> u64 {
        self.action(function).map_or(0, |action| Known::of(&action).instance_bytes)
    }
}

/// Routes of the page, its data, and the metrics.
pub fn router(page: Arc<Page>) -> Router {
    Router::new()
        .route("/", get(start))
        .route("/metrics", get(metrics))
        .route("/ui/state.json", get(state_json))
        .route("/ui/{file}", get(|Path(file): Path<String>| async move { assets::file(&file) }))
        .with_state(page)
}

/// The page for browsers; OpenWhisk's clients use this path to identify the server.
async fn start(State(page): State<Arc<Page>>, headers: HeaderMap) -> Response {
    let accepted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let browser = accepted.is_some_and(|accept| accept.contains("text/html"));
    let mut response = if browser {
        assets::file("index.html")
    } else {
        info::describe(&page.service).into_response()
    };
    response.headers_mut().insert(VARY, ACCEPT.into());
    response
}

async fn metrics(State(page): State<Arc<Page>>, headers: HeaderMap) -> Result<Response, ApiError> {
    let sight = Sight::of(&page.service.tenants, &headers)?;
    let accepted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    Ok(page.scraper.scrape(accepted.unwrap_or_default(), sight.namespace()).await)
}

#[derive(Deserialize)]
struct Since {
    #[serde(default)]
    since_ms: u64,
}

/// Reasons may quote a guest, so they need a key even where everything else is public.
async fn state_json(
    State(page): State<Arc<Page>>,
    Query(since): Query<Since>,
    headers: HeaderMap,
) -> Response {
    match Sight::of(&page.service.tenants, &headers) {
        Ok(sight) => assets::secured(Json(state::state(&page, since.since_ms, &sight))),
        Err(error) => assets::secured(error),
    }
}

#[cfg(test)]
mod tests;
