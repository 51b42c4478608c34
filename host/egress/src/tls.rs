//! TLS settings: which server certificates are trusted.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, pem::PemObject},
};
use rustls_platform_verifier::Verifier;

use crate::EgressConfigError;

/// HTTP/2, or else HTTP/1.1.
const BOTH: &[&[u8]] = &[b"h2", b"http/1.1"];
/// For guests' own requests. The HTTP library cannot bound how many interim answers come before an answer in HTTP/2
/// (egress rule R17).
const ONE: &[&[u8]] = &[b"http/1.1"];

/// The TLS settings of all connections.
pub(crate) struct TlsSettings {
    pub(crate) providers: Arc<ClientConfig>,
    pub(crate) guests: Arc<ClientConfig>,
}

/// Builds the TLS settings: certificates are verified against the system's roots and the given ones.
///
/// No setting turns verification off. The cryptographic provider is passed explicitly, so that this
/// client does not depend on a process-wide default.
///
/// # Errors
///
/// [`EgressConfigError::Root`] for a root that cannot be used, [`EgressConfigError::Tls`] if the TLS library
/// refuses its settings.
pub(crate) fn settings(roots: &[Vec<u8>]) -> Result<TlsSettings, EgressConfigError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut extra = Vec::new();
    for (index, pem) in roots.iter().enumerate() {
        extra.extend(read_roots(pem).ok_or(EgressConfigError::Root { index })?);
    }
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|_| EgressConfigError::Tls)?;
    let settings = match verifier(extra, provider) {
        Some(verifier) => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
        }
        None => builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth(),
    };
    Ok(TlsSettings { providers: offering(BOTH, settings.clone()), guests: offering(ONE, settings) })
}

fn offering(protocols: &[&[u8]], mut settings: ClientConfig) -> Arc<ClientConfig> {
    settings.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(settings)
}

/// `None` on a machine without any root certificate. Such a machine can still use a local model
/// over plain http; every https server is untrusted.
fn verifier(extra: Vec<CertificateDer<'static>>, provider: Arc<CryptoProvider>) -> Option<Verifier> {
    Verifier::new_with_extra_roots(extra, provider)
        .inspect_err(|_| {
            tracing::warn!("no root certificates on this system: every https server is untrusted")
        })
        .ok()
}

/// Returns whether a PEM file has at least one certificate, and only certificates that can be a
/// root.
#[must_use]
pub fn are_roots(pem: &[u8]) -> bool {
    read_roots(pem).is_some()
}

fn read_roots(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let mut store = RootCertStore::empty();
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.ok()?;
        store.add(certificate.clone()).ok()?;
        certificates.push(certificate);
    }
    if certificates.is_empty() { None } else { Some(certificates) }
}
