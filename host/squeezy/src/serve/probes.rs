//! `/healthz` and `/readyz`, for whoever starts the daemon or sends it calls. Neither needs the key.
//!
//! A daemon that answers at all is healthy: a restart would help nobody. It is ready if a call sent
//! to it would be taken and remembered.

use axum::{Router, extract::State, http::StatusCode, routing::get};
use squeezy_store::Store;
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::Mutex;

/// How long the result of a look at the disk is used.
const FRESH: Duration = Duration::from_secs(1);

/// How long a look at the disk may take.
const LIMIT: Duration = Duration::from_secs(2);

/// A look at the disk: when it was, and what the problem was.
type Look = (Instant, Option<String>);

/// What readiness depends on.
pub struct Probes {
    directory: PathBuf,
    store: Arc<Store>,
    is_ending: AtomicBool,
    /// When the state directory was last written to, and why it could not be. Held meanwhile, so
    /// that a disk that hangs has one thread waiting for it.
    looked: Arc<Mutex<Option<Look>>>,
}

impl Probes {
    /// Probes of a daemon with this state directory.
    pub fn new(directory: &Path, store: Arc<Store>) -> Arc<Self> {
        let directory = directory.to_owned();
        Arc::new(Self {
            directory,
            store,
            is_ending: AtomicBool::new(false),
            looked: Arc::default(),
        })
    }

    /// The daemon takes no further calls.
    pub fn ends(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Why the daemon is not ready, if it is not.
    async fn problem(&self) -> Option<String> {
        if self.is_ending.load(Ordering::Relaxed) {
            return Some("the daemon is shutting down".to_owned());
        }
        if self.store.health().problem.is_some() {
            return Some("activations cannot be written".to_owned());
        }
        let looked = tokio::time::timeout(LIMIT, self.look()).await;
        looked.unwrap_or_else(|_| Some("the state directory's disk does not answer".to_owned()))
    }

    /// Why the state directory cannot be written, if it cannot.
    async fn look(&self) -> Option<String> {
        let mut looked = self.looked.clone().lock_owned().await;
        if let Some((when, problem)) = &*looked
            && when.elapsed() < FRESH
        {
            return problem.clone();
        }
        let file = self.directory.join("probe.new");
        let look = tokio::task::spawn_blocking(move || {
            let problem = write(&file).err();
            let problem = problem.map(|e| format!("the state directory cannot be written: {e}"));
            *looked = Some((Instant::now(), problem.clone()));
            problem
        });
        look.await.unwrap_or_else(|error| Some(error.to_string()))
    }
}

/// Writes to a file that the next start would remove, and removes it.
fn write(path: &Path) -> io::Result<()> {
    let written = fs::File::create(path).and_then(|mut file| file.write_all(&[0; 4096]));
    let removed = fs::remove_file(path);
    written.and(removed)
}

/// The routes.
pub fn router(probes: Arc<Probes>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(probes)
}

async fn ready(State(probes): State<Arc<Probes>>) -> (StatusCode, String) {
    match probes.problem().await {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{bodies::Bodies, config::Config};

    #[tokio::test]
    async fn who_cannot_write_or_is_ending_is_not_ready() {
        let directory = tempfile::tempdir().unwrap();
        let bodies = Bodies::new(64 << 20);
        let limits = Config::parse("", directory.path()).unwrap().store_limits(&bodies);
        let store = Store::open(&directory.path().join("squeezy.db"), limits, |_| ()).unwrap();
        let probes = Probes::new(directory.path(), Arc::new(store));
        let said = async || ready(State(probes.clone())).await;
        assert_eq!(said().await, (StatusCode::OK, "ready\n".to_owned()));
        assert!(!directory.path().join("probe.new").exists());
        // A directory is in the way of the file.
        fs::create_dir(directory.path().join("probe.new")).unwrap();
        assert_eq!(said().await.0, StatusCode::OK, "it has just been looked at");
        tokio::time::sleep(FRESH).await;
        let (status, text) = said().await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.starts_with("the state directory cannot be written: "), "{text}");
        assert!(!text.contains(&*directory.path().to_string_lossy()), "{text}");
        fs::remove_dir(directory.path().join("probe.new")).unwrap();
        tokio::time::sleep(FRESH).await;
        assert_eq!(said().await.0, StatusCode::OK);
        probes.ends();
        assert_eq!(said().await.1, "the daemon is shutting down\n");
    }
}
