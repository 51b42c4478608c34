//! Decides which secrets are sent with a request, and where each is placed (egress rules R1 to R4).
//!
//! There are three sources, in this order. Injections of the grant are added to every request to
//! their host. The guest may name granted secrets: in its `injections`, or by placeholders in
//! headers that the grant allows. If neither applies, a granted secret without an injection is sent
//! as `authorization: Bearer`, when the caller has bound it to this host.

use cofferdam_egress::{GuestRequest, PlacedSecret, Placement, Reason, SECRETS_MAX, placeholders};
use cofferdam_store::{HostName, RequestRefusal, SecretName};

use super::{Grant, HostAccess, UnsentRequest};
use crate::wire;

/// The secrets of one request.
#[derive(Debug, PartialEq, Eq)]
pub struct SecretPlan {
    /// Either all of these are sent, or the request is not sent.
    pub secrets: Vec<PlacedSecret>,
    /// If neither grant nor guest places a secret: the secrets without a configured place. The one
    /// that is bound to the host is sent, see [`SecretPlan::place`].
    pub unplaced: Vec<SecretName>,
    /// Whether the request may reach public addresses only, because the operator did not name the
    /// host.
    pub public_only: bool,
}

impl Grant {
    /// Decides which secrets are sent with a request of the guest, and where each is placed.
    ///
    /// # Errors
    ///
    /// The host is not granted, the guest names a secret or a place that it may not use, or its
    /// request is malformed.
    pub fn plan(
        &self,
        request: &GuestRequest,
        injections: &[wire::Injection],
    ) -> Result<SecretPlan, UnsentRequest> {
        let (host, access) = self.host(request)?;
        if injections.len() > SECRETS_MAX {
            return Err(Reason::TooManySecrets.into());
        }
        let mut secrets = Vec::new();
        for rule in self.injections.iter().filter(|rule| rule.host == *host) {
            let (secret, placement) = (rule.secret.clone(), rule.placement.clone());
            add(&mut secrets, PlacedSecret { secret, placement });
        }
        for injection in injections {
            add(&mut secrets, named(self, host, injection)?);
        }
        for found in placeholders(request)? {
            let secret = granted(self, found.secret)?;
            let text = format!("{{{{secret:{secret}}}}}");
            let placement = placeholder(self, &secret, found.header.as_str(), &text)?;
            add(&mut secrets, PlacedSecret { secret, placement });
        }
        let public_only = access == HostAccess::Public;
        if let (Some(first), true) = (secrets.first(), public_only) {
            let line = self.line_for_host(host);
            let log = format!("secrets go to hosts granted by name only; to allow it: {line}");
            return Err(UnsentRequest::denied(RequestRefusal::HostNotNamed, Some(first.secret.clone()), log));
        }
        let is_silent = secrets.is_empty() && !public_only;
        let unplaced = if is_silent { self.unplaced_secrets().cloned().collect() } else { Vec::new() };
        Ok(SecretPlan { secrets, unplaced, public_only })
    }

    /// The host of a request, if it is granted. An IP address never is.
    fn host<'r>(&self, request: &'r GuestRequest) -> Result<(&'r HostName, HostAccess), UnsentRequest> {
        let denied = |log| UnsentRequest::denied(RequestRefusal::HostNotGranted, None, log);
        let Some(host) = request.target.host_name() else {
            return Err(denied("hosts are granted by name, and this is an address".to_owned()));
        };
        let access = self.hosts.access(host).ok_or_else(|| {
            denied(format!("the host is not granted; to allow it: {}", self.line_for_host(host)))
        })?;
        Ok((host, access))
    }

    /// Granted secrets without an injection.
    pub(super) fn unplaced_secrets(&self) -> impl Iterator<Item = &SecretName> {
        self.secrets.iter().filter(|name| !self.injections.iter().any(|rule| rule.secret == **name))
    }
}

impl SecretPlan {
    /// Places the unplaced secret that is bound to the host. `bound` are all that are.
    ///
    /// # Errors
    ///
    /// There is more than one such secret.
    pub fn place(&mut self, mut bound: Vec<SecretName>, host: &HostName) -> Result<(), UnsentRequest> {
        let Some(secret) = bound.pop() else { return Ok(()) };
        if let Some(other) = bound.pop() {
            let log = format!(
                "{other} and {secret} are both bound to {host}: say which goes where with `injections` in the \
                 configuration of the plugin"
            );
            return Err(UnsentRequest::denied(RequestRefusal::Ambiguous, Some(secret), log));
        }
        self.secrets
            .push(PlacedSecret { secret, placement: Placement::header("authorization", "Bearer {}")? });
        Ok(())
    }
}

/// Adds an injection once: the guest may repeat one of the grant.
fn add(secrets: &mut Vec<PlacedSecret>, placed: PlacedSecret) {
    if !secrets.contains(&placed) {
        secrets.push(placed);
    }
}

/// The secret and the place that a guest's injection names. The place must be `authorization` or a
/// header that the grant opens to placeholders: any other header could be one that the host shows
/// to third parties. A secret that has an injection in the grant may be placed only there.
fn named(grant: &Grant, host: &HostName, injection: &wire::Injection) -> Result<PlacedSecret, UnsentRequest> {
    let unknown = || unavailable(None, "the guest names a secret that cannot exist".to_owned());
    let secret = granted(grant, injection.secret.parse().map_err(|_| unknown())?)?;
    let placement = match &injection.placement {
        wire::Placement::Header((name, before, after)) => {
            let placement = Placement::credential_header(name, &format!("{before}{{}}{after}"))?;
            let name = name.to_ascii_lowercase();
            let mut placed = grant.injections.iter().filter(|rule| rule.secret == secret).peekable();
            let is_open = match placed.peek() {
                Some(_) => placed.any(|rule| rule.host == *host && rule.placement == placement),
                None => name == "authorization" || grant.placeholder_headers.contains(&name),
            };
            if !is_open {
                let line = grant.line_for_header(&name);
                let log = format!(
                    "the guest may not put {secret} into {name}; to allow it: {line}, or an injection of the secret"
                );
                return Err(UnsentRequest::denied(RequestRefusal::PlaceNotGranted, Some(secret), log));
            }
            placement
        }
        wire::Placement::Query(name) => {
            // Query strings end up in logs, so only the grant may place a secret there
            // (egress rule R3).
            Placement::query(name)?;
            let log = format!(
                "a guest may not put {secret} into the query itself; to allow it: injections = \
                 [{{ secret = \"{secret}\", host = \"...\", query = {name:?} }}]"
            );
            return Err(UnsentRequest::denied(RequestRefusal::PlaceNotGranted, Some(secret), log));
        }
        wire::Placement::HeaderPlaceholder((header, text)) => placeholder(grant, &secret, header, text)?,
    };
    Ok(PlacedSecret { secret, placement })
}

/// The place of a placeholder that a guest wrote. A secret that has an injection in the grant may be
/// placed only there.
fn placeholder(
    grant: &Grant,
    secret: &SecretName,
    header: &str,
    text: &str,
) -> Result<Placement, UnsentRequest> {
    let header = header.to_ascii_lowercase();
    let placement = Placement::placeholder(&header, text)?;
    if grant.injections.iter().any(|rule| rule.secret == *secret) {
        let log = format!("{secret} goes only where the injections of the grant put it, not into {header}");
        return Err(UnsentRequest::denied(RequestRefusal::PlaceNotGranted, Some(secret.clone()), log));
    }
    if !grant.placeholder_headers.contains(&header) {
        let line = grant.line_for_header(&header);
        let log = format!("the guest may not write placeholders into {header}; to allow it: {line}");
        return Err(UnsentRequest::denied(RequestRefusal::PlaceNotGranted, None, log));
    }
    Ok(placement)
}

/// Checks that the secret is granted. The guest gets the same error for a secret that is not
/// granted and for one that does not exist (egress rule R2).
fn granted(grant: &Grant, secret: SecretName) -> Result<SecretName, UnsentRequest> {
    if grant.secrets.contains(&secret) {
        return Ok(secret);
    }
    let log = format!("the secret is not granted; to allow it: {}", grant.line_for_secret(&secret));
    Err(unavailable(Some(secret), log))
}

fn unavailable(secret: Option<SecretName>, log: String) -> UnsentRequest {
    UnsentRequest::unavailable(RequestRefusal::SecretNotGranted, secret, log)
}
