//! Who reaches the console and the admin API: the name that the browser used for this host, and the
//! bearer of the request.

use http::header::HOST;
use http::{HeaderMap, Uri};

use super::fault::AdminFault;
use crate::app::App;
use crate::auth::{self, NoToken};
use crate::operators::Refused;

/// Checks the name by which the client calls this host. A page of another site whose name was made
/// to point at this address (DNS rebinding) still sends its own name.
pub(super) fn check_host(app: &App, headers: &HeaderMap, uri: &Uri) -> Result<(), AdminFault> {
    let at = app.addresses();
    let bound = at.admin.ip();
    if !at.has_console() {
        return Err(AdminFault::NeedsTls);
    }
    let named = uri.authority().map(|authority| authority.host().to_owned());
    let named = named.or_else(|| host_of(headers)).ok_or(AdminFault::OtherHost)?;
    let name = named.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    let live = app.live();
    let is_own = name.eq_ignore_ascii_case("localhost")
        || name.parse().is_ok_and(|address: std::net::IpAddr| address == bound || address.is_loopback())
        || live.config.server.admin_hosts.iter().any(|host| host.eq_ignore_ascii_case(name));
    if is_own { Ok(()) } else { Err(AdminFault::OtherHost) }
}

/// The host name of the only `Host` header, without its port.
fn host_of(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(HOST).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let authority: http::uri::Authority = value.to_str().ok()?.parse().ok()?;
    // User information before the host is no part of a `Host` header.
    (!authority.as_str().contains('@')).then(|| authority.host().to_owned())
}

/// The bearer of a request, if it is accepted.
pub(super) fn check_bearer<'r>(app: &App, headers: &'r HeaderMap) -> Result<&'r str, AdminFault> {
    let token = auth::token(headers).map_err(|missing| match missing {
        NoToken::Missing => AdminFault::NoBearer,
        NoToken::Malformed => AdminFault::Refused(Refused::Wrong),
    })?;
    app.operators.check(token).map_err(AdminFault::Refused)?;
    Ok(token)
}
