//! What the machine gives the process: open files, address space, the compile cache and addresses
//! to listen on.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use cofferdam_runtime::Runtime;
use rustix::process::{Resource, getrlimit};
use tokio::net::TcpStream;

use super::{CheckFinding, Installation};
use crate::app::Addresses;

/// How long a connection to the host's own listener may take.
const CONNECT_TIME: Duration = Duration::from_secs(2);

/// The limit of open files against the limits of the configuration: each connection is an open
/// file, and its request to a provider may be another.
pub(super) fn open_files(installation: &Installation<'_>) -> CheckFinding {
    const ID: &str = "open-files";
    let limits = &installation.config.limits;
    let wanted = (limits.connections + limits.streams) as u64;
    // A host raises its limit to the hard limit when it starts.
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let found = format!("{allowed} allowed, limits.connections and limits.streams ask for {wanted}");
    if allowed < wanted {
        let remedy =
            "raise the hard limit (`LimitNOFILE` of systemd, `ulimit -Hn`), or lower limits.connections";
        return CheckFinding::bad(ID, "open files", found, remedy);
    }
    let found = if allowed == u64::MAX { format!("no limit, {wanted} wanted") } else { found };
    CheckFinding::ok(ID, "open files", found)
}

pub(super) fn address_space(runtime: &Runtime) -> CheckFinding {
    const ID: &str = "address-space";
    let gauges = runtime.gauges();
    let (max, wanted) = (gauges.instances_max, gauges.instances_wanted);
    let remedy =
        "remove the limit of address space (`ulimit -v`, `LimitAS` of systemd), or lower limits.streams";
    if !gauges.pooled {
        let found = "too small for a pool of sandboxes: each one is made anew, which is slow";
        CheckFinding::bad(ID, "address space", found, remedy)
    } else if max < wanted {
        CheckFinding::bad(ID, "address space", format!("room for {max} sandboxes of {wanted}"), remedy)
    } else {
        CheckFinding::ok(ID, "address space", format!("room for {max} sandboxes"))
    }
}

pub(super) fn compile_cache(runtime: &Runtime, installation: &Installation<'_>) -> CheckFinding {
    const ID: &str = "compile-cache";
    let directory = crate::start::cache_directory(&installation.options.data);
    let shown = directory.display();
    match runtime.cache_problem() {
        None => CheckFinding::ok(ID, "compile cache", format!("{shown} is used")),
        Some(problem) => CheckFinding::warn(
            ID,
            "compile cache",
            format!("{shown} is not used, so every start compiles all plugins: {problem}"),
            "make it a directory of mode 0700 of the user that runs the host, or name another in COFFERDAM_CACHE",
        ),
    }
}

/// The addresses of the configuration, or those of the running host.
pub(super) async fn listeners(installation: &Installation<'_>) -> Vec<CheckFinding> {
    let server = &installation.config.server;
    let findings = match installation.at {
        None => [free("server.listen", server.listen), free("server.admin", server.admin)],
        Some(Addresses { listen, admin, .. }) => {
            [answers("server.listen", listen).await, answers("server.admin", admin).await]
        }
    };
    let mut findings = Vec::from(findings);
    let configured = Addresses { listen: server.listen, admin: server.admin, is_tls: server.tls.is_some() };
    let Addresses { listen, admin, is_tls } = installation.at.unwrap_or(configured);
    if !is_tls && !listen.ip().is_loopback() && server.trusted_proxies.is_empty() {
        findings.push(CheckFinding::warn(
            "listener",
            "server.listen",
            format!("keys and content travel unencrypted to {listen}"),
            "set [server.tls], or let a proxy that ends TLS reach it and name it in server.trusted_proxies, or listen on loopback",
        ));
    }
    if !admin.ip().is_loopback() {
        findings.push(CheckFinding::warn(
            "listener",
            "server.admin",
            format!("health and metrics are open to all that reach {admin}"),
            "let a firewall close it, or listen on loopback",
        ));
    }
    findings
}

/// Whether a host could listen there now.
fn free(key: &'static str, address: SocketAddr) -> CheckFinding {
    const ID: &str = "listener";
    let failed =
        |found: &str, remedy: String| CheckFinding::bad(ID, key, format!("{address}: {found}"), remedy);
    match TcpListener::bind(address) {
        Ok(_) => CheckFinding::ok(ID, key, format!("{address} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            failed("another program listens there", format!("end that program, or set {key} to another port"))
        }
        Err(error) => failed(&error.to_string(), format!("set {key} to an address and port of this machine")),
    }
}

/// Whether the running host can be reached there.
async fn answers(key: &'static str, address: SocketAddr) -> CheckFinding {
    const ID: &str = "listener";
    match tokio::time::timeout(CONNECT_TIME, TcpStream::connect(Addresses::reachable(address))).await {
        Ok(Ok(_)) => CheckFinding::ok(ID, key, format!("this host listens on {address}")),
        Ok(Err(error)) => {
            let remedy = "look at the firewall of this machine, then start the host again";
            CheckFinding::bad(
                ID,
                key,
                format!("{address} cannot be reached from this machine: {error}"),
                remedy,
            )
        }
        Err(_) => {
            let remedy = "all of limits.connections may be taken: look at the log, or start the host again";
            CheckFinding::bad(ID, key, format!("{address} does not take a connection"), remedy)
        }
    }
}
