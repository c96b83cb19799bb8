//! The web page: how functions, instances and memory stand, and what came of calls.
//!
//! Its files are in `assets/`, and in the program; it loads nothing from elsewhere. Numbers are for
//! everybody who can connect, as in `/metrics`. Activations, with their results and logs, are for
//! those who have the key: the page asks for it, and gets them from the API as any other client.

mod assets;
mod history;
mod sample;
mod state;

use super::{
    api,
    failure_reasons::Problem,
    key::Key,
    metrics::{Known, Name, Scraper, Watch},
    service::Service,
};
use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::{
        HeaderMap,
        header::{ACCEPT, AUTHORIZATION, VARY},
    },
    response::{IntoResponse, Response},
    routing::get,
};
use history::History;
use serde::Deserialize;
use squeezy_node::Node;
use state::Latest;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

/// Everything that the page is made of.
pub struct Page {
    node: Node,
    service: Arc<Service>,
    watch: Arc<Watch>,
    scraper: Scraper,
    key: Key,
    /// What moments count from.
    begin: Instant,
    /// How instances get their memory.
    policy: &'static str,
    memory_limit_bytes: u64,
    history: Mutex<History>,
    latest: Mutex<Latest>,
}

impl Page {
    /// Of a node that began then, and its service.
    pub fn new(
        node: Node,
        service: Arc<Service>,
        watch: Arc<Watch>,
        key: Key,
        begin: Instant,
        policy: &'static str,
        memory_limit_bytes: u64,
    ) -> Arc<Self> {
        let weak = Arc::downgrade(&service);
        watch.names.set(Box::new(move || {
            let actions = weak.upgrade().map(|service| service.actions()).unwrap_or_default();
            actions.iter().map(|action| (action.index, Known::of(action))).collect()
        }));
        Arc::new(Self {
            scraper: Scraper::new(node.clone(), watch.clone()),
            node,
            service,
            watch,
            key,
            begin,
            policy,
            memory_limit_bytes,
            history: Mutex::default(),
            latest: Mutex::default(),
        })
    }

    fn history<T>(&self, look: impl FnOnce(&mut History) -> T) -> T {
        look(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn latest(&self) -> Latest {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn problem(&self, function: &Name) -> Option<Problem> {
        self.watch.failure_reasons.of(self.service.action(&function.0)?.index)
    }

    fn instance_bytes(&self, function: &Name) -> u64 {
        let action = self.service.action(&function.0);
        action.map_or(0, |action| Known::of(&action).instance_bytes)
    }
}

/// The page, what it shows, and the metrics.
pub fn router(page: Arc<Page>) -> Router {
    Router::new()
        .route("/", get(start))
        .route("/metrics", get(metrics))
        .route("/ui/state.json", get(state_json))
        .route("/ui/{file}", get(|Path(file): Path<String>| async move { assets::file(&file) }))
        .with_state(page)
}

/// The page for browsers; OpenWhisk's clients ask here who they have to do with.
async fn start(headers: HeaderMap) -> Response {
    let accepted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let browser = accepted.is_some_and(|accept| accept.contains("text/html"));
    let mut response =
        if browser { assets::file("index.html") } else { api::about().await.into_response() };
    response.headers_mut().insert(VARY, ACCEPT.into());
    response
}

async fn metrics(State(page): State<Arc<Page>>, headers: HeaderMap) -> Response {
    let accepted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    page.scraper.scrape(accepted.unwrap_or_default()).await
}

#[derive(Deserialize)]
struct Since {
    #[serde(default)]
    since_ms: u64,
}

/// Reasons, which may quote a guest, are for those who have the key; the rest is for everybody.
async fn state_json(
    State(page): State<Arc<Page>>,
    Query(since): Query<Since>,
    headers: HeaderMap,
) -> Response {
    let header = headers.get(AUTHORIZATION).and_then(|header| header.to_str().ok());
    let has_key = page.key.admits(header);
    assets::secured(Json(state::state(&page, since.since_ms, has_key)))
}

#[cfg(test)]
mod tests;
