//! A certificate authority for tests.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio_rustls::TlsAcceptor;

pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    /// The PEM file for `roots`.
    pub(crate) fn pem(&self) -> Vec<u8> {
        self.issuer.pem().into_bytes()
    }

    /// A TLS server with a valid certificate for `name`.
    pub(crate) fn acceptor(&self, name: &str, protocols: &[&str]) -> TlsAcceptor {
        self.acceptor_from(CertificateParams::new([name.to_owned()]).unwrap(), protocols)
    }

    /// A TLS server with a valid certificate for all these names.
    pub(crate) fn acceptor_for(&self, names: &[&str], protocols: &[&str]) -> TlsAcceptor {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.acceptor_from(CertificateParams::new(names).unwrap(), protocols)
    }

    /// A TLS server with a self-signed certificate for `name`.
    pub(crate) fn self_signed(name: &str) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
        acceptor_with(certificate.der().clone(), &key, &["http/1.1"])
    }

    /// A TLS server with an expired certificate for `name`.
    pub(crate) fn expired(&self, name: &str) -> TlsAcceptor {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        self.acceptor_from(params, &["http/1.1"])
    }

    fn acceptor_from(&self, params: CertificateParams, protocols: &[&str]) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        acceptor_with(certificate.der().clone(), &key, protocols)
    }
}

fn acceptor_with(certificate: CertificateDer<'static>, key: &KeyPair, protocols: &[&str]) -> TlsAcceptor {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}
