//! Whom a client of HTTPS trusts.

use std::{fs, path::Path, sync::Arc};
use tokio_rustls::rustls::crypto::ring;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// Where Debian keeps the certificates of public authorities.
pub const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";

/// TLS for servers that the certificates in this file vouch for, in PEM; or why it cannot be used.
pub fn trusting(file: &Path) -> Result<TlsConfig, String> {
    trusting_pem(&fs::read(file).map_err(|error| error.to_string())?)
}

/// TLS for servers that these certificates vouch for, in PEM; or why they cannot be used.
pub fn trusting_pem(pem: &[u8]) -> Result<TlsConfig, String> {
    let certificates = parse_pem(pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
        Ok(_) => None,
        Err(error) => Some(Err(error.to_string())),
    });
    let certificates = certificates.collect::<Result<Vec<_>, _>>()?;
    if certificates.is_empty() {
        return Err("no certificate in PEM".to_owned());
    }
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&certificates))
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build())
}
