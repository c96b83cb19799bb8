//! What outlives the daemon: actions that were made over the API, in the state directory.

use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use squeezy_openwhisk::{Digest, action::ActionBody};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The form of the file. Raise it when an earlier daemon could not read what this one writes.
const VERSION: u32 = 1;

/// Largest file, in bytes, and most actions in it.
const MOST_BYTES: usize = 64 << 20;
const MOST_ACTIONS: usize = 1000;

/// Ends the name of a file that is being written.
const UNFINISHED: &str = ".new";

/// An action as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredAction {
    /// The image's name; its path if it is neither pinned nor one of the build directory.
    pub image: PathBuf,
    /// Which very image. Earlier versions have kept none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// As [`super::action::Action`] has it.
    pub revision: u32,
    /// As [`super::action::Action`] has it.
    pub updated_ms: u64,
    /// As a client wrote it, less `exec`.
    pub body: ActionBody,
}

/// Why the state directory cannot be used. One sentence for a person, with the way out.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file or directory cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is somebody else's.
    #[error(
        "{} is in use by another `squeezy serve`{}: end that, or choose another `state_directory`",
        directory.display(),
        holder
    )]
    Locked {
        /// The state directory.
        directory: PathBuf,
        /// Its process.
        holder: String,
    },
    /// The file is no such file.
    #[error(
        "{}: {problem}; it holds the actions made over the API: repair it, or move it away to start without them",
        path.display()
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// It would become too large.
    #[error(
        "there may be {MOST_ACTIONS} actions of {} MiB together: delete some first",
        MOST_BYTES >> 20
    )]
    Full,
}

/// The state directory, which nobody else uses meanwhile.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    actions: BTreeMap<String, StoredAction>,
    /// The lock is given up with it.
    _lock: File,
}

/// The file.
#[derive(Serialize, Deserialize)]
struct Contents<A> {
    version: u32,
    actions: A,
}

/// What every version of the file has.
#[derive(Deserialize)]
struct Head {
    version: u32,
}

impl State {
    /// Makes the directory if there is none, for its owner only, and takes it for this process.
    pub fn open(directory: &Path) -> Result<Self, StateError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| StateError::File { path, error }
        };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory).map_err(failed(directory))?;
        let lock = lock(directory)?;
        let path = directory.join("actions.json");
        // What a daemon that was killed has not finished.
        for entry in fs::read_dir(directory).map_err(failed(directory))?.flatten() {
            if entry.file_name().to_string_lossy().ends_with(UNFINISHED) {
                fs::remove_file(entry.path()).map_err(failed(&entry.path()))?;
            }
        }
        let actions = read(&path)?;
        Ok(Self { path, actions, _lock: lock })
    }

    /// All actions, by name.
    pub fn actions(&self) -> &BTreeMap<String, StoredAction> {
        &self.actions
    }

    /// Keeps an action; once this returns, it is kept for good.
    pub async fn put(&mut self, name: &str, action: StoredAction) -> Result<(), StateError> {
        let mut actions = self.actions.clone();
        actions.insert(name.to_owned(), action);
        self.replace(actions).await
    }

    /// Forgets an action, if there is one.
    pub async fn remove(&mut self, name: &str) -> Result<(), StateError> {
        if !self.actions.contains_key(name) {
            return Ok(());
        }
        let mut actions = self.actions.clone();
        actions.remove(name);
        self.replace(actions).await
    }

    async fn replace(&mut self, actions: BTreeMap<String, StoredAction>) -> Result<(), StateError> {
        let path = self.path.clone();
        // Away from those who answer calls: it waits for the disk.
        let written = tokio::task::spawn_blocking(move || {
            let contents = Contents { version: VERSION, actions: &actions };
            let text = serde_json::to_vec_pretty(&contents)
                .map_err(|error| StateError::File { path: path.clone(), error: error.into() })?;
            if actions.len() > MOST_ACTIONS || text.len() > MOST_BYTES {
                return Err(StateError::Full);
            }
            let written = write_whole(&path, &text);
            written.map(|()| actions).map_err(|error| StateError::File { path, error })
        });
        let failed = |error| StateError::File { path: self.path.clone(), error };
        self.actions = written.await.map_err(|error| failed(io::Error::other(error)))??;
        Ok(())
    }
}

/// Takes the directory for this process, until the file is closed.
fn lock(directory: &Path) -> Result<File, StateError> {
    let path = directory.join("lock");
    let failed = |error| StateError::File { path: path.clone(), error };
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
    let mut file = File::from(file.map_err(|error| failed(error.into()))?);
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let id = fs::read_to_string(&path).unwrap_or_default();
            let id = id.trim().parse::<u32>();
            let holder = id.map_or(String::new(), |id| format!(" (process {id})"));
            return Err(StateError::Locked { directory: directory.to_owned(), holder });
        }
        Err(error) => return Err(failed(error.into())),
    }
    // For whoever is turned away; that the disk is full keeps nobody from working.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

fn read(path: &Path) -> Result<BTreeMap<String, StoredAction>, StateError> {
    let failed = |error| StateError::File { path: path.to_owned(), error };
    let damaged = |problem: String| StateError::Damaged { path: path.to_owned(), problem };
    match path.metadata() {
        Ok(metadata) if metadata.len() > MOST_BYTES as u64 => {
            return Err(damaged(format!("it is larger than {} MiB", MOST_BYTES >> 20)));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        result => result.map_err(failed)?,
    };
    let text = fs::read(path).map_err(failed)?;
    let Head { version } =
        serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if version != VERSION {
        return Err(damaged(format!("it is of version {version}, this squeezy knows {VERSION}")));
    }
    let contents: Contents<BTreeMap<_, _>> =
        serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    Ok(contents.actions)
}

/// Writes a file wholly or not at all, for its owner only, so that it is there after a power cut.
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
            revision,
            updated_ms: 7,
            body: serde_json::from_str(body).unwrap(),
        }
    }

    #[tokio::test]
    async fn actions_are_there_again() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("state");
        let mut state = State::open(&directory).unwrap();
        assert!(state.actions().is_empty());
        state.put("f", action(1)).await.unwrap();
        state.put("g", action(2)).await.unwrap();
        state.put("f", action(3)).await.unwrap();
        state.remove("g").await.unwrap();
        state.remove("h").await.unwrap();
        drop(state);
        // A daemon was killed in the middle of it.
        fs::write(directory.join("actions.json.new"), "{").unwrap();
        let state = State::open(&directory).unwrap();
        assert_eq!(*state.actions(), BTreeMap::from([("f".to_owned(), action(3))]));
        assert!(!directory.join("actions.json.new").exists());
        let mode = fs::metadata(directory.join("actions.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
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
            ("{ \"version\": 2, \"things\": [] }", "version 2, this squeezy knows 1"),
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
    async fn too_many_are_refused_and_the_rest_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let mut state = State::open(directory.path()).unwrap();
        let many = (0..MOST_ACTIONS).map(|number| (number.to_string(), action(1))).collect();
        state.replace(many).await.unwrap();
        assert!(matches!(state.put("more", action(1)).await, Err(StateError::Full)));
        state.put("1", action(2)).await.unwrap();
        drop(state);
        assert_eq!(State::open(directory.path()).unwrap().actions().len(), MOST_ACTIONS);
    }
}
