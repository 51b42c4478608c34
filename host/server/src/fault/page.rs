//! The tables of `docs/reference/errors.md`: what this host answers with, who can change it, and whether the same
//! request may be sent again.

use std::collections::BTreeMap;
use std::fmt::Write;

use cofferdam_engine::{Refusal, stream_code};
use cofferdam_runtime::Fairness;
use cofferdam_runtime::wire::{ERROR_KINDS, ErrorKind, Failure};
use cofferdam_store::{QuotaExceeded, QuotaMeasure, QuotaScope};

use super::{Fault, FieldError};
use crate::limits::admission::Limited;

#[path = "../../../../tests/docs/generated.rs"]
mod generated;

/// When it happens, who can change it, and whether to send the same request again.
struct Advice(&'static str, &'static str, &'static str);

const CLIENT: &str = "client";
const OPERATOR: &str = "operator";
const PROVIDER: &str = "provider";
const TIME: &str = "time";
const NO: &str = "no";
const LATER: &str = "after `Retry-After`";

/// Every fault outside the vault. A variant that is added to [`Fault`] is missing in `advice` first.
fn faults() -> Vec<Fault> {
    vec![
        Fault::UriTooLong,
        Fault::HeadersTooLarge,
        Fault::NotFound,
        Fault::NotServed("names what there is instead"),
        Fault::NoUpgrade,
        Fault::WrongMethod(&[]),
        Fault::MissingKey,
        Fault::InvalidKey,
        Fault::NoInference,
        Fault::ManagementOnly,
        Fault::Limited(Limited::by_bodies(Fairness::new(8, 1), 0)),
        Fault::BodyTooLarge,
        Fault::BodyTimedOut,
        Fault::Busy,
        Fault::StoreFull,
        Fault::Malformed("names what is wrong"),
        Fault::Flawed(FieldError::at("", "")),
        Fault::TooManyChanges { wait_s: 1 },
        Fault::TooManyKeys,
        Fault::OutcomeUnknown,
        Fault::Internal,
    ]
}

/// Every fault on a route of the vault.
fn vault_faults() -> Vec<Fault> {
    let full = QuotaExceeded { scope: QuotaScope::Vault, measure: QuotaMeasure::Secrets, max: 0 };
    vec![
        Fault::InvalidKey,
        Fault::RegionalHost,
        Fault::NoScope,
        Fault::VaultUnavailable,
        Fault::TooManyVaultRequests { wait_s: 1 },
        Fault::VaultWritesDisabled,
        Fault::InvalidVaultRequest(FieldError::at("", "")),
        Fault::VaultFull(full),
        Fault::UnboundSecret,
        Fault::VaultTooLate,
        Fault::VaultTimedOut,
        Fault::VaultDamaged,
        Fault::VaultFailed,
    ]
}

fn advice(fault: &Fault, in_vault: bool) -> Advice {
    match fault {
        Fault::MissingKey => Advice("The request has no `Authorization` header", CLIENT, NO),
        Fault::InvalidKey if in_vault => {
            Advice("There is no token, or its key does not work here", CLIENT, NO)
        }
        Fault::InvalidKey => {
            Advice("The token is no key, or its key is revoked, expired or switched off", CLIENT, NO)
        }
        Fault::NoInference => Advice("A provisioning key asks for an answer of a model", CLIENT, NO),
        Fault::ManagementOnly => Advice("The route takes provisioning keys only", CLIENT, NO),
        Fault::NotFound => Advice("Nothing is there, or nothing that this key reaches", CLIENT, NO),
        Fault::NotServed(_) => Advice("The route is one of another interface", CLIENT, NO),
        Fault::NoUpgrade => Advice("The request asks for a WebSocket", CLIENT, NO),
        Fault::WrongMethod(_) => Advice("The route has other methods; `Allow` lists them", CLIENT, NO),
        Fault::Malformed(_) => Advice("The path, a header or the body is malformed", CLIENT, NO),
        Fault::Flawed(_) => {
            Advice("A member of the request is wrong; `metadata` has `path` and `reason`", CLIENT, NO)
        }
        Fault::TooManyKeys => Advice("The workspace has as many keys as it may have", CLIENT, NO),
        Fault::TooManyChanges { .. } => Advice("A key changes keys too often", CLIENT, LATER),
        Fault::OutcomeUnknown => {
            Advice("The store has not told in time whether it made the change", OPERATOR, "look first")
        }
        Fault::UriTooLong => Advice("The path with its query is too long", CLIENT, NO),
        Fault::HeadersTooLarge => Advice("The headers are too many or too long", CLIENT, NO),
        Fault::BodyTooLarge => Advice("The body is too long", CLIENT, NO),
        Fault::BodyTimedOut => Advice("The body did not arrive in time (`timeouts.body_*`)", CLIENT, "yes"),
        Fault::Busy => Advice(
            "Request bodies take all the memory they may have, memory is short, the store has no place in its queue, the host has no contact with its database, or the limits of a key were changed by several requests at once",
            OPERATOR,
            LATER,
        ),
        Fault::StoreFull => Advice("The disk is nearly full", OPERATOR, "later"),
        Fault::Limited(_) => {
            Advice("A limit of the key or its workspace; `metadata` has `limit` and `scope`", CLIENT, LATER)
        }
        Fault::RegionalHost => Advice("The `Host` is one of `server.regional_hosts`", CLIENT, NO),
        Fault::NoScope => Advice("The key acts in no workspace", CLIENT, NO),
        Fault::VaultUnavailable => {
            Advice("`vault.enabled` is false, or the disk is nearly full", OPERATOR, "later")
        }
        Fault::VaultWritesDisabled => {
            Advice("`vault.writes` is false, or the workspace may not write", OPERATOR, NO)
        }
        Fault::TooManyVaultRequests { .. } => {
            Advice("The key asks, or its address is refused, too often", CLIENT, LATER)
        }
        Fault::InvalidVaultRequest(_) => {
            Advice("A part of the request is wrong; `metadata` has `path` and `reason`", CLIENT, NO)
        }
        Fault::VaultFull(_) => {
            Advice("A quota is used up; `metadata` has `limit`, `scope` and `max`", CLIENT, "after deleting")
        }
        Fault::UnboundSecret => Advice("A secret without hosts is to be copied", CLIENT, NO),
        Fault::VaultTooLate => {
            Advice("The store did not take the request in time; nothing was done", TIME, "yes")
        }
        Fault::VaultTimedOut => {
            Advice("The store took the request and has not told what became of it", OPERATOR, "look first")
        }
        Fault::VaultDamaged => {
            Advice("What the store holds is not what was stored; see `vault verify`", OPERATOR, NO)
        }
        Fault::VaultFailed => Advice("The store does not work", OPERATOR, "later"),
        Fault::Internal | Fault::Refused { .. } => {
            Advice("The host failed; its log has the cause under the request's id", OPERATOR, "once")
        }
    }
}

/// The canonical error types, as the engine answers with them.
fn kind_advice(kind: ErrorKind) -> Advice {
    use ErrorKind as K;
    match kind {
        K::ContextLengthExceeded => {
            Advice("Input and output do not fit into the model's context", CLIENT, NO)
        }
        K::MaxTokensExceeded => Advice("The output would be longer than the model allows", CLIENT, NO),
        K::TokenLimitExceeded => Advice("The request has more tokens than the provider takes", CLIENT, NO),
        K::StringTooLong => Advice("A text is longer than the provider takes", CLIENT, NO),
        K::Authentication => Advice("The provider did not accept the caller's own key", CLIENT, NO),
        K::PermissionDenied => Advice("The key or account may not do this", CLIENT, NO),
        K::PaymentRequired => Advice(
            "The credit or a limit is used up; for this host's, `metadata` has `limit`",
            CLIENT,
            "after `Retry-After`, if there is one",
        ),
        K::RateLimitExceeded => Advice("Every endpoint of the model was limited", TIME, LATER),
        K::ProviderOverloaded => Advice("This host or the provider has no room", TIME, LATER),
        K::ProviderUnavailable => Advice("No endpoint gave an answer", PROVIDER, "with growing pauses"),
        K::InvalidRequest => Advice("The request is wrong; the message says where", CLIENT, NO),
        K::InvalidPrompt => Advice("The provider does not take the prompt", CLIENT, NO),
        K::NotFound => {
            Advice("A model, prompt or another thing that the request names is not there", CLIENT, NO)
        }
        K::PreconditionFailed => Advice("The provider's state does not allow the request", CLIENT, NO),
        K::PayloadTooLarge => Advice("The request is too long", CLIENT, NO),
        K::Unprocessable => Advice("The provider cannot process the request", CLIENT, NO),
        K::ContentPolicyViolation => Advice("A hook (403) or the provider refuses the content", CLIENT, NO),
        K::Refusal => Advice("The model or provider refuses to answer", CLIENT, NO),
        K::InvalidImage => Advice("A picture cannot be read", CLIENT, NO),
        K::ImageTooLarge => Advice("A picture is too large", CLIENT, NO),
        K::ImageTooSmall => Advice("A picture is too small", CLIENT, NO),
        K::UnsupportedImageFormat => {
            Advice("A picture has a format that the provider does not take", CLIENT, NO)
        }
        K::ImageNotFound => Advice("There is no picture at its URL", CLIENT, NO),
        K::ImageDownloadFailed => Advice("The provider could not load a picture", CLIENT, "once"),
        K::Server => Advice("The host failed; its log has the cause", OPERATOR, "once"),
        K::Timeout => Advice("No answer in time", PROVIDER, "with growing pauses"),
        K::Unmapped => Advice("An error that the adapter does not know", PROVIDER, "once"),
    }
}

#[test]
fn the_generated_page_of_errors_is_current() {
    let mut text = String::new();
    for (heading, faults, in_vault) in
        [("Refused before routing", faults(), false), ("Refused by the vault", vault_faults(), true)]
    {
        write!(
            text,
            "\n## {heading}\n\n| Status | `error_type` | Message | When | Who can change it | Retry |\n"
        )
        .unwrap();
        text.push_str("|---|---|---|---|---|---|\n");
        let mut rows = BTreeMap::new();
        for (place, fault) in faults.into_iter().enumerate() {
            let Advice(when, who, retry) = advice(&fault, in_vault);
            let (status, kind, message) = fault.line();
            let kind = kind.as_str();
            let message = if matches!(fault, Fault::Flawed(_)) { "names what is wrong" } else { message };
            rows.insert(
                (status, place),
                format!("| {status} | `{kind}` | {message} | {when} | {who} | {retry} |\n"),
            );
        }
        text.extend(rows.into_values());
    }
    text.push_str("\n## All error types\n\n| `error_type` | Status | `code` in a stream | When | Who can change it | Retry |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    for (kind, name) in ERROR_KINDS {
        let Advice(when, who, retry) = kind_advice(kind);
        let status = Refusal::from_failure(&Failure::new(kind, "")).status;
        let code = stream_code(kind);
        writeln!(text, "| `{name}` | {status} | `{code}` | {when} | {who} | {retry} |").unwrap();
    }
    generated::check("reference/errors.md", &text);
}
