//! `[egress]`: which addresses requests of guests may reach, and how names are resolved.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use cofferdam_egress::{EgressConfig, are_roots};

use super::document::Table;
use super::server::{NOT_A_HOST_NAME, host_name};

/// The maximum size of a file of root certificates.
const ROOTS_BYTES_MAX: usize = 4 * 1024 * 1024;

pub(super) fn read(table: &Table<'_>, connect_timeout: Duration) -> EgressConfig {
    let mut allow_private = Vec::new();
    for range in table.texts("allow_private") {
        match range.value.parse() {
            Ok(parsed) => allow_private.push(parsed),
            Err(_) => range.reject("expected an address range such as 10.0.0.0/8 or fd00::/8"),
        }
    }
    EgressConfig {
        ports: table.ports("ports").unwrap_or_else(|| vec![443]),
        roots: roots(table),
        allow_private,
        allow_plaintext_loopback: table.flag("allow_plaintext_loopback"),
        resolve: resolve(table),
        nameservers: nameservers(table),
        // Set by `serve`, because the command line can change the addresses.
        own_ports: Vec::new(),
        connect_timeout,
    }
}

/// The files of the key `roots`.
pub(super) fn roots(table: &Table<'_>) -> Vec<Vec<u8>> {
    let mut roots = Vec::new();
    for file in table.texts("roots") {
        match std::fs::read(table.directory().join(&file.value)) {
            Ok(pem) if pem.len() > ROOTS_BYTES_MAX => file.reject("this file is too long for certificates"),
            Ok(pem) if !are_roots(&pem) => {
                file.reject(format!("{} is not a PEM file of root certificates", file.value));
            }
            Ok(pem) => roots.push(pem),
            Err(cause) => file.reject(format!("cannot read {}: {cause}", file.value)),
        }
    }
    roots
}

fn resolve(table: &Table<'_>) -> BTreeMap<String, Vec<IpAddr>> {
    let mut resolve = BTreeMap::new();
    for (name, written) in table.table("resolve").lists_by_name() {
        let mut addresses = Vec::new();
        for address in &written {
            match address.value.parse() {
                Ok(parsed) => addresses.push(parsed),
                Err(_) => address.reject("expected an IP address"),
            }
        }
        if written.is_empty() {
            name.reject("expected a list with at least one IP address");
        }
        match host_name(&name.value) {
            Some(name) => drop(resolve.insert(name, addresses)),
            None => name.reject(NOT_A_HOST_NAME),
        }
    }
    resolve
}

fn nameservers(table: &Table<'_>) -> Vec<SocketAddr> {
    let mut servers = Vec::new();
    for server in table.texts("nameservers") {
        let bare = server.value.parse::<IpAddr>().map(|address| SocketAddr::new(address, 53));
        match server.value.parse().or(bare) {
            Ok(address) => servers.push(address),
            Err(_) => server.reject("expected an IP address, with or without a port"),
        }
    }
    servers
}
