//! Why an attempt gave no answer, and what that means for the next step.

pub(crate) mod blame;

use crate::authentication::UsedCredential;
use crate::lifecycle::deadline::Late;
use crate::refusal::{PROVIDER_FAILED, SATURATED, STEP_TIMED_OUT, status_of};
use crate::timeline::{FactName, Timeline};
use crate::upstream::reading::ReadError;
use cofferdam_egress::Error as EgressError;
use cofferdam_runtime::wire::{ErrorKind, Failure};
use cofferdam_runtime::{CallError, CallErrorKind};
use http::StatusCode;

/// Why an attempt gave no answer.
#[derive(Debug)]
pub(crate) struct AttemptFailure {
    /// The provider's status, when it answered at all.
    pub(crate) status: Option<u16>,
    pub(crate) failure: Failure,
    pub(crate) cause: Cause,
    /// The caller's own credential was sent.
    pub(crate) is_byok: bool,
    /// The beginning of the provider's own error answer.
    pub(crate) raw: Option<String>,
    /// This host ended the exchange, and the provider charges for what it has read and produced.
    pub(crate) is_cut_here: bool,
}

/// The kind of failure, as far as the next step depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The provider refused the request itself. Other endpoints of the model would refuse it too.
    Request,
    /// The endpoint failed.
    Endpoint,
    /// The endpoint could not be reached: nothing was sent.
    Unreachable,
    /// The answer has no content. Often the request itself is the reason, so the endpoint is not
    /// blamed.
    Empty,
    /// The dialect cannot carry the request; another one may.
    Dialect,
    /// The provider did not accept the operator's credential.
    Credential,
    /// The operator's credential is configured but cannot be used.
    NoCredential,
    /// The provider did not accept the caller's own credential.
    CallersCredential,
    /// The request was routed with the caller's own credential, which has been removed since.
    Withdrawn,
    /// The caller's own credential cannot be sent. Nothing was sent.
    UnfitCredential,
    /// The provider's rate limit for the credential that was sent.
    Limited,
    /// The time was up: the whole request's if `total`, else that of one step. `begun` says whether
    /// the answer had started.
    Late { total: bool, begun: bool },
    /// This host has no capacity left.
    Saturated,
    /// The store could not be asked for the credential, for example because its database is away.
    Store,
    /// The plugin failed.
    Plugin,
}

/// The code with which a provider refuses sealed reasoning that it cannot open. It is OpenAI's; guests of other dialects
/// give it too.
const SEALS_REFUSED: &str = "invalid_encrypted_content";

/// From this length on, in bytes, a plugin's input takes a noticeable part of its usual memory and
/// time.
const LONG_BYTES: usize = 1 << 20;

/// The configuration key of the limit that a plugin exceeded because its input was `shown` bytes
/// long, such as `plugins.NAME.memory_mib`. `None` for short input: then the limit was exceeded for
/// another reason, and raising it would not help.
pub(crate) fn exceeded(error: &CallError, shown: usize) -> Option<String> {
    let limit = match error.kind {
        _ if shown < LONG_BYTES => return None,
        CallErrorKind::OutOfMemory => "memory_mib",
        CallErrorKind::OutOfTime => "deadline_ms",
        _ => return None,
    };
    Some(format!("plugins.{}.{limit}", error.plugin))
}

impl Cause {
    /// The word for it in the recorder of requests.
    fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Endpoint => "endpoint",
            Self::Unreachable => "unreachable",
            Self::Empty => "empty",
            Self::Dialect => "dialect",
            Self::Credential => "credential",
            Self::NoCredential => "no_credential",
            Self::CallersCredential => "callers_credential",
            Self::Withdrawn => "withdrawn",
            Self::UnfitCredential => "unfit_credential",
            Self::Limited => "limited",
            Self::Late { total: true, .. } => "late_request",
            Self::Late { total: false, .. } => "late_step",
            Self::Saturated => "saturated",
            Self::Store => "store",
            Self::Plugin => "plugin",
        }
    }
}

impl AttemptFailure {
    /// Ends the open step of an attempt that failed like this.
    pub(crate) fn close_attempt(&self, timeline: &Timeline) {
        let facts = [
            FactName::Cause.word(self.cause.as_str()),
            FactName::Status.number(self.status.map(u64::from)),
            FactName::RetryAfterMs.number(self.failure.retry_after_ms),
        ];
        timeline.close(self.failure.kind.as_str(), &facts);
    }

    fn new(cause: Cause, status: Option<u16>, failure: Failure) -> Self {
        Self { status, failure, cause, is_byok: false, raw: None, is_cut_here: false }
    }

    pub(crate) fn plain(cause: Cause, kind: ErrorKind, message: &str) -> Self {
        let failure = Failure { kind, message: message.to_owned(), code: None, retry_after_ms: None };
        Self::new(cause, None, failure)
    }

    /// A failure whose only message is that the provider failed.
    pub(crate) fn of(cause: Cause) -> Self {
        Self::plain(cause, ErrorKind::ProviderUnavailable, PROVIDER_FAILED)
    }

    /// Whether the provider could not open sealed reasoning of the request.
    pub(crate) fn is_about_seals(&self) -> bool {
        self.cause == Cause::Request && self.failure.code.as_deref() == Some(SEALS_REFUSED)
    }

    /// This failure, for which this host ended the exchange.
    pub(crate) fn cut_here(self) -> Self {
        Self { is_cut_here: true, ..self }
    }

    /// This failure, after an answer with this status.
    pub(crate) fn with_status(self, status: u16) -> Self {
        Self { status: Some(status), ..self }
    }

    /// The plugin could not write the upstream request. When it ran out of memory or time over a
    /// long request, the message names the limit, and another endpoint's plugin may have a higher
    /// one.
    pub(crate) fn prepare(error: CallError, shown: usize) -> Self {
        let Some(limit) = exceeded(&error, shown) else { return error.into() };
        tracing::warn!(plugin = %error.plugin, %error, "a request is too large for a provider plugin");
        let message =
            format!("The request is too large for the plugin that translates it: {limit} is the limit");
        Self::plain(Cause::Dialect, ErrorKind::PayloadTooLarge, &message)
    }

    pub(crate) fn late(late: Late, begun: bool) -> Self {
        let cause = Cause::Late { total: late == Late::Total, begun };
        Self::plain(cause, ErrorKind::Timeout, STEP_TIMED_OUT).cut_here()
    }

    pub(crate) fn dialect(failure: Failure) -> Self {
        Self::new(Cause::Dialect, None, failure)
    }

    /// An error inside a successful answer, or in an answer that a guest made by itself.
    pub(crate) fn in_band(failure: Failure, status: Option<u16>) -> Self {
        Self::new(in_band_cause(failure.kind), status, failure)
    }

    /// `begun` says whether what was read so far counts as an answer.
    pub(crate) fn read(error: ReadError, status: u16, begun: bool) -> Self {
        let failed = match error {
            ReadError::Late(late) => Self::late(late, begun),
            ReadError::Call(error) => error.into(),
            ReadError::Upstream(error) => error.into(),
            ReadError::Guest(failure) => Self::in_band(failure, None),
            ReadError::TooLong => Self::of(Cause::Endpoint).cut_here(),
            ReadError::OutOfMemory => {
                Self::plain(Cause::Saturated, ErrorKind::ProviderOverloaded, SATURATED).cut_here()
            }
        };
        failed.with_status(status)
    }

    /// Adds what follows from the credential that was sent: the provider's message may repeat it,
    /// so it is covered; and where the caller's own credential was refused, the caller has to learn
    /// that.
    pub(crate) fn after(mut self, used: Option<&UsedCredential>) -> Self {
        let Some(used) = used else { return self };
        self.failure.message = used.credential.covered(self.failure.message);
        self.failure.code = self.failure.code.map(|code| used.credential.covered(code));
        self.is_byok = used.is_byok;
        if used.is_byok && self.cause == Cause::Credential {
            self.cause = Cause::CallersCredential;
        }
        self
    }

    pub(super) fn from_status(status: StatusCode, failure: Failure) -> Self {
        let cause = match status.as_u16() {
            400 | 404 | 413 | 422 => Cause::Request,
            401..=403 => Cause::Credential,
            429 => Cause::Limited,
            408 => Cause::Late { total: false, begun: false },
            _ => Cause::Endpoint,
        };
        Self::new(cause, Some(status.as_u16()), failure)
    }
}

impl From<CallError> for AttemptFailure {
    fn from(error: CallError) -> Self {
        tracing::warn!(plugin = %error.plugin, %error, "a provider plugin failed");
        let failed = match error.is_saturated() {
            true => Self::plain(Cause::Saturated, ErrorKind::ProviderOverloaded, SATURATED),
            false => Self::of(Cause::Plugin),
        };
        failed.cut_here()
    }
}

impl From<EgressError> for AttemptFailure {
    fn from(error: EgressError) -> Self {
        // A failed connection is logged by `log_unreached` already, with the provider's name and
        // once a minute.
        if error.is_connect() {
            return Self::of(Cause::Unreachable);
        }
        tracing::info!(%error, "an exchange with a provider failed");
        match error {
            EgressError::TimedOut => Self::late(Late::Step, false),
            EgressError::TooLarge => Self::of(Cause::Endpoint).cut_here(),
            _ => Self::of(Cause::Endpoint),
        }
    }
}

/// The cause that an error inside a successful answer stands for.
fn in_band_cause(kind: ErrorKind) -> Cause {
    match status_of(kind) {
        401..=403 => Cause::Credential,
        429 => Cause::Limited,
        504 => Cause::Late { total: false, begun: true },
        500.. => Cause::Endpoint,
        _ => Cause::Request,
    }
}
