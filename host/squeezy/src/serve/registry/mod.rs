//! Images from registries: pulled by skopeo and made images of functions, both in a sandbox, as far from the daemon's
//! way as can be. Several requests for the same image share one pull.

mod credentials;
mod disk;
mod fetch;
mod index;
mod probe;
mod proxy;
mod reference;
mod turns;
mod work;

use super::{
    blobs::{BlobError, DiskSpace},
    config::Config,
    images::{Images, PinError, Pinned},
    lines::Turn,
    log::log_line,
    tally::Tally,
    tenants::{OverQuota, Tenancy},
};
use crate::mutex::lock;
pub use credentials::check as check_credentials;
use fetch::Access;
pub use index::{Index, PulledImage};
pub use probe::{NEEDS, probe, probe_packer};
pub use reference::{Reference, is_host};
use serde::Serialize;
use squeezy_node::FunctionImage;
use squeezy_openwhisk::{Digest, Namespace};
use squeezy_sandbox::{Sandbox, ToolError, lines};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::watch;
use turns::Turns;
use work::{Work, WorkDirectory};

/// How many requests of the operator's namespace may wait for pulls, and how many of all others, and of one of them.
const MOST_WAITING: usize = 32;
const MOST_WAITING_OF_ONE: usize = 8;

/// The longest that a pull may take, without its wait for others.
const LIMIT: Duration = Duration::from_secs(1800);

/// Name of the image in the directory where it is made.
const IMAGE: &str = "image.erofs";

/// Why an image cannot be pulled, as one sentence without directories of the host.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PullError {
    /// The registry is not one that may be asked.
    #[error("{0}")]
    Refused(String),
    /// The registry does not give it.
    #[error("the image cannot be pulled: {0}")]
    Registry(String),
    /// No function can be made of it.
    #[error("the image cannot be used: {0}")]
    Image(String),
    /// There is no space for it.
    #[error("{0}")]
    NoDisk(String),
    /// It is more than the namespace may have.
    #[error("{0}")]
    OverQuota(OverQuota),
    /// The namespace is gone.
    #[error("There is no such namespace.")]
    Gone,
    /// Too many others are being pulled.
    #[error("Too many images are being pulled; try again later.")]
    Busy,
    /// Something is wrong here.
    #[error("{0}")]
    Internal(String),
}

impl PullError {
    /// The error of a tool; its own reason becomes one with `said`.
    fn of_tool<E: Into<Self>>(error: ToolError<E>, said: impl FnOnce(String) -> Self) -> Self {
        match error {
            ToolError::Said(reason)
                if reason.to_lowercase().contains("no space left on device") =>
            {
                Self::NoDisk("the disk of the state directory is full: make room on it".into())
            }
            ToolError::Said(reason) => said(reason),
            ToolError::Refused(error) => error.into(),
            ToolError::Missing(error) => {
                Self::Internal(format!("images cannot be pulled here: {error}: install {NEEDS}"))
            }
        }
    }
}

impl From<std::convert::Infallible> for PullError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

impl From<PinError> for PullError {
    fn from(error: PinError) -> Self {
        match error {
            PinError::Blob(BlobError::File { error, .. }) => {
                Self::Internal(format!("the image cannot be kept: {error}"))
            }
            PinError::Blob(error) => Self::NoDisk(error.to_string()),
            PinError::Image(error) => Self::Image(match error {
                squeezy_node::ImageError::Function { error, .. } => error.to_string(),
                other => super::failure_reasons::without_directories(&other.to_string()),
            }),
            other => Self::Image(other.to_string()),
        }
    }
}

impl From<BlobError> for PullError {
    fn from(error: BlobError) -> Self {
        PinError::from(error).into()
    }
}

/// How far a pull is.
#[derive(Clone, Debug, Serialize)]
pub struct Progress {
    /// What is being done.
    pub step: String,
    /// How much has been fetched, in bytes.
    pub bytes: u64,
    /// How much there is to fetch, in bytes; 0 while that is unknown.
    pub of: u64,
}

/// An image that has been pulled.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// The digest that the registry has it under.
    pub digest: Digest,
    /// Keeps it.
    pub pinned: Pinned,
    /// It and its definition.
    pub image: FunctionImage,
}

type Outcome = Option<Result<Pulled, PullError>>;

/// A pull that is under way.
struct Running {
    progress: Mutex<Progress>,
    /// Who has asked for it.
    askers: Mutex<Vec<Tenancy>>,
    outcome: watch::Receiver<Outcome>,
}

impl Running {
    /// This pull, which is for one more from now on.
    fn joined_by(self: &Arc<Self>, asker: &Tenancy) -> Arc<Self> {
        lock(&self.askers).push(asker.clone());
        self.clone()
    }
}

/// What is to be pulled, and how.
struct Wanted {
    config: Arc<Config>,
    terms: Terms,
    reference: Reference,
    digest: Digest,
    credentials: Credentials,
}

impl Wanted {
    fn key(&self) -> Key {
        (self.reference.repository(), self.digest.clone(), self.terms)
    }
}

/// An image in a repository, and on what terms it is pulled.
type Key = (String, Digest, Terms);

/// Only those with the same ones share a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Terms {
    /// Whether it is for the operator's namespace.
    is_guest: bool,
    /// Whether the operator's credentials are shown.
    has_credentials: bool,
    /// What the images of who asks may take, in bytes.
    most_bytes: Option<u64>,
}

/// What the operator has for a registry.
type Credentials = Option<String>;

/// Pulls images.
pub struct Registry {
    images: Arc<Images>,
    work: Work,
    /// The directory of convert.py.
    scripts: Option<PathBuf>,
    running: Mutex<BTreeMap<Key, Arc<Running>>>,
    /// Requests of each namespace that wait for pulls.
    waiting: Mutex<Tally<Namespace>>,
    turns: Turns,
}

/// A request that waits for a pull, until it is dropped.
struct Waiting<'a> {
    registry: &'a Registry,
    namespace: Namespace,
}

impl<'a> Waiting<'a> {
    fn begin(registry: &'a Registry, namespace: &Namespace) -> Result<Self, PullError> {
        let mut waiting = lock(&registry.waiting);
        let alike = waiting.of_those(|other| other.is_guest() == namespace.is_guest());
        let most_own = if namespace.is_guest() { MOST_WAITING } else { MOST_WAITING_OF_ONE };
        if alike >= MOST_WAITING || waiting.of(namespace) >= most_own {
            return Err(PullError::Busy);
        }
        waiting.add(namespace.clone());
        Ok(Self { registry, namespace: namespace.clone() })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.registry.waiting).remove(&self.namespace);
    }
}

impl Registry {
    /// Pulls into these images. What a daemon that was killed has left of pulls is removed.
    pub fn new(
        state: &Path,
        images: Arc<Images>,
        space: &Arc<DiskSpace>,
        scripts: Option<PathBuf>,
    ) -> Arc<Self> {
        let registry = Self {
            images,
            work: Work::new(state, space),
            scripts,
            running: Mutex::default(),
            waiting: Mutex::default(),
            turns: Turns::new(),
        };
        Arc::new(registry)
    }

    /// The image that a reference means now: kept already, or pulled. The pull goes on even if nobody waits for it.
    /// The operator's credentials are shown for the operator's namespace only. What others might get only with them, they
    /// get neither from what is kept. Nothing is pulled or noted for a namespace that is gone by then.
    pub async fn pull(
        self: &Arc<Self>,
        config: &Config,
        asker: &Tenancy,
        reference: &Reference,
    ) -> Result<Pulled, PullError> {
        let config = Arc::new(config.clone());
        config.registry(reference).map_err(PullError::Refused)?;
        let mut credentials = self.credentials(&config, reference)?;
        let is_private = credentials.is_some();
        let namespace = &asker.namespace;
        if !namespace.is_guest() {
            credentials = None;
        }
        // For an image that is here, nobody has to wait for others.
        if let Some(digest) = &reference.digest
            && let Some(pulled) = self.kept(asker, reference, digest, is_private).await
        {
            return Ok(pulled);
        }
        let _waiting = Waiting::begin(self, namespace)?;
        let digest = match &reference.digest {
            Some(digest) => digest.clone(),
            None => {
                let _turn = self.turns.to_ask(namespace).await;
                is_there(asker)?;
                let is_guest = namespace.is_guest();
                let directory = self.work.directory(is_guest)?;
                let asked = resolve(&directory, &config, reference, &credentials, is_guest).await;
                directory.remove().await;
                asked?
            }
        };
        if let Some(pulled) = self.kept(asker, reference, &digest, is_private).await {
            return Ok(pulled);
        }
        let terms = Terms {
            is_guest: namespace.is_guest(),
            has_credentials: credentials.is_some(),
            most_bytes: asker.quotas().image_bytes(),
        };
        let wanted = Wanted { config, terms, reference: reference.clone(), digest, credentials };
        let running = match self.join(asker, &wanted) {
            Some(running) => running,
            None => {
                let turn = self.turns.to_pull(namespace).await;
                is_there(asker)?;
                // Somebody else may have pulled it in the meantime.
                let kept = self.kept(asker, reference, &wanted.digest, is_private).await;
                if let Some(pulled) = kept {
                    return Ok(pulled);
                }
                self.join_or_start(asker, wanted, turn)
            }
        };
        let mut outcome = running.outcome.clone();
        let ended = outcome.wait_for(Option::is_some).await;
        let pulled = ended.ok().and_then(|outcome| outcome.clone());
        let pulled = pulled.unwrap_or(Err(PullError::Internal("an internal error".to_owned())))?;
        self.images.asked_for(asker, reference, &pulled.digest).await;
        is_there(asker)?;
        Ok(pulled)
    }

    /// The pulls that are under way for a namespace.
    pub fn under_way(&self, namespace: &Namespace) -> Vec<(String, Digest, Progress)> {
        let running = lock(&self.running);
        let one = |((repository, digest, _), running): (&Key, &Arc<Running>)| {
            (repository.clone(), digest.clone(), lock(&running.progress).clone())
        };
        let is_it = |asker: &Tenancy| asker.namespace == *namespace && asker.is_there();
        let asked = |running: &Running| lock(&running.askers).iter().any(is_it);
        running.iter().filter(|(_, running)| asked(running)).map(one).collect()
    }

    /// An image that is here, if this namespace may have it: one of a registry for which there are credentials, only if
    /// it has got that from there.
    async fn kept(
        &self,
        asker: &Tenancy,
        reference: &Reference,
        digest: &Digest,
        is_private: bool,
    ) -> Option<Pulled> {
        let (namespace, repository) = (&asker.namespace, reference.repository());
        if is_private
            && !namespace.is_guest()
            && !self.images.has_pulled(namespace, &repository, digest)
        {
            return None;
        }
        let blob = self.images.pulled(&repository, digest)?;
        // One that has been altered is pulled again.
        let (pinned, image) = self.images.find(&blob).await.ok()?;
        self.images.asked_for(asker, reference, digest).await;
        Some(Pulled { digest: digest.clone(), pinned, image })
    }

    /// Joins a pull of the same image that has begun.
    fn join(&self, asker: &Tenancy, wanted: &Wanted) -> Option<Arc<Running>> {
        lock(&self.running).get(&wanted.key()).map(|running| running.joined_by(asker))
    }

    /// Joins a pull of the same image, or begins one, as it is the namespace's turn: nobody waits for somebody else's.
    fn join_or_start(
        self: &Arc<Self>,
        asker: &Tenancy,
        wanted: Wanted,
        turn: Turn,
    ) -> Arc<Running> {
        let key = wanted.key();
        let mut all = lock(&self.running);
        if let Some(running) = all.get(&key) {
            return running.joined_by(asker);
        }
        let (tell, outcome) = watch::channel(None);
        let progress = Mutex::new(Progress { step: "starting".to_owned(), bytes: 0, of: 0 });
        let askers = Mutex::new(vec![asker.clone()]);
        let running = Arc::new(Running { progress, askers, outcome });
        all.insert(key.clone(), running.clone());
        drop(all);
        let (registry, under_way) = (self.clone(), running.clone());
        tokio::spawn(async move {
            let _over = Over { registry: registry.clone(), key };
            let _turn = turn;
            let pulled = registry.pull_now(&wanted, &under_way).await;
            let Wanted { reference, digest, .. } = &wanted;
            log_line(&match &pulled {
                Ok(_) => format!("pulled {}", reference.at(digest)),
                Err(error) => format!("{}: {error}", reference.at(digest)),
            });
            // It is in the list before it is no longer under way.
            let _ = tell.send(Some(pulled));
        });
        running
    }

    async fn pull_now(&self, wanted: &Wanted, running: &Running) -> Result<Pulled, PullError> {
        let directory = self.work.directory(wanted.terms.is_guest)?;
        let made = self.make(&directory, wanted, running);
        let made = tokio::time::timeout(LIMIT, made).await;
        directory.remove().await;
        let made = made.unwrap_or_else(|_| {
            let minutes = LIMIT.as_secs() / 60;
            Err(PullError::Registry(format!("it is not done after {minutes} minutes")))
        })?;
        // Each of the others notes it later.
        let asker = lock(&running.askers).iter().find(|asker| asker.is_there()).cloned();
        if let Some(asker) = asker {
            let Wanted { reference, digest, .. } = wanted;
            self.images.was_pulled(&asker, reference, digest, &made.pinned).await?;
        }
        Ok(made)
    }

    /// The operator's credentials for a registry.
    fn credentials(
        &self,
        config: &Config,
        reference: &Reference,
    ) -> Result<Credentials, PullError> {
        credentials::find(config.registry_auth.as_deref(), self.work.state(), reference)
    }

    async fn make(
        &self,
        directory: &WorkDirectory,
        wanted: &Wanted,
        running: &Running,
    ) -> Result<Pulled, PullError> {
        let Wanted { config, reference, digest, credentials, .. } = wanted;
        let Some(scripts) = &self.scripts else {
            let problem =
                "images cannot be pulled here: guest/image is missing beside the build directory";
            return Err(PullError::Internal(problem.to_owned()));
        };
        let entry = config.registry(reference).map_err(PullError::Refused)?;
        let has_credentials = give(directory, credentials)?;
        let is_guest = wanted.terms.is_guest;
        let access = Access { entry: &entry, has_credentials, is_guest };
        let say = |progress: Progress| *lock(&running.progress) = progress;
        let found = fetch::find(directory.path(), &access, reference, digest).await?;
        // Before anything is fetched; the space is taken as the bytes arrive.
        let bytes = found.layers_bytes;
        if let Some(allowed) = wanted.terms.most_bytes.filter(|&allowed| bytes > allowed) {
            return Err(PullError::OverQuota(OverQuota::Layers { bytes, allowed }));
        }
        directory.space().check(bytes)?;
        fetch::copy(directory, &access, reference, &found, &say).await?;
        // Whatever reads the image cannot read this.
        directory.forget(fetch::CREDENTIALS)?;

        let converted = convert(directory, scripts, reference, digest, |step| {
            say(Progress { step, bytes, of: bytes });
        });
        disk::watched(directory, converted).await?;
        let made = directory.size_of(IMAGE);
        // What is small when it is packed need not be so when it is unpacked.
        if let Some(allowed) = wanted.terms.most_bytes.filter(|&allowed| made > allowed) {
            return Err(PullError::OverQuota(OverQuota::Images { bytes: made, allowed }));
        }
        // From here on it is one of the images that are kept.
        directory.space().leave(made);
        let (pinned, image) = self.images.take_in_made(directory.path()).await?;
        Ok(Pulled { digest: digest.clone(), pinned, image })
    }
}

/// Fails once who asks is gone or going.
fn is_there(asker: &Tenancy) -> Result<(), PullError> {
    if asker.is_there() { Ok(()) } else { Err(PullError::Gone) }
}

async fn resolve(
    directory: &WorkDirectory,
    config: &Config,
    reference: &Reference,
    credentials: &Credentials,
    is_guest: bool,
) -> Result<Digest, PullError> {
    let entry = config.registry(reference).map_err(PullError::Refused)?;
    let has_credentials = give(directory, credentials)?;
    let access = Access { entry: &entry, has_credentials, is_guest };
    fetch::resolve(directory.path(), &access, reference).await
}

/// Puts a registry's credentials where skopeo finds them; whether there are any.
fn give(directory: &WorkDirectory, credentials: &Credentials) -> Result<bool, PullError> {
    let Some(credentials) = credentials else { return Ok(false) };
    directory.write(fetch::CREDENTIALS, credentials)?;
    Ok(true)
}

/// Makes the image of a function from the layout in a directory, and says what step begins.
async fn convert(
    directory: &WorkDirectory,
    scripts: &Path,
    reference: &Reference,
    digest: &Digest,
    step: impl Fn(String),
) -> Result<(), PullError> {
    let files = vec![(scripts.to_owned(), "/convert")];
    let (work, most_file_bytes) = (directory.path(), directory.space().share());
    let sandbox = Sandbox { work, files, most_file_bytes };
    let name = reference.function_name();
    let command = sandbox.command(["python3", "/convert/convert.py", &name, &reference.at(digest)]);
    let converted = lines(command, |line| match line.split_once(' ') {
        Some(("step", words)) => {
            step(words.chars().filter(char::is_ascii_lowercase).take(20).collect());
            Ok(())
        }
        // The files, and the image that is packed of them.
        Some(("takes", bytes)) => {
            let bytes: u64 = bytes.parse().unwrap_or(u64::MAX);
            directory.space().take(bytes.saturating_mul(2))
        }
        _ => Ok(()),
    });
    converted.await.map_err(|error| {
        PullError::of_tool(error, |reason| match reason.to_lowercase().contains("file too large") {
            true => directory.space().too_much(),
            false => PullError::Image(reason),
        })
    })
}

/// A pull that is over when this is dropped.
struct Over {
    registry: Arc<Registry>,
    key: Key,
}

impl Drop for Over {
    fn drop(&mut self) {
        lock(&self.registry.running).remove(&self.key);
    }
}
