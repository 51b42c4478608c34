//! `/v1/vault/...`: the gates in front of the vault, in their fixed order: host
//! name, programme, method, scope. Behind them is nothing yet: whoever may come
//! in is told that the vault is unavailable.

use cofferdam_store::KeyKind;
use http::header::HOST;
use http::{HeaderMap, Response, Uri};

use crate::access;
use crate::answer::Body;
use crate::handle::Call;
use crate::reply::Fault;
use crate::route::{Label, Route, VaultRoute};

pub(crate) fn answer(call: &Call<'_>, route: &VaultRoute) -> Result<Response<Body>, Fault> {
    let denied = access::check(Label::Vault, call.principal.kind()).err();
    if matches!(denied, Some(Fault::InvalidVaultKey)) {
        return Err(Fault::InvalidVaultKey);
    }
    let live = call.app.live();
    if is_regional(&call.head.headers, &call.head.uri, &live.config.server.regional_hosts) {
        return Err(Fault::RegionalVault);
    }
    if !in_programme(call) {
        return Err(Fault::NotFound);
    }
    let methods = Route::Vault(route.clone()).methods();
    if !methods.contains(&call.head.method) {
        return Err(Fault::WrongMethod(methods));
    }
    if let Some(denied) = denied {
        return Err(denied);
    }
    if call.principal.kind() == KeyKind::Intern && !is_own(call, route) {
        return Err(Fault::NotFound);
    }
    Err(Fault::VaultUnavailable)
}

/// True unless the key has a workspace that is outside the programme. A key
/// without one is told so in a later step.
fn in_programme(call: &Call<'_>) -> bool {
    let Some(id) = call.principal.workspace() else { return true };
    call.app.store.directory().workspace(id).is_some_and(|workspace| workspace.programme)
}

/// True when the route belongs to the intern itself. Copying does not: it would
/// hand any secret of the workspace to the intern that asks.
fn is_own(call: &Call<'_>, route: &VaultRoute) -> bool {
    let written = match route {
        VaultRoute::InternSecrets(id)
        | VaultRoute::InternSecret(id, _)
        | VaultRoute::EffectiveSecrets(id) => id,
        VaultRoute::Secrets | VaultRoute::Secret(_) | VaultRoute::Copy(_) => return false,
    };
    call.principal.intern().is_some_and(|own| own.to_string().eq_ignore_ascii_case(written))
}

/// True when the request came in on one of the regional host names. HTTP/2 names
/// the host in the request target.
fn is_regional(headers: &HeaderMap, uri: &Uri, regional: &[String]) -> bool {
    let named = headers.get(HOST).and_then(|host| host.to_str().ok());
    let Some(host) = named.or_else(|| uri.host()) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    regional.iter().any(|region| name.trim_end_matches('.').eq_ignore_ascii_case(region))
}

#[cfg(test)]
mod tests {
    use http::header::HOST;
    use http::{HeaderMap, HeaderValue, Uri};

    use super::is_regional;

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
    }
}
