//! The daemon's certificate, which can be replaced while it runs.

use super::log::log_line;
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;
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
    #[error("{}: {error}", path.display())]
    File {
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
    files: TlsFiles,
    /// The files' contents, and what was made of them.
    current: Mutex<(Contents, TlsAcceptor)>,
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
        let contents = files.read()?;
        let acceptor = files.acceptor(&contents)?;
        Ok(Arc::new(Self { files, current: Mutex::new((contents, acceptor)) }))
    }

    /// For the next connection. Those that are open keep the certificate that they began with.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.current().1.clone()
    }

    /// Takes over new files as they appear, at once if `told`. Bad ones are reported once, and the daemon keeps what
    /// it has.
    pub async fn follow(self: Arc<Self>, told: Arc<Notify>) {
        let mut reported = None;
        loop {
            let _ = tokio::time::timeout(INTERVAL, told.notified()).await;
            let tls = self.clone();
            let Ok(result) = tokio::task::spawn_blocking(move || tls.reload()).await else {
                continue;
            };
            match result {
                Ok(changed) => {
                    reported = None;
                    if changed {
                        let path = self.files.certificate.display();
                        log_line(&format!("{path}: new connections have the new certificate"));
                    }
                }
                Err(error) => {
                    let error = error.to_string();
                    if reported.as_ref() != Some(&error) {
                        log_line(&format!("{error}; the daemon keeps the certificate that it has"));
                    }
                    reported = Some(error);
                }
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, (Contents, TlsAcceptor)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the files had changed.
    fn reload(&self) -> Result<bool, TlsError> {
        let contents = self.files.read()?;
        if self.current().0 == contents {
            return Ok(false);
        }
        let acceptor = self.files.acceptor(&contents)?;
        *self.current() = (contents, acceptor);
        Ok(true)
    }
}

impl TlsFiles {
    fn read(&self) -> Result<Contents, TlsError> {
        let read = |path: &Path| {
            fs::read(path).map_err(|error| TlsError::File { path: path.to_owned(), error })
        };
        Ok(Contents { certificate: read(&self.certificate)?, key: read(&self.key)? })
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
        assert!(matches!(tls.reload(), Err(TlsError::File { .. })));
        assert!(matches!(Tls::open(first), Err(TlsError::File { .. })));
    }
}
