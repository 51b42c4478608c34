//! The gates in front of the vault, in a fixed order: kind of key, host name, programme, method,
//! scope and reach, whether the vault is enabled, rate limit, whether writes are enabled. A refusal
//! by one gate reveals nothing about later gates.

use cofferdam_engine::limits::rate::Taken;
use cofferdam_store::{InternId, KeyKind, Principal, VaultId, WorkspaceId};
use http::header::HOST;
use http::{HeaderMap, Method, Uri};

use crate::access::{self, Whose};
use crate::call::Call;
use crate::fault::{Fault, FieldError};
use crate::limits::rate::vault_quota;
use crate::route::{Label, VaultRoute, decode};

/// The path segment of copying, which may also be the name of a secret.
const COPY: &str = "copy";

/// A vault operation, from route and method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VaultOperation<'r> {
    /// List one page of a vault's secrets.
    List,
    /// List one page of the secrets that an intern can use: its own and those of the workspace.
    Effective,
    /// Store a secret; the name is still percent-encoded.
    Put(&'r str),
    /// Delete a secret; the name is still percent-encoded.
    Delete(&'r str),
    /// Copy secrets of the workspace to an intern.
    Copy,
}

impl<'r> VaultOperation<'r> {
    /// The operation of a method on a route; `None` if the route does not have the method.
    fn of(route: &'r VaultRoute, method: &Method) -> Option<Self> {
        let named = |name| match *method {
            Method::PUT => Some(Self::Put(name)),
            Method::DELETE => Some(Self::Delete(name)),
            _ => None,
        };
        match route {
            VaultRoute::Secret(name) | VaultRoute::InternSecret(_, name) => named(name),
            VaultRoute::Copy(_) if method == Method::POST => Some(Self::Copy),
            VaultRoute::Copy(_) => named(COPY),
            _ if !matches!(*method, Method::GET | Method::HEAD) => None,
            VaultRoute::Secrets | VaultRoute::InternSecrets(_) => Some(Self::List),
            VaultRoute::EffectiveSecrets(_) => Some(Self::Effective),
        }
    }

    /// The word for it in metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Effective => "effective",
            Self::Put(_) => "put",
            Self::Delete(_) => "delete",
            Self::Copy => "copy",
        }
    }

    fn writes(self) -> bool {
        matches!(self, Self::Put(_) | Self::Delete(_) | Self::Copy)
    }
}

/// The permit for one vault operation. Only [`pass`] creates it.
pub(super) struct VaultPermit<'r> {
    route: &'r VaultRoute,
    pub(super) operation: VaultOperation<'r>,
    /// The workspace of the key.
    pub(super) workspace: WorkspaceId,
    intern: RequestedOwner,
}

/// Whose secrets the path of a request names.
#[derive(Clone, Copy)]
enum RequestedOwner {
    Workspace,
    Malformed,
    Intern(InternId),
}

impl VaultPermit<'_> {
    /// # Errors
    ///
    /// The path does not name an intern by a UUID.
    pub(super) fn intern(&self) -> Result<InternId, Fault> {
        match self.intern {
            RequestedOwner::Intern(id) => Ok(id),
            RequestedOwner::Workspace | RequestedOwner::Malformed => {
                Err(Fault::InvalidVaultRequest(FieldError::at("internId", "must be a UUID")))
            }
        }
    }

    /// The vault that the path names: the intern's, or the workspace's if no intern is named.
    pub(super) fn vault(&self) -> Result<VaultId, Fault> {
        match self.intern {
            RequestedOwner::Workspace => Ok(VaultId::Workspace(self.workspace)),
            RequestedOwner::Malformed | RequestedOwner::Intern(_) => Ok(VaultId::Intern(self.intern()?)),
        }
    }
}

/// Checks a request against all gates.
///
/// # Errors
///
/// The fault of the first gate that refuses.
pub(super) async fn pass<'r>(call: &Call<'_>, route: &'r VaultRoute) -> Result<VaultPermit<'r>, Fault> {
    let permit = admit(call, &call.principal, route).await?;
    let live = call.app.live();
    let config = &live.config.vault;
    let (limit, per_minute) = if permit.operation.writes() {
        (&call.app.rates.vault_writes, config.writes_per_minute)
    } else {
        (&call.app.rates.vault_reads, config.reads_per_minute)
    };
    if let Some(quota) = vault_quota(per_minute) {
        limit
            .take(call.principal.key().id, quota)
            .await
            .map(Taken::keep)
            .map_err(|error| Fault::TooManyVaultRequests { wait_s: error.wait_s })?;
    }
    check_writes(call, &call.principal, permit.operation)?;
    Ok(permit)
}

/// Checks a write again before it is made, against all gates but the rate limit: its key, its role
/// or its workspace may have been restricted while its body arrived.
///
/// # Errors
///
/// The fault of the first gate that refuses now.
pub(super) async fn pass_again(call: &Call<'_>, permit: &VaultPermit<'_>) -> Result<(), Fault> {
    let principal = call.renewed().await?;
    admit(call, &principal, permit.route).await?;
    check_writes(call, &principal, permit.operation)
}

/// The gates up to the rate limit.
async fn admit<'r>(
    call: &Call<'_>,
    principal: &Principal,
    route: &'r VaultRoute,
) -> Result<VaultPermit<'r>, Fault> {
    let scope = access::check(Label::Vault, principal.key().kind);
    if matches!(scope, Err(Fault::InvalidKey)) {
        return Err(Fault::InvalidKey);
    }
    let live = call.app.live();
    if is_regional(&call.head.headers, &call.head.uri, &live.config.server.regional_hosts) {
        return Err(Fault::RegionalHost);
    }
    // A key without a workspace is refused below with `NoScope`, after the gates for programme,
    // method and kind of key.
    let workspace = principal.workspace.as_ref();
    if workspace.is_some_and(|workspace| !workspace.programme) {
        return Err(Fault::NotFound);
    }
    let operation =
        VaultOperation::of(route, &call.head.method).ok_or(Fault::WrongMethod(route.methods()))?;
    scope?;
    let workspace = workspace.ok_or(Fault::NoScope)?;
    let intern = reach(call, principal, route, operation).await?;
    if !live.config.vault.enabled {
        return Err(Fault::VaultUnavailable);
    }
    Ok(VaultPermit { route, operation, workspace: workspace.id, intern })
}

fn check_writes(call: &Call<'_>, principal: &Principal, operation: VaultOperation<'_>) -> Result<(), Fault> {
    let may_write = call.app.live().config.vault.writes
        && principal.workspace.as_ref().is_some_and(|workspace| workspace.vault_writes);
    if operation.writes() && !may_write { Err(Fault::VaultWritesDisabled) } else { Ok(()) }
}

/// What the path names, if the key reaches it. Missing secrets and secrets out of reach give the
/// same error.
async fn reach(
    call: &Call<'_>,
    principal: &Principal,
    route: &VaultRoute,
    operation: VaultOperation<'_>,
) -> Result<RequestedOwner, Fault> {
    let (named, whose) = match route {
        VaultRoute::Secrets | VaultRoute::Secret(_) => (RequestedOwner::Workspace, Some(Whose::Workspace)),
        VaultRoute::InternSecrets(written)
        | VaultRoute::InternSecret(written, _)
        | VaultRoute::Copy(written)
        | VaultRoute::EffectiveSecrets(written) => {
            match decode(written).and_then(|written| written.parse().ok()) {
                Some(id) => {
                    let intern = call.app.store.intern(id).await.map_err(Fault::unread)?;
                    let whose = access::intern(principal, intern.as_deref());
                    (RequestedOwner::Intern(id), Some(whose))
                }
                // For an intern's key, every other intern is not found, malformed ids included.
                None if principal.key().kind == KeyKind::Intern => return Err(Fault::NotFound),
                None => (RequestedOwner::Malformed, None),
            }
        }
    };
    // Copying also reads the workspace's secrets.
    let from = (operation == VaultOperation::Copy).then_some(Whose::Workspace);
    let reached = whose.into_iter().chain(from).all(|whose| access::reaches(principal, whose));
    if reached { Ok(named) } else { Err(Fault::NotFound) }
}

/// Whether the request was sent to one of the regional host names. HTTP/2 has the host in the
/// request target.
fn is_regional(headers: &HeaderMap, uri: &Uri, regional: &[String]) -> bool {
    // A host in the request target overrides the `Host` header (RFC 9112, section 3.2.2).
    let named = || headers.get(HOST).and_then(|host| host.to_str().ok());
    let Some(host) = uri.host().or_else(named) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    regional.iter().any(|region| name.trim_end_matches('.').eq_ignore_ascii_case(region))
}

#[cfg(test)]
mod tests {
    use http::header::HOST;
    use http::{HeaderMap, HeaderValue, Method, Uri};

    use super::{VaultOperation, is_regional};
    use crate::route::VaultRoute;

    #[test]
    fn regional_hosts_are_recognised_however_they_are_written() {
        let regional = ["eu.api.example.com".to_owned()];
        let cases = [
            ("eu.api.example.com", true),
            ("EU.API.example.com", true),
            ("eu.api.example.com:8080", true),
            ("eu.api.example.com.", true),
            ("api.example.com", false),
            ("x.eu.api.example.com", false),
            ("[::1]:8080", false),
        ];
        for (host, expected) in cases {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            assert_eq!(is_regional(&headers, &Uri::from_static("/"), &regional), expected, "{host}");
        }
        let target = Uri::from_static("http://eu.api.example.com:8080/v1/vault/secrets");
        assert!(is_regional(&HeaderMap::new(), &target, &regional));
        let other = HeaderMap::from_iter([(HOST, HeaderValue::from_static("api.example.com"))]);
        assert!(is_regional(&other, &target, &regional));
    }

    #[test]
    fn vault_operations_exist_for_exactly_the_methods_of_each_route() {
        let text = || "x".to_owned();
        let routes = [
            VaultRoute::Secrets,
            VaultRoute::Secret(text()),
            VaultRoute::InternSecrets(text()),
            VaultRoute::InternSecret(text(), text()),
            VaultRoute::Copy(text()),
            VaultRoute::EffectiveSecrets(text()),
        ];
        for route in routes {
            for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get"] {
                let method: Method = method.parse().unwrap();
                let named = route.methods().contains(&method);
                assert_eq!(VaultOperation::of(&route, &method).is_some(), named, "{route:?} {method}");
            }
        }
    }

    #[test]
    fn a_secret_may_be_called_copy() {
        let route = VaultRoute::Copy("x".to_owned());
        assert_eq!(VaultOperation::of(&route, &Method::POST), Some(VaultOperation::Copy));
        assert_eq!(VaultOperation::of(&route, &Method::PUT), Some(VaultOperation::Put("copy")));
        assert_eq!(VaultOperation::of(&route, &Method::DELETE), Some(VaultOperation::Delete("copy")));
    }
}
