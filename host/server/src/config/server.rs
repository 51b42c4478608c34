//! `[server]`: listeners and region.

use std::net::SocketAddr;

use cofferdam_egress::IpRange;
use cofferdam_engine::timeline::RECORDED_MAX;

use super::document::Table;

#[derive(Debug, Clone)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    pub admin: SocketAddr,
    /// Host names in lower case on which vault requests are refused.
    pub regional_hosts: Vec<String>,
    /// Reported in the routing metadata.
    pub region: Option<String>,
    /// Address ranges of proxies whose `Forwarded` or `X-Forwarded-For` headers are trusted.
    pub trusted_proxies: Vec<IpRange>,
    /// How many finished requests are kept with their steps.
    pub recorder: usize,
}

pub(super) fn read(table: &Table<'_>) -> ServerConfig {
    let mut regional_hosts = Vec::new();
    for host in table.texts("regional_hosts") {
        if !is_host_name(&host.value) {
            host.reject("expected a host name without scheme and port");
        }
        regional_hosts.push(host.value.trim_end_matches('.').to_ascii_lowercase());
    }
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
    ServerConfig { listen, admin, regional_hosts, region, trusted_proxies, recorder }
}

/// A quick check that the text is not a URL, an address with a port or a pattern.
pub(super) fn is_host_name(text: &str) -> bool {
    !text.is_empty() && !text.contains([':', '/', ' ', '*'])
}

fn address(table: &Table<'_>, key: &str) -> SocketAddr {
    let written = table.required_text(key);
    written.value.parse().unwrap_or_else(|_| {
        written.reject("expected an address with a port, such as 127.0.0.1:8080 or [::1]:8080");
        SocketAddr::from(([127, 0, 0, 1], 0))
    })
}
