//! `http` and `http-stream` of a case. Grant, places of secrets and the rules for requests are those
//! of a serving host, and an answer is searched for the values of the secrets as there.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_egress::{CheckedRequest, GuestRequest, PlacedSecret};
use cofferdam_engine::{BoundedRequest, redirected};
use cofferdam_runtime::services::{HttpAccess, HttpExchange, Opening};
use cofferdam_runtime::wire::{self, HttpError, HttpRequest, HttpResponse};
use cofferdam_runtime::{Grant, UnsentRequest};
use cofferdam_store::{RequestRefusal, SecretName};
use serde_json::Value;

use super::ScriptedImports;
use crate::plugin_kit::cases::{HttpScript, ScriptedAnswer, ScriptedReply, difference};

impl HttpAccess for ScriptedImports {
    fn send<'a>(
        &'a self,
        _plugin: &'a str,
        grant: &'a Grant,
        request: HttpRequest,
    ) -> Opening<'a, Result<HttpResponse, HttpError>> {
        Box::pin(ready(self.reach(grant, request)))
    }

    fn open<'a>(
        self: Arc<Self>,
        _plugin: &'a str,
        grant: &'a Grant,
        request: HttpRequest,
    ) -> Opening<'a, Result<HttpExchange, HttpError>> {
        Box::pin(ready(self.reach(grant, request).map(HttpExchange::from)))
    }
}

impl ScriptedImports {
    /// Answers a request, and follows redirects as a serving host does.
    fn reach(&self, grant: &Grant, written: HttpRequest) -> Result<HttpResponse, HttpError> {
        if let Some(error) = self.every_request {
            return Err(error);
        }
        let (url, time) = (written.url.clone(), Duration::from_millis(written.timeout_ms.into()));
        let bounded = BoundedRequest::of(written, time).map_err(|refused| self.refused(&url, &refused))?;
        let BoundedRequest { request, injections, redirects } = bounded;
        let mut checked = self.admit(grant, request, &injections)?;
        for _ in 0..redirects {
            if !checked.secrets().is_empty() {
                break;
            }
            let reply = self.exchange(&checked)?;
            let next = redirected(checked.request(), reply.status, &reply.headers);
            let next = next.map_err(|error| self.refused(&url, &error.into()))?;
            let Some(next) = next else { return response(&checked, reply) };
            let next = self.admit(grant, next, &[])?;
            if !next.secrets().is_empty() {
                return response(&checked, reply);
            }
            checked = next;
        }
        let reply = self.exchange(&checked)?;
        response(&checked, reply)
    }

    /// Checks that a request may be sent, and with which secrets.
    fn admit(
        &self,
        grant: &Grant,
        request: GuestRequest,
        injections: &[wire::Injection],
    ) -> Result<CheckedRequest, HttpError> {
        let url = request.target.as_str().to_owned();
        let decided = self.decide(grant, request, injections);
        decided.map_err(|refused| self.refused(&url, &refused))
    }

    fn decide(
        &self,
        grant: &Grant,
        mut request: GuestRequest,
        injections: &[wire::Injection],
    ) -> Result<CheckedRequest, UnsentRequest> {
        let mut plan = grant.plan(&request, injections)?;
        if let Some(host) = request.target.host_name() {
            let is_bound =
                |name: &SecretName| self.scripts.secrets.get(name).is_none_or(|hosts| hosts.contains(host));
            let mut bound = std::mem::take(&mut plan.unplaced);
            bound.retain(is_bound);
            plan.place(bound, host)?;
            if let Some(placed) = plan.secrets.iter().find(|placed| !is_bound(&placed.secret)) {
                let log = format!("the case binds {} to other hosts", placed.secret);
                let secret = Some(placed.secret.clone());
                return Err(UnsentRequest::unavailable(RequestRefusal::SecretNotGranted, secret, log));
            }
        }
        request.public_only = plan.public_only;
        Ok(self.egress.check(request, plan.secrets)?)
    }

    /// The listed answer to a request, without the values of its secrets.
    fn exchange(&self, checked: &CheckedRequest) -> Result<ScriptedReply, HttpError> {
        let request = checked.request();
        let mut sent = format!("{}\n", request.target.as_str()).into_bytes();
        for (name, value) in &request.headers {
            sent.extend_from_slice(format!("{name}: {value}\n").as_bytes());
        }
        sent.extend_from_slice(&request.body);
        let place = format!("the request {} {}", request.method, request.target.as_str());
        self.look_for_values(&place, &sent);
        if request.limits.total.is_zero() {
            self.note(format_args!("{place} has no time: its timeout_ms is 0"));
            return Err(HttpError::Timeout);
        }
        let Some(script) = self.take(checked) else { return Err(HttpError::Unreachable) };
        let ScriptedReply { status, headers, body } = match &script.answer {
            ScriptedAnswer::Reply(reply) => reply.clone(),
            ScriptedAnswer::Error(error) => return Err(*error),
        };
        let carried: Vec<SecretName> = checked.secrets().iter().map(|placed| placed.secret.clone()).collect();
        let search = self.canaries.search(&carried);
        let cleaned = |text: &[u8]| {
            let filled = self.canaries.fill(text, &carried).map_err(|name| {
                self.problem(format_args!(
                    "the answer to {place} has {{{{secret:{name}}}}}, which the request did not carry"
                ));
                HttpError::Broken
            })?;
            Ok(search.scrub(&filled).map_or(filled, |(clean, _)| clean))
        };
        let header = |(name, value): (String, String)| {
            Ok((name, String::from_utf8_lossy(&cleaned(value.as_bytes())?).into_owned()))
        };
        let headers = headers.into_iter().map(header).collect::<Result<_, HttpError>>()?;
        Ok(ScriptedReply { status, headers, body: cleaned(&body)? })
    }

    /// The first listed request that was not sent yet and is this one.
    fn take(&self, checked: &CheckedRequest) -> Option<&HttpScript> {
        let mut seen = self.seen();
        let mut almost = None;
        let mut found = None;
        for (index, script) in self.scripts.http.iter().enumerate() {
            let request = checked.request();
            let is_other = script.method != request.method || script.url != request.target.as_str();
            if is_other || seen.http.contains(&index) {
                continue;
            }
            match script.difference(checked) {
                None => {
                    found = Some(index);
                    break;
                }
                Some(problem) => almost = almost.or(Some(problem)),
            }
        }
        seen.http.extend(found);
        drop(seen);
        if found.is_none() {
            let GuestRequest { method, target, .. } = checked.request();
            let why = almost.map(|problem| format!(": {problem}")).unwrap_or_default();
            self.problem(format_args!(
                "the request {method} {} is not listed in `http`{why}",
                target.as_str()
            ));
        }
        self.scripts.http.get(found?)
    }

    /// Notes why a request was refused, and returns what the plugin gets.
    fn refused(&self, url: &str, refused: &UnsentRequest) -> HttpError {
        self.note(format_args!("{url} was refused: {}", refused.log));
        refused.error
    }
}

impl HttpScript {
    /// What a request to the right URL has otherwise than listed.
    fn difference(&self, checked: &CheckedRequest) -> Option<String> {
        let request = checked.request();
        for (name, wanted) in &self.headers {
            let found = request.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            let found = found.map_or(Value::Null, |(_, value)| Value::from(value.as_str()));
            if let Some(problem) = difference(&format!("header {name}"), wanted, &found) {
                return Some(problem);
            }
        }
        if let Some(wanted) = &self.body {
            let body = Value::from(String::from_utf8_lossy(&request.body).as_ref());
            if let Some(problem) = difference("body", wanted, &body) {
                return Some(problem);
            }
        }
        if let Some(wanted) = &self.json {
            let Ok(body) = serde_json::from_slice(&request.body) else {
                return Some("the body is not JSON".to_owned());
            };
            if let Some(problem) = difference("json", wanted, &body) {
                return Some(problem);
            }
        }
        let wanted = self.secrets.as_ref()?;
        let added = |PlacedSecret { secret, .. }: &PlacedSecret| secret.as_str().to_owned();
        let added: std::collections::BTreeSet<String> = checked.secrets().iter().map(added).collect();
        (*wanted != added).then(|| format!("the host adds the secrets {added:?}, expected {wanted:?}"))
    }
}

/// What the plugin gets, within the length that it accepts.
fn response(checked: &CheckedRequest, reply: ScriptedReply) -> Result<HttpResponse, HttpError> {
    let ScriptedReply { status, headers, body } = reply;
    let GuestRequest { target, limits, .. } = checked.request();
    if body.len() as u64 > limits.body_bytes_max {
        return Err(HttpError::TooLarge);
    }
    Ok(HttpResponse { status, url: target.as_str().to_owned(), headers, body })
}
