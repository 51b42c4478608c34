//! Certificates of a root that only a test trusts.

use crate::Result;
use crate::programs::Programs;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A server's certificate with its key and the root that has signed it, as PEM.
#[derive(Clone)]
pub struct Certificate {
    pub certificate: String,
    pub key: String,
    pub root: String,
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Certificate {
    /// For these names and addresses, by a new root.
    ///
    /// # Errors
    /// A name is none.
    pub fn new(names: &[&str]) -> Result<Self> {
        Self::issue(names, |_| {})
    }

    /// The same, but it ended in the year 2002.
    ///
    /// # Errors
    /// A name is none.
    pub fn expired(names: &[&str]) -> Result<Self> {
        Self::issue(names, |params| params.not_after = rcgen::date_time_ymd(2002, 1, 1))
    }

    fn issue(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        change(&mut params);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &root)?.pem();
        Ok(Self { certificate, key: key.serialize_pem(), root: root.pem() })
    }

    /// Puts `server.crt` and `server.key` into a folder. The server reads a key only if nobody else can.
    pub(crate) fn write(&self, folder: &Path, programs: &Programs) -> Result<()> {
        std::fs::write(folder.join("server.crt"), &self.certificate)?;
        let key = folder.join("server.key");
        std::fs::write(&key, "")?;
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600))?;
        std::fs::write(&key, &self.key)?;
        programs.hand_over(&key)
    }
}
