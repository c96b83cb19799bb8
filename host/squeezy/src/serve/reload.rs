//! Reads the configuration again while the daemon runs, and the operator's key.

use super::{
    config::{Difference, FunctionEntry, differences},
    kept::operators_key,
    log::log_line,
    read,
    service::Service,
    tls::{Tls, TlsError},
};
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf, sync::Arc};
use tokio::sync::Mutex;

/// Reads it again on demand.
pub struct Reloader {
    /// The configuration's file; `None` if the daemon has none.
    file: Option<PathBuf>,
    /// Functions from the command line.
    functions: Vec<FunctionEntry>,
    service: Arc<Service>,
    tls: Option<Arc<Tls>>,
    /// Held while the configuration changes.
    changing: Mutex<()>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// What has changed.
    pub applied: Vec<Difference>,
    /// What will change when the daemon is started again.
    pub needs_restart: Vec<Difference>,
}

/// What is said where there is nothing to read.
const NO_FILE: &str =
    "the daemon was started without --config, so there is no configuration to read again";

/// Why nothing of the configuration has changed, as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// There is nothing to read.
    #[error("{NO_FILE}")]
    NoFile,
    /// There is nothing to read, but the operator's key is another one.
    #[error("{NO_FILE}; the operator's key has changed")]
    NoFileButKey,
    /// The new configuration cannot be used, or what is to be the operator's key.
    #[error("{0}; nothing has changed")]
    Bad(String),
    /// The new configuration cannot be used, but the operator's key is another one.
    #[error("{0}; of the configuration nothing has changed, the operator's key has")]
    BadButKey(String),
}

impl Reloader {
    /// For a daemon with this configuration file and these functions of the command line.
    pub fn new(
        file: Option<PathBuf>,
        functions: Vec<FunctionEntry>,
        service: Arc<Service>,
        tls: Option<Arc<Tls>>,
    ) -> Arc<Self> {
        // A relative path is one of the directory that the daemon was started in.
        let file = file.map(|file| std::path::absolute(&file).unwrap_or(file));
        Arc::new(Self { file, functions, service, tls, changing: Mutex::default() })
    }

    /// Reads the operator's key, and then the configuration, of which it applies what may change. The key is another one
    /// from then on also if the configuration is wrong; if there is no key in its file, the configuration stays as it is, too.
    /// Goes on to the end if the caller stops waiting.
    pub async fn reload(self: &Arc<Self>) -> Result<Reloaded, ReloadError> {
        let reloader = self.clone();
        let reload = tokio::spawn(async move { reloader.apply().await });
        reload.await.unwrap_or_else(|error| Err(ReloadError::Bad(error.to_string())))
    }

    async fn apply(&self) -> Result<Reloaded, ReloadError> {
        let _changing = self.changing.lock().await;
        let is_other_key = self.follow_key().await?;
        self.follow_configuration().await.map_err(|error| match error {
            ReloadError::NoFile if is_other_key => ReloadError::NoFileButKey,
            ReloadError::Bad(problem) if is_other_key => ReloadError::BadButKey(problem),
            other => other,
        })
    }

    async fn follow_configuration(&self) -> Result<Reloaded, ReloadError> {
        let file = self.file.clone().ok_or(ReloadError::NoFile)?;
        let new = tokio::task::spawn_blocking(move || read(Some(&file))).await;
        let mut new = new.map_err(|error| bad(&error))?.map_err(|error| bad(&error))?;
        new.functions.extend(self.functions.iter().cloned());
        let (applied, needs_restart) = differences(&self.service.config(), &new);
        let certificate = match (&self.tls, &new.tls) {
            (Some(tls), Some(files)) => {
                let files = files.clone();
                let loaded = tokio::task::spawn_blocking(move || files.load()).await;
                let loaded = loaded.map_err(|error| bad(&error))?;
                Some((tls, loaded.map_err(|error: TlsError| bad(&error))?))
            }
            // Whether there is TLS at all is decided at the start.
            _ => None,
        };
        let changed = self.service.reconfigure(&new).await;
        changed.map_err(|(path, error)| bad(&super::about(&path, &error)))?;
        if let Some((tls, loaded)) = certificate {
            tls.replace(loaded);
        }
        Ok(Reloaded { applied, needs_restart })
    }

    /// Returns whether it is another one.
    async fn follow_key(&self) -> Result<bool, ReloadError> {
        let directory = self.service.config().state_directory.clone();
        let key = tokio::task::spawn_blocking(move || operators_key(&directory)).await;
        let key = key.map_err(|error| bad(&error))?.map_err(|error| bad(&error))?;
        let is_other = self.service.tenants.set_operator(key);
        if is_other {
            log_line("the operator's key is another one from now on");
        }
        Ok(is_other)
    }
}

fn bad(error: &dyn fmt::Display) -> ReloadError {
    ReloadError::Bad(error.to_string())
}

/// A line for each key.
impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<String> = Vec::new();
        for Difference { key, from, to } in &self.applied {
            lines.push(format!("{key}: {to} (was {from})"));
        }
        for Difference { key, from, to } in &self.needs_restart {
            lines.push(format!("{key}: still {from}; {to} once the daemon is started again"));
        }
        if lines.is_empty() {
            lines.push("the configuration is what the daemon runs with".to_owned());
        }
        f.write_str(&lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{kept::KEY, service::tests::service};
    use std::fs;

    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn another_key_is_said_where_there_is_no_configuration() {
        let (service, _hold, directory) = service().await;
        let key = service.config().state_directory.join(KEY);
        assert!(key.starts_with(directory.path()) && key.exists());
        let reloader = Reloader::new(None, Vec::new(), service, None);
        let said = async || reloader.reload().await.unwrap_err().to_string();
        assert!(!said().await.contains("key"));
        fs::remove_file(&key).unwrap();
        assert!(said().await.ends_with("; the operator's key has changed"));
        assert!(!said().await.contains("key"));
    }
}
