//! Persistent state: actions, sequences and packages that were created over the API, in the state directory.

use super::tenants::TenantError;
use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use squeezy_openwhisk::{
    Digest, Namespace, QualifiedName, action::ActionBody, package::Package, sequence::Sequence,
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Version of the file format. Increment it when older daemons could not read the new one.
const VERSION: u32 = 6;

/// The oldest version that can be read: without code. The second one has no namespaces, the third no packages, the
/// fourth no sequences, the fifth no drives of code.
const OLDEST: u32 = 1;

/// The maximum size of the file in bytes, and the maximum number of actions, sequences included, and of packages in it.
const MOST_BYTES: usize = 64 << 20;
const MOST_ACTIONS: usize = 1000;

/// The part of that number, as a divisor, that is left to the operator's namespace: tenants together do not lock him out.
const OPERATORS_PART: usize = 8;

/// How much of it the actions and packages of one namespace may take, other than the operator's, in bytes.
const MOST_BYTES_OF_ONE: usize = 4 << 20;

/// Suffix of a file that is being written.
const UNFINISHED: &str = ".new";

/// What is to be done about a directory that is not open to this user.
pub const OTHER_STATE: &str = "run the daemon as its owner, or choose another `state_directory`";

/// An action as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredAction {
    /// The image's name, or its path if it is neither pinned nor in the build directory.
    pub image: PathBuf,
    /// Digest of the image. Earlier versions stored none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Where in a registry the image comes from, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The code that the image runs, if it is a runtime's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<StoredCode>,
    /// As in [`super::action::Action`].
    pub revision: u32,
    /// As in [`super::action::Action`].
    pub updated_ms: u64,
    /// As the client sent it, without `exec`.
    pub body: ActionBody,
}

/// An image in a registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The reference that the client gave.
    pub reference: String,
    /// What it meant then.
    pub digest: Digest,
}

/// An action's code as it is stored: all but the code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredCode {
    /// The name of its kind.
    pub kind: String,
    /// Whether clients send and get it in base64.
    pub binary: bool,
    /// The name of its entry point, if it has been given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main: Option<String>,
    /// The code's digest.
    pub digest: Digest,
    /// Whether it is a drive of its VM. Earlier versions had none.
    #[serde(default)]
    pub drive: bool,
}

/// Why the state directory cannot be used, as one sentence that says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file or directory cannot be read or written.
    #[error("{}: {error}{}", path.display(), way_out(error))]
    File {
        /// Its path.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// Another process uses the directory.
    #[error(
        "{} is in use by another `squeezy serve`{}: end that, or choose another `state_directory`",
        directory.display(),
        holder
    )]
    Locked {
        /// The state directory.
        directory: PathBuf,
        /// That process.
        holder: String,
    },
    /// The file is damaged.
    #[error(
        "{}: {problem}; it holds the actions made over the API: repair it, or move it away to start without them",
        path.display()
    )]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The namespaces cannot be used.
    #[error("{0}")]
    Tenants(#[from] TenantError),
    /// The file would become too large.
    #[error(
        "at most {MOST_ACTIONS} actions and as many packages of {} MiB together are allowed: delete some first",
        MOST_BYTES >> 20
    )]
    Full,
    /// A namespace would have too much in the file.
    #[error(
        "the actions and packages of a namespace may take {} MiB without their code, parameters above all: make some smaller, or delete some",
        MOST_BYTES_OF_ONE >> 20
    )]
    FullOfOne,
}

/// What is to be done about an error of the operating system; one of ours says it itself.
fn way_out(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            if error.raw_os_error().is_some() =>
        {
            format!("; {OTHER_STATE}")
        }
        _ => String::new(),
    }
}

/// The state directory, locked for this process.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    contents: Arc<Contents>,
    /// Holds the lock until it is dropped.
    _lock: File,
}

/// The file's contents.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Contents {
    version: u32,
    actions: BTreeMap<QualifiedName, StoredAction>,
    /// Earlier versions had none. None has the name of an action.
    #[serde(default)]
    sequences: BTreeMap<QualifiedName, Sequence>,
    /// Earlier versions had none.
    #[serde(default)]
    packages: BTreeMap<QualifiedName, Package>,
}

/// What every version of the file contains.
#[derive(Deserialize)]
struct Head {
    version: u32,
}

impl State {
    /// Creates the directory if necessary, accessible only to its owner, and locks it.
    pub fn open(directory: &Path) -> Result<Self, StateError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| StateError::File { path, error }
        };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory).map_err(failed(directory))?;
        let lock = lock(directory)?;
        let path = directory.join("actions.json");
        // Left by a daemon that was killed.
        for entry in fs::read_dir(directory).map_err(failed(directory))?.flatten() {
            if entry.file_name().to_string_lossy().ends_with(UNFINISHED) {
                fs::remove_file(entry.path()).map_err(failed(&entry.path()))?;
            }
        }
        let contents = read(&path)?;
        Ok(Self { path, contents: Arc::new(contents), _lock: lock })
    }

    /// All actions but sequences, sorted by name.
    pub fn actions(&self) -> &BTreeMap<QualifiedName, StoredAction> {
        &self.contents.actions
    }

    /// All sequences, sorted by name.
    pub fn sequences(&self) -> &BTreeMap<QualifiedName, Sequence> {
        &self.contents.sequences
    }

    /// Whether there is an action of this name, or a sequence.
    pub fn has(&self, name: &QualifiedName) -> bool {
        self.actions().contains_key(name) || self.sequences().contains_key(name)
    }

    /// How many actions a namespace has, sequences included.
    pub fn actions_of(&self, namespace: &Namespace) -> usize {
        let all = self.actions().keys().chain(self.sequences().keys());
        all.filter(|name| name.namespace == *namespace).count()
    }

    /// All packages, sorted by name.
    pub fn packages(&self) -> &BTreeMap<QualifiedName, Package> {
        &self.contents.packages
    }

    /// Stores a package durably.
    pub async fn put_package(
        &mut self,
        name: &QualifiedName,
        package: Package,
    ) -> Result<(), StateError> {
        let called = name.clone();
        let insert = |contents: &mut Contents| drop(contents.packages.insert(called, package));
        self.change(Some(&name.namespace), insert).await
    }

    /// Removes a package.
    pub async fn remove_package(&mut self, name: &QualifiedName) -> Result<(), StateError> {
        let name = name.clone();
        self.change(None, move |contents| drop(contents.packages.remove(&name))).await
    }

    /// Stores an action durably, in place of a sequence of its name.
    pub async fn put(
        &mut self,
        name: &QualifiedName,
        action: StoredAction,
    ) -> Result<(), StateError> {
        let called = name.clone();
        self.change(Some(&name.namespace), |contents| {
            contents.sequences.remove(&called);
            contents.actions.insert(called, action);
        })
        .await
    }

    /// Stores a sequence durably, in place of an action of its name.
    pub async fn put_sequence(
        &mut self,
        name: &QualifiedName,
        sequence: Sequence,
    ) -> Result<(), StateError> {
        let called = name.clone();
        self.change(Some(&name.namespace), |contents| {
            contents.actions.remove(&called);
            contents.sequences.insert(called, sequence);
        })
        .await
    }

    /// Removes an action or a sequence, if there is one.
    pub async fn remove(&mut self, name: &QualifiedName) -> Result<(), StateError> {
        if !self.has(name) {
            return Ok(());
        }
        let name = name.clone();
        self.change(None, move |contents| {
            contents.actions.remove(&name);
            contents.sequences.remove(&name);
        })
        .await
    }

    /// Removes all actions, sequences and packages of a namespace.
    pub async fn remove_all(&mut self, namespace: &Namespace) -> Result<(), StateError> {
        let has_package = self.packages().keys().any(|name| name.namespace == *namespace);
        if self.actions_of(namespace) == 0 && !has_package {
            return Ok(());
        }
        let namespace = namespace.clone();
        self.change(None, move |contents| {
            contents.actions.retain(|name, _| name.namespace != namespace);
            contents.sequences.retain(|name, _| name.namespace != namespace);
            contents.packages.retain(|name, _| name.namespace != namespace);
        })
        .await
    }

    /// Changes the file, and then what is in memory. What is of `grows` may have become larger.
    async fn change(
        &mut self,
        grows: Option<&Namespace>,
        change: impl FnOnce(&mut Contents) + Send + 'static,
    ) -> Result<(), StateError> {
        let (path, earlier) = (self.path.clone(), self.contents.clone());
        let grows = grows.filter(|namespace| !namespace.is_guest()).cloned();
        // Not on the threads that answer calls, because it waits for the disk, and there may be much of it.
        let written = tokio::task::spawn_blocking(move || {
            let mut contents = Contents::clone(&earlier);
            change(&mut contents);
            contents.version = VERSION;
            let text_of = |contents: &Contents| {
                serde_json::to_vec_pretty(contents)
                    .map_err(|error| StateError::File { path: path.clone(), error: error.into() })
            };
            if let Some(namespace) = &grows
                && text_of(&contents.of(namespace))?.len() > MOST_BYTES_OF_ONE
            {
                return Err(StateError::FullOfOne);
            }
            let text = text_of(&contents)?;
            let left = grows.map_or(0, |_| MOST_ACTIONS / OPERATORS_PART);
            let has_room = contents.count() <= earlier.count().max(MOST_ACTIONS - left);
            if !has_room || contents.count() > MOST_ACTIONS || text.len() > MOST_BYTES {
                return Err(StateError::Full);
            }
            let written = write_whole(&path, &text);
            written.map(|()| contents).map_err(|error| StateError::File { path, error })
        });
        let failed = |error| StateError::File { path: self.path.clone(), error };
        let written = written.await.map_err(|error| failed(io::Error::other(error)))?;
        let earlier = std::mem::replace(&mut self.contents, Arc::new(written?));
        tokio::task::spawn_blocking(move || drop(earlier));
        Ok(())
    }
}

impl Contents {
    /// How many actions or packages it has, whichever there are more of.
    fn count(&self) -> usize {
        (self.actions.len() + self.sequences.len()).max(self.packages.len())
    }

    /// What a namespace has of it.
    fn of(&self, namespace: &Namespace) -> Self {
        Self {
            version: self.version,
            actions: part(&self.actions, namespace),
            sequences: part(&self.sequences, namespace),
            packages: part(&self.packages, namespace),
        }
    }
}

fn part<T: Clone>(
    all: &BTreeMap<QualifiedName, T>,
    namespace: &Namespace,
) -> BTreeMap<QualifiedName, T> {
    let own = all.iter().filter(|(name, _)| name.namespace == *namespace);
    own.map(|(name, one)| (name.clone(), one.clone())).collect()
}

/// Name of the file that is locked.
const LOCK: &str = "lock";

/// The process that has a state directory locked, in brackets if it is known; `None` if nobody has.
pub fn holder(directory: &Path) -> Option<String> {
    let path = directory.join(LOCK);
    let lock = File::open(&path).ok()?;
    let is_free = flock(&lock, FlockOperation::NonBlockingLockShared).is_ok();
    (!is_free).then(|| process(&path))
}

/// The process that a lock names.
fn process(lock: &Path) -> String {
    let id = fs::read_to_string(lock).unwrap_or_default();
    id.trim().parse::<u32>().map_or(String::new(), |id| format!(" (process {id})"))
}

/// Locks the directory for this process, until the file is closed.
fn lock(directory: &Path) -> Result<File, StateError> {
    let path = directory.join(LOCK);
    let failed = |error| StateError::File { path: path.clone(), error };
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
    let mut file = File::from(file.map_err(|error| failed(error.into()))?);
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let (directory, holder) = (directory.to_owned(), process(&path));
            return Err(StateError::Locked { directory, holder });
        }
        Err(error) => return Err(failed(error.into())),
    }
    // Only informs a process that finds it locked; a full disk must not keep the daemon from
    // starting.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

fn read(path: &Path) -> Result<Contents, StateError> {
    let failed = |error| StateError::File { path: path.to_owned(), error };
    let damaged = |problem: String| StateError::Damaged { path: path.to_owned(), problem };
    match path.metadata() {
        Ok(metadata) if metadata.len() > MOST_BYTES as u64 => {
            return Err(damaged(format!("it is larger than {} MiB", MOST_BYTES >> 20)));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Contents::default()),
        result => result.map_err(failed)?,
    };
    let text = fs::read(path).map_err(failed)?;
    let Head { version } =
        serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if !(OLDEST..=VERSION).contains(&version) {
        return Err(damaged(format!("it has version {version}, this squeezy supports {VERSION}")));
    }
    serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))
}

/// Replaces a file atomically and durably, readable only by its owner.
pub fn write_whole(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let mut options = File::options();
    let mut file = options.create(true).write(true).truncate(true).mode(0o600).open(&unfinished)?;
    let written = file.write_all(contents).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&unfinished, path)) {
        let _ = fs::remove_file(&unfinished);
        return Err(error);
    }
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn action(revision: u32) -> StoredAction {
        let body =
            r#"{ "parameters": [{ "key": "a", "value": [1, null] }], "limits": { "timeout": 5 } }"#;
        StoredAction {
            image: "html".into(),
            digest: Some(format!("sha256:{}", "0a".repeat(32)).parse().unwrap()),
            origin: None,
            code: None,
            revision,
            updated_ms: 7,
            body: serde_json::from_str(body).unwrap(),
        }
    }

    fn name(text: &str) -> QualifiedName {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn actions_are_there_again() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("state");
        let mut state = State::open(&directory).unwrap();
        assert!(state.actions().is_empty());
        state.put(&name("f"), action(1)).await.unwrap();
        state.put(&name("/acme/f"), action(2)).await.unwrap();
        state.put(&name("g"), action(2)).await.unwrap();
        state.put(&name("f"), action(3)).await.unwrap();
        state.remove(&name("g")).await.unwrap();
        state.remove(&name("/acme/g")).await.unwrap();
        drop(state);
        // A daemon was killed while it wrote the file.
        fs::write(directory.join("actions.json.new"), "{").unwrap();
        let state = State::open(&directory).unwrap();
        assert_eq!(
            *state.actions(),
            BTreeMap::from([(name("f"), action(3)), (name("/acme/f"), action(2))])
        );
        assert!(!directory.join("actions.json.new").exists());
        let mode = fs::metadata(directory.join("actions.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_name_is_that_of_an_action_or_of_a_sequence() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = State::open(directory.path()).unwrap();
        let components = vec![name("/acme/f")];
        let sequence =
            Sequence { components, revision: 2, updated_ms: 7, body: ActionBody::default() };
        for each in ["/acme/f", "/acme/s", "g"] {
            state.put(&name(each), action(1)).await.unwrap();
        }
        for each in ["/acme/s", "g"] {
            state.put_sequence(&name(each), sequence.clone()).await.unwrap();
        }
        state.put(&name("g"), action(3)).await.unwrap();
        drop(state);
        let mut state = State::open(directory.path()).unwrap();
        assert_eq!(*state.sequences(), BTreeMap::from([(name("/acme/s"), sequence)]));
        assert_eq!(state.actions().keys().collect::<Vec<_>>(), [&name("/acme/f"), &name("g")]);
        assert_eq!(state.actions_of(&"acme".parse().unwrap()), 2);
        state.remove(&name("/acme/f")).await.unwrap();
        state.remove_all(&"acme".parse().unwrap()).await.unwrap();
        assert!(state.sequences().is_empty() && state.has(&name("g")));
    }

    #[tokio::test]
    async fn packages_are_there_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = State::open(directory.path()).unwrap();
        let package = Package { binding: Some(name("p")), revision: 7, ..Package::default() };
        for each in ["p", "/acme/p", "b"] {
            state.put_package(&name(each), package.clone()).await.unwrap();
        }
        // A change of one leaves the other.
        state.put(&name("p/f"), action(1)).await.unwrap();
        state.remove_package(&name("/acme/p")).await.unwrap();
        drop(state);
        let state = State::open(directory.path()).unwrap();
        assert_eq!(state.packages().keys().collect::<Vec<_>>(), [&name("b"), &name("p")]);
        assert_eq!(state.packages()[&name("b")], package);
        assert_eq!(state.actions()[&name("p/f")], action(1));
    }

    #[tokio::test]
    async fn a_namespace_s_packages_go_with_it_also_without_actions() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = State::open(directory.path()).unwrap();
        for each in ["p", "/acme/p", "/zeta/p"] {
            state.put_package(&name(each), Package::default()).await.unwrap();
        }
        state.put(&name("/zeta/p/f"), action(1)).await.unwrap();
        for namespace in ["acme", "zeta"] {
            state.remove_all(&namespace.parse().unwrap()).await.unwrap();
        }
        drop(state);
        let state = State::open(directory.path()).unwrap();
        assert_eq!(state.packages().keys().collect::<Vec<_>>(), [&name("p")]);
        assert!(state.actions().is_empty());
    }

    #[tokio::test]
    async fn a_file_from_before_there_were_packages_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("actions.json");
        let stored = BTreeMap::from([(name("f"), action(1)), (name("/acme/f"), action(2))]);
        for version in 1..VERSION {
            let text = serde_json::json!({ "version": version, "actions": stored }).to_string();
            fs::write(&path, text).unwrap();
            let mut state = State::open(directory.path()).unwrap();
            assert!(*state.actions() == stored && state.packages().is_empty());
            assert!(state.sequences().is_empty());
            state.put_package(&name("p"), Package::default()).await.unwrap();
            drop(state);
            let state = State::open(directory.path()).unwrap();
            assert!(*state.actions() == stored && state.packages().len() == 1);
        }
    }

    #[tokio::test]
    async fn a_directory_has_one_daemon() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(directory.path()).unwrap();
        let error = State::open(directory.path()).unwrap_err().to_string();
        let own = format!("(process {}): end that", std::process::id());
        assert!(error.contains(&own) && error.lines().count() == 1, "{error}");
        drop(state);
        assert!(State::open(directory.path()).is_ok());
    }

    #[test]
    fn who_may_not_use_the_directory_is_told_what_to_do() {
        let text = |error| StateError::File { path: "/state".into(), error }.to_string();
        let part = "; run the daemon as its owner, or choose another `state_directory`";
        for denied in [Errno::ACCESS, Errno::ROFS] {
            let error = text(denied.into());
            assert!(error.starts_with("/state: ") && error.ends_with(part), "{error}");
        }
        let own = io::Error::new(io::ErrorKind::PermissionDenied, "run `chmod 600 key`");
        assert_eq!(text(own), "/state: run `chmod 600 key`");
        assert!(!text(Errno::NOSPC.into()).contains("state_directory"));
    }

    #[tokio::test]
    async fn a_full_disk_keeps_no_daemon_from_starting() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", directory.path().join("lock")).unwrap();
        assert!(State::open(directory.path()).is_ok());
    }

    #[tokio::test]
    async fn a_damaged_file_is_named_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("actions.json");
        for (text, part) in [
            ("", "EOF"),
            ("{", "line 1"),
            ("{ \"version\": 7, \"things\": [] }", "version 7, this squeezy supports 6"),
            ("{ \"version\": 1, \"actions\": { \"f\": {} } }", "missing field"),
            ("{ \"version\": 1, \"actions\": [] }", "invalid type"),
        ] {
            fs::write(&path, text).unwrap();
            let error = State::open(directory.path()).unwrap_err().to_string();
            assert!(error.contains("actions.json: ") && error.contains(part), "{text}: {error}");
            assert!(error.contains("move it away") && error.lines().count() == 1, "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[tokio::test]
    async fn tenants_leave_room_for_the_operator() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = State::open(directory.path()).unwrap();
        let all = MOST_ACTIONS - MOST_ACTIONS / OPERATORS_PART;
        let many = (0..all).map(|number| (name(&format!("/acme/{number}")), action(1))).collect();
        state.change(None, |contents| contents.actions = many).await.unwrap();
        assert!(matches!(state.put(&name("/zeta/f"), action(1)).await, Err(StateError::Full)));
        state.put(&name("f"), action(1)).await.unwrap();
        state.put(&name("/acme/1"), action(2)).await.unwrap();
    }

    #[tokio::test]
    async fn too_many_are_refused_and_the_rest_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = State::open(directory.path()).unwrap();
        let many = (0..MOST_ACTIONS).map(|number| (name(&number.to_string()), action(1))).collect();
        state.change(None, |contents| contents.actions = many).await.unwrap();
        assert!(matches!(state.put(&name("more"), action(1)).await, Err(StateError::Full)));
        state.put(&name("1"), action(2)).await.unwrap();
        drop(state);
        assert_eq!(State::open(directory.path()).unwrap().actions().len(), MOST_ACTIONS);
    }
}
