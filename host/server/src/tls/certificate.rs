//! What a chain of certificates says: for how long, for which names, and by which issuer.

use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::timestamp::timestamp;

/// What is known of a chain, from its first certificate on.
#[derive(Debug, Clone)]
pub(crate) struct CertificateFacts {
    not_before_s: i64,
    /// Unix seconds.
    pub(crate) not_after_s: i64,
    /// The earliest end of a certificate that clients may check: of all but a last one that is its own issuer. Unix seconds.
    pub(crate) earliest_end_s: i64,
    /// The names and addresses of the first certificate that clients compare with the one they asked for.
    pub(crate) names: Vec<String>,
    pub(crate) issuer: String,
    pub(crate) count: usize,
    /// The number of the first certificate, counted from 1, that the next one has not issued.
    pub(crate) broken_after: Option<usize>,
    /// Whether the last certificate is its own issuer, so that clients need the file to trust it.
    pub(crate) ends_in_root: bool,
}

impl CertificateFacts {
    /// Reads a chain, which is not empty.
    ///
    /// # Errors
    ///
    /// The number of a certificate, counted from 1, that is not valid X.509, and why.
    pub(super) fn of(chain: &[CertificateDer<'_>]) -> Result<Self, (usize, X509Error)> {
        let mut parsed = Vec::with_capacity(chain.len());
        for (index, certificate) in chain.iter().enumerate() {
            let (_, read) =
                X509Certificate::from_der(certificate).map_err(|error| (index + 1, error.into()))?;
            parsed.push(read);
        }
        let (Some(first), Some(last)) = (parsed.first(), parsed.last()) else {
            return Err((1, X509Error::InvalidCertificate));
        };
        let names = first.subject_alternative_name().map_err(|error| (1, error))?;
        let names = names.iter().flat_map(|names| &names.value.general_names).filter_map(name);
        let broken = parsed.windows(2).position(
            |pair| matches!(pair, [issued, issuer] if issued.issuer().as_raw() != issuer.subject().as_raw()),
        );
        let ends_in_root = last.issuer().as_raw() == last.subject().as_raw();
        let checked = parsed.len() - usize::from(ends_in_root && parsed.len() > 1);
        let ends =
            parsed.iter().take(checked).map(|certificate| certificate.validity().not_after.timestamp());
        let not_after_s = first.validity().not_after.timestamp();
        Ok(Self {
            not_before_s: first.validity().not_before.timestamp(),
            not_after_s,
            earliest_end_s: ends.fold(not_after_s, i64::min),
            names: names.collect(),
            issuer: first.issuer().to_string(),
            count: parsed.len(),
            broken_after: broken.map(|index| index + 1),
            ends_in_root,
        })
    }

    /// Why the certificate is not valid at this time; `None` if it is.
    pub(crate) fn not_valid_at(&self, now_s: i64) -> Option<String> {
        if now_s < self.not_before_s {
            return Some(format!("it is valid from {} on", written(self.not_before_s)));
        }
        (now_s >= self.not_after_s).then(|| format!("it expired at {}", self.expires()))
    }

    /// The time of expiry for people.
    pub(crate) fn expires(&self) -> String {
        written(self.not_after_s)
    }

    pub(crate) fn shown_names(&self) -> String {
        if self.names.is_empty() { "none".to_owned() } else { self.names.join(", ") }
    }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

fn written(unix_s: i64) -> String {
    timestamp(u64::try_from(unix_s).unwrap_or(0).saturating_mul(1000))
}
