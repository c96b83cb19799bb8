//! Certificates for tests.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Makes a certificate for this machine's loopback address that vouches for itself, and its key, with the tool that
/// operators use.
pub fn make(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
    let certificate = directory.join(format!("{name}.pem"));
    let key = directory.join(format!("{name}.key"));
    let mut openssl = Command::new("openssl");
    openssl.args("req -x509 -nodes -days 2 -subj /CN=localhost".split(' '));
    openssl.args("-newkey ec -pkeyopt ec_paramgen_curve:prime256v1".split(' '));
    // One that may vouch for others is refused as a server's own.
    openssl.args("-addext basicConstraints=critical,CA:FALSE".split(' '));
    openssl.args("-addext subjectAltName=DNS:localhost,IP:127.0.0.1".split(' '));
    openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate).stderr(Stdio::null());
    assert!(openssl.status().expect("openssl is installed").success());
    (certificate, key)
}
