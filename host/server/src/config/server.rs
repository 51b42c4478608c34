//! `[server]`: listeners and region.

use std::net::SocketAddr;
use std::path::PathBuf;

use cofferdam_egress::IpRange;
use cofferdam_engine::timeline::RECORDED_MAX;

use super::document::{ConfigSpan, Table};

/// The longest host name, and the longest label of one.
const HOST_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

#[derive(Debug, Clone)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    pub admin: SocketAddr,
    /// Host names in lower case on which vault requests are refused.
    pub regional_hosts: Vec<String>,
    /// Names by which operators reach the console and the admin API, in lower case.
    pub admin_hosts: Vec<String>,
    /// Reported in the routing metadata.
    pub region: Option<String>,
    /// Address ranges of proxies whose `Forwarded` or `X-Forwarded-For` headers are trusted.
    pub trusted_proxies: Vec<IpRange>,
    /// How many finished requests are kept with their steps.
    pub recorder: usize,
    /// With it both listeners speak TLS only.
    pub tls: Option<TlsFiles>,
}

/// `[server.tls]`: the PEM files of the certificate and of its key.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub certificate: NamedFile,
    pub key: NamedFile,
}

/// A file and the position where the configuration names it.
#[derive(Debug, Clone)]
pub struct NamedFile {
    pub path: PathBuf,
    pub place: ConfigSpan,
}

pub(super) fn read(table: &Table<'_>) -> ServerConfig {
    let regional_hosts = host_names(table, "regional_hosts");
    let admin_hosts = host_names(table, "admin_hosts");
    let (listen, admin) = (address(table, "listen"), address(table, "admin"));
    if listen == admin && listen.port() != 0 {
        table.value("admin", ()).reject("`listen` has this address already");
    }
    let mut trusted_proxies = Vec::new();
    for range in table.texts("trusted_proxies") {
        match range.value.parse() {
            Ok(parsed) => trusted_proxies.push(parsed),
            Err(error) => range.reject(format!("expected an address range such as 10.0.0.0/8: {error}")),
        }
    }
    let region = table.text("region").map(|region| region.value);
    let recorder = table.integer("recorder", 0..=RECORDED_MAX as u64).unwrap_or(0) as usize;
    ServerConfig {
        listen,
        admin,
        regional_hosts,
        admin_hosts,
        region,
        trusted_proxies,
        recorder,
        tls: tls(table),
    }
}

fn host_names(table: &Table<'_>, key: &str) -> Vec<String> {
    let mut names = Vec::new();
    for host in table.texts(key) {
        match host_name(&host.value) {
            Some(name) => names.push(name),
            None => host.reject(NOT_A_HOST_NAME),
        }
    }
    names
}

/// The files themselves are read by `crate::tls`, so that commands that do not serve need no right to the key.
fn tls(server: &Table<'_>) -> Option<TlsFiles> {
    server.names().iter().find(|name| name.value == "tls")?;
    let table = server.table("tls");
    let file = |key| {
        let written = table.required_text(key);
        NamedFile { path: table.directory().join(&written.value), place: written.place() }
    };
    Some(TlsFiles { certificate: file("certificate"), key: file("key") })
}

/// The mistake of a text that is no [`host_name`].
pub(super) const NOT_A_HOST_NAME: &str = "expected a host name without scheme and port, such as api.example.com; names outside ASCII are written in \
     their `xn--` form";

/// A host name in lower case and without a final dot; `None` for a text that the name in a request can
/// never be equal to.
pub(super) fn host_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_label = |label: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.len() <= LABEL_BYTES_MAX && label.bytes().all(is_known)
    };
    (name.len() <= HOST_BYTES_MAX && name.split('.').all(is_label)).then_some(name)
}

fn address(table: &Table<'_>, key: &str) -> SocketAddr {
    let written = table.required_text(key);
    written.value.parse().unwrap_or_else(|_| {
        written.reject("expected an address with a port, such as 127.0.0.1:8080 or [::1]:8080");
        SocketAddr::from(([127, 0, 0, 1], 0))
    })
}
