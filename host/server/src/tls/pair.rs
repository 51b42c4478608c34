//! Reads a certificate with its key, and checks that they can be served together.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::certificate::CertificateFacts;
use crate::config::{ConfigError, NamedFile, Problem, TlsFiles};

/// The maximum size of each of the two files.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// The most certificates of a chain. Clients refuse longer ones.
const CHAIN_MAX: usize = 16;
/// Modes of a key file with one of these bits are warned of: users outside its group can read it, or its group can
/// change it.
const OPEN_MODE: u32 = 0o027;

/// The bytes of both files.
pub(crate) struct PairBytes {
    certificate: Zeroizing<Vec<u8>>,
    key: Zeroizing<Vec<u8>>,
    key_mode: u32,
}

/// A certificate and its key, ready to be served.
pub(crate) struct CertificatePair {
    files: TlsFiles,
    facts: CertificateFacts,
    settings: Arc<ServerConfig>,
    digest: [u8; 32],
    key_mode: u32,
}

impl PairBytes {
    /// # Errors
    ///
    /// One of the files cannot be read.
    pub(crate) fn read(files: &TlsFiles) -> Result<Self, Problem> {
        let (certificate, _) = bytes(&files.certificate)?;
        let (key, metadata) = bytes(&files.key)?;
        Ok(Self { certificate, key, key_mode: metadata.permissions().mode() & 0o7777 })
    }

    /// Tells this content from any other.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update((self.certificate.len() as u64).to_be_bytes());
        digest.update(&self.certificate);
        digest.update(&self.key);
        digest.finalize().into()
    }
}

impl CertificatePair {
    /// # Errors
    ///
    /// See [`Self::check`]; or a file cannot be read.
    pub(crate) fn read(files: &TlsFiles) -> Result<Self, ConfigError> {
        let read = PairBytes::read(files).and_then(|bytes| Self::check(files, &bytes));
        read.map_err(|problem| ConfigError::Invalid(vec![problem]))
    }

    /// # Errors
    ///
    /// A file has no PEM of its kind, a certificate or the key does not parse, or they do not belong together.
    pub(crate) fn check(files: &TlsFiles, bytes: &PairBytes) -> Result<Self, Problem> {
        let chain = chain(files, &bytes.certificate)?;
        let facts = CertificateFacts::of(&chain).map_err(|(number, error)| {
            wrong(
                &files.certificate,
                format!("certificate {number} of {} cannot be read: {error}", shown(&files.certificate)),
            )
        })?;
        let key = private_key(files, &bytes.key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certified =
            CertifiedKey::from_der(chain, key, &provider).map_err(|error| refused(files, &error))?;
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(files, &error))?;
        let certified = Arc::new(SingleCertAndKey::from(certified));
        let mut settings = builder.with_no_client_auth().with_cert_resolver(certified);
        settings.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let (digest, key_mode) = (bytes.digest(), bytes.key_mode);
        Ok(Self { files: files.clone(), facts, settings: Arc::new(settings), digest, key_mode })
    }

    /// Refuses a certificate that is not valid at this time: it must not replace one that is.
    ///
    /// # Errors
    ///
    /// It has expired, or its time has not come.
    pub(crate) fn valid_at(self, now_s: i64) -> Result<Self, Problem> {
        match self.facts.not_valid_at(now_s) {
            None => Ok(self),
            Some(trouble) => {
                Err(wrong(&self.files.certificate, format!("{}: {trouble}", shown(&self.files.certificate))))
            }
        }
    }

    pub(crate) fn files(&self) -> &TlsFiles {
        &self.files
    }

    pub(crate) fn facts(&self) -> &CertificateFacts {
        &self.facts
    }

    pub(crate) fn settings(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.settings)
    }

    /// Whether these are the bytes that this pair was read from.
    pub(crate) fn is_of(&self, digest: &[u8; 32]) -> bool {
        self.digest == *digest
    }

    /// Whether the other pair was read from the same bytes at the same paths.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.files.certificate.path == other.files.certificate.path
            && self.files.key.path == other.files.key.path
            && self.digest == other.digest
    }

    /// The permissions of the key file if too many users have some.
    pub(crate) fn open_mode(&self) -> Option<u32> {
        (self.key_mode & OPEN_MODE != 0).then_some(self.key_mode)
    }

    pub(super) fn warn_of_mode(&self) {
        if let Some(mode) = self.open_mode() {
            let (file, mode) = (self.files.key.path.display(), format!("{mode:04o}"));
            tracing::warn!(%file, mode, "other users can read or change the key of the certificate: chmod 600");
        }
    }
}

fn shown(file: &NamedFile) -> std::path::Display<'_> {
    file.path.display()
}

fn wrong(file: &NamedFile, message: String) -> Problem {
    Problem { place: file.place.clone(), message }
}

/// Reads a file into memory that is wiped.
fn bytes(file: &NamedFile) -> Result<(Zeroizing<Vec<u8>>, Metadata), Problem> {
    let failed = |error: io::Error| wrong(file, format!("cannot read {}: {error}", shown(file)));
    let metadata = regular(&file.path).map_err(failed)?;
    if metadata.len() > FILE_BYTES_MAX {
        return Err(wrong(file, format!("{} has more than {} KiB", shown(file), FILE_BYTES_MAX >> 10)));
    }
    // Allocated at full size: a buffer that grows would leave copies of the key behind.
    let size = usize::try_from(metadata.len()).unwrap_or(0) + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(size));
    let open = File::open(&file.path).map_err(failed)?;
    open.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok((bytes, metadata))
}

/// Opening anything but a file could wait without end.
fn regular(path: &Path) -> io::Result<Metadata> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_file() { Ok(metadata) } else { Err(io::Error::other("it is not a file")) }
}

fn chain(files: &TlsFiles, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let file = &files.certificate;
    let read: Result<Vec<_>, PemError> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = read.map_err(|error| wrong(file, format!("{} is not valid PEM: {error}", shown(file))))?;
    let der = || if pem.first() == Some(&0x30) { ", it seems to be DER" } else { "" };
    match chain.len() {
        0 => Err(wrong(
            file,
            format!(
                "{} has no certificate in PEM form, `-----BEGIN CERTIFICATE-----`{}; `openssl x509 -inform der -in FILE` \
                 writes one from DER",
                shown(file),
                der()
            ),
        )),
        1..=CHAIN_MAX => Ok(chain),
        count => Err(wrong(
            file,
            format!("{} has {count} certificates, at most {CHAIN_MAX} are served", shown(file)),
        )),
    }
}

fn private_key(files: &TlsFiles, pem: &[u8]) -> Result<PrivateKeyDer<'static>, Problem> {
    let file = &files.key;
    let text = String::from_utf8_lossy(pem);
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        let mend = "write it without a passphrase: `openssl pkey -in FILE -out NEW`, mode 0600";
        return Err(wrong(file, format!("the key in {} is encrypted; {mend}", shown(file))));
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        let message = match error {
            PemError::NoItemsFound => {
                "has no private key in PEM form (PKCS#8, PKCS#1 or SEC1), such as `-----BEGIN PRIVATE KEY-----`".to_owned()
            }
            // Errors of the parser can quote the file.
            _ => "is not valid PEM".to_owned(),
        };
        wrong(file, format!("{} {message}", shown(file)))
    })
}

/// Why the library does not serve the pair.
fn refused(files: &TlsFiles, error: &rustls::Error) -> Problem {
    match error {
        rustls::Error::InconsistentKeys(_) => wrong(
            &files.key,
            format!(
                "{} is not the key of the first certificate in {}; the server's own certificate comes first, then those \
                 of its issuers",
                shown(&files.key),
                shown(&files.certificate)
            ),
        ),
        rustls::Error::InvalidCertificate(_) => {
            wrong(&files.certificate, format!("{} cannot be served: {error}", shown(&files.certificate)))
        }
        _ => wrong(
            &files.key,
            format!(
                "the key in {} cannot be used: RSA of 2048 to 8192 bits, ECDSA P-256 or P-384, and Ed25519 can be",
                shown(&files.key)
            ),
        ),
    }
}
