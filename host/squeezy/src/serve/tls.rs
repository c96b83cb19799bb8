//! The daemon's certificate, which can be replaced while it runs.

use super::log::{log_line, log_warning};
use crate::mutex::lock;
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    },
};

/// Interval of looks whether the files have changed. Certificates are renewed days before they expire.
const INTERVAL: Duration = Duration::from_secs(10);

/// Where certificate and key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those that vouch for it, in PEM, the daemon's own first.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

/// Why they cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {error}; `{named_by}` has to name a file that the daemon may read", path.display())]
    File {
        /// The key of the configuration that names it.
        named_by: &'static str,
        /// Its path.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: no {what} in PEM: {error}", path.display())]
    Pem {
        /// Its path.
        path: PathBuf,
        /// What it should have.
        what: &'static str,
        /// What is wrong with it.
        error: pem::Error,
    },
    /// They do not belong together, or are of a kind that is not supported.
    #[error("{} and {} cannot be used together: {error}", files.certificate.display(), files.key.display())]
    Pair {
        /// The files.
        files: TlsFiles,
        /// What is wrong with them.
        error: rustls::Error,
    },
}

/// The certificate in use.
pub struct Tls {
    current: Mutex<Loaded>,
}

/// Files, their contents, and what was made of them.
pub struct Loaded {
    files: TlsFiles,
    contents: Contents,
    acceptor: TlsAcceptor,
}

/// What is in the two files.
#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Tls {
    /// Reads the files.
    pub fn open(files: TlsFiles) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self { current: Mutex::new(files.load()?) }))
    }

    /// Uses other files from now on, and says so if they are.
    pub fn replace(&self, loaded: Loaded) {
        let path = loaded.files.certificate.clone();
        let before = std::mem::replace(&mut *self.current(), loaded);
        if before.contents != self.current().contents {
            say_new(&path);
        }
    }

    /// For the next connection. Those that are open keep the certificate that they began with.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.current().acceptor.clone()
    }

    /// Takes over new files as they appear. Bad ones are reported once, and the daemon keeps what it has.
    pub async fn follow(self: Arc<Self>) {
        let mut reported = None;
        loop {
            tokio::time::sleep(INTERVAL).await;
            let tls = self.clone();
            let Ok(result) = tokio::task::spawn_blocking(move || tls.reload()).await else {
                continue;
            };
            match result {
                Ok(changed) => {
                    reported = None;
                    if changed {
                        let path = self.current().files.certificate.clone();
                        say_new(&path);
                    }
                }
                Err(error) => {
                    let error = error.to_string();
                    if reported.as_ref() != Some(&error) {
                        log_warning(&format!(
                            "{error}; the daemon keeps the certificate that it has"
                        ));
                    }
                    reported = Some(error);
                }
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, Loaded> {
        lock(&self.current)
    }

    /// Whether the files had changed.
    fn reload(&self) -> Result<bool, TlsError> {
        let files = self.current().files.clone();
        let new = files.load()?;
        let mut current = self.current();
        // Others may have been named meanwhile.
        let is_new = current.files == new.files && current.contents != new.contents;
        if is_new {
            *current = new;
        }
        Ok(is_new)
    }
}

fn say_new(certificate: &Path) {
    let path = certificate.display();
    log_line(&format!("{path}: new connections have the new certificate"));
}

impl TlsFiles {
    /// Reads the files and checks that they can be used.
    pub fn load(self) -> Result<Loaded, TlsError> {
        let contents = self.read()?;
        let acceptor = self.acceptor(&contents)?;
        Ok(Loaded { files: self, contents, acceptor })
    }

    fn read(&self) -> Result<Contents, TlsError> {
        let read = |named_by, path: &Path| {
            let path = path.to_owned();
            fs::read(&path).map_err(|error| TlsError::File { named_by, path, error })
        };
        let certificate = read("tls_certificate", &self.certificate)?;
        Ok(Contents { certificate, key: read("tls_key", &self.key)? })
    }

    fn acceptor(&self, contents: &Contents) -> Result<TlsAcceptor, TlsError> {
        let wrong = |path: &Path, what, error| TlsError::Pem { path: path.to_owned(), what, error };
        let chain = CertificateDer::pem_slice_iter(&contents.certificate);
        let chain = chain.collect::<Result<Vec<_>, _>>().and_then(|chain| {
            if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) }
        });
        let chain = chain.map_err(|error| wrong(&self.certificate, "certificate", error))?;
        let key = PrivateKeyDer::from_pem_slice(&contents.key)
            .map_err(|error| wrong(&self.key, "private key", error))?;
        let pair = |error| TlsError::Pair { files: self.clone(), error };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(pair)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(pair)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

#[cfg(test)]
#[path = "../../tests/common/certificate.rs"]
mod certificate;

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Makes a certificate for this machine's loopback address, and its key.
    pub fn make(directory: &Path, name: &str) -> TlsFiles {
        let (certificate, key) = certificate::make(directory, name);
        TlsFiles { certificate, key }
    }

    #[test]
    fn files_that_are_replaced_are_taken_over_and_bad_ones_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (make(directory.path(), "first"), make(directory.path(), "second"));
        let tls = Tls::open(first.clone()).unwrap();
        assert!(!tls.reload().unwrap());
        // A renewal that has got half way.
        fs::copy(&second.certificate, &first.certificate).unwrap();
        assert!(matches!(tls.reload(), Err(TlsError::Pair { .. })));
        fs::copy(&second.key, &first.key).unwrap();
        assert!(tls.reload().unwrap());
        assert!(!tls.reload().unwrap());
        for (path, what) in [(&first.certificate, "certificate"), (&first.key, "private key")] {
            let good = fs::read(path).unwrap();
            fs::write(path, "no PEM").unwrap();
            let error = tls.reload().unwrap_err().to_string();
            assert!(error.contains(what) && error.lines().count() == 1, "{error}");
            fs::write(path, good).unwrap();
        }
        fs::remove_file(&first.key).unwrap();
        let error = tls.reload().unwrap_err().to_string();
        assert!(error.contains("first.key: ") && error.contains("`tls_key`"), "{error}");
        tls.replace(second.load().unwrap());
        assert!(!tls.reload().unwrap());
        fs::remove_file(&first.certificate).unwrap();
        let error = Tls::open(first).err().unwrap().to_string();
        assert!(error.contains("first.pem: ") && error.contains("`tls_certificate`"), "{error}");
    }
}
