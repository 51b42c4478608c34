//! `[server]`: listeners and region.

use std::net::SocketAddr;

use super::document::Table;

/// Where the host listens and what it says about its place.
#[derive(Debug, Clone)]
pub struct Server {
    /// The address of the API.
    pub listen: SocketAddr,
    /// The address of health checks and metrics.
    pub admin: SocketAddr,
    /// Host names, lower case, on which vault requests are refused.
    pub regional_hosts: Vec<String>,
    /// Reported in the routing metadata.
    pub region: Option<String>,
}

pub(super) fn read(table: &Table<'_>) -> Server {
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
    Server { listen, admin, regional_hosts, region: table.text("region").map(|region| region.value) }
}

/// Whether this can be the name of a host; what else it may be is for others to say.
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
