//! The steps of one timeline: fixed words and numbers, and names of the configuration.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The side that works in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// This host.
    Host,
    /// A guest.
    Guest,
    /// A server that is asked over the network.
    Net,
    /// The vault.
    Secret,
    /// No side: time that the host lets pass.
    Pause,
}

/// Declares an enum whose variants a journal names by a byte.
macro_rules! numbered {
    ($(#[$attribute:meta])* pub enum $name:ident { $($(#[$of_variant:meta])* $variant:ident,)* }) => {
        $(#[$attribute])*
        pub enum $name { $($(#[$of_variant])* $variant,)* }

        impl $name {
            /// The variant with this number, from 0 in their order.
            pub(super) fn of_number(number: u8) -> Option<Self> {
                [$(Self::$variant,)*].get(usize::from(number)).copied()
            }
        }
    };
}

numbered! {
/// What is done in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepType {
    /// The body is parsed.
    Parse,
    /// A hook sees the request or the answer.
    Hook,
    /// A model router chooses models.
    ModelChoice,
    /// The router orders the endpoints.
    Route,
    /// One endpoint is asked. The steps of the exchange are below it.
    Attempt,
    /// A provider's guest translates.
    GuestCall,
    /// A secret is released for one host.
    Release,
    /// A provider is sent the request, until the head of its answer is here.
    Exchange,
    /// The body of a provider's answer arrives.
    Answer,
    /// A server tool runs.
    Tool,
    /// A plugin's own HTTP request.
    Http,
    /// A plugin asks a model. The attempts for it are below it.
    Question,
    /// The host waits until failed endpoints may be asked again.
    Wait,
    /// The usage row is written.
    Usage,
}
}

impl StepType {
    /// The word for it, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parse => "parse",
            Self::Hook => "hook",
            Self::ModelChoice => "model_choice",
            Self::Route => "route",
            Self::Attempt => "attempt",
            Self::GuestCall => "guest_call",
            Self::Release => "release",
            Self::Exchange => "exchange",
            Self::Answer => "answer",
            Self::Tool => "tool",
            Self::Http => "http",
            Self::Question => "question",
            Self::Wait => "wait",
            Self::Usage => "usage",
        }
    }

    pub(super) fn kind(self) -> StepKind {
        match self {
            Self::Parse | Self::Question | Self::Usage => StepKind::Host,
            Self::Hook | Self::ModelChoice | Self::Route | Self::GuestCall | Self::Tool => StepKind::Guest,
            Self::Attempt | Self::Exchange | Self::Answer | Self::Http => StepKind::Net,
            Self::Release => StepKind::Secret,
            Self::Wait => StepKind::Pause,
        }
    }
}

numbered! {
/// What is known about a step besides its name and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FactName {
    /// What a hook decided: `pass`, `change` or `block`.
    Action,
    /// The number of an attempt, from 1.
    Attempt,
    /// The record of the audit log that says so. It was on the disk before the step ended.
    AuditSeq,
    /// Length of a body.
    Bytes,
    /// Input tokens that were in the provider's cache.
    CachedTokens,
    /// Why an attempt was given up.
    Cause,
    /// Microseconds to resolve a name, connect and make the TLS handshake, where no connection was
    /// there.
    ConnectUs,
    /// Dollars.
    Cost,
    /// How many calls or pieces a step stands for.
    Count,
    /// Microseconds from the beginning of an attempt to its first content.
    FirstContentUs,
    /// A host of the configuration or of a grant; `*` for another host that a grant of all covers.
    Host,
    /// Input tokens.
    InputTokens,
    /// A model of the catalog.
    Model,
    /// Output tokens.
    OutputTokens,
    /// A plugin.
    Plugin,
    /// A provider of the configuration.
    Provider,
    /// Whom a secret was released for.
    Purpose,
    /// Secrets that a host sent back.
    Reflections,
    /// The wait that a provider asked for.
    RetryAfterMs,
    /// An HTTP status.
    Status,
    /// The turn of an attempt, from 1.
    Turn,
}
}

/// The value of a fact: a number, or a fixed word or name of the configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FactValue<'a> {
    Number(u64),
    Text(&'a str),
}

/// One fact as it is handed over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fact<'a> {
    pub(super) name: FactName,
    pub(super) value: FactValue<'a>,
}

impl FactName {
    /// The fact in microseconds, unless there is no duration.
    pub(crate) fn micros<'a>(self, duration: Option<Duration>) -> Option<Fact<'a>> {
        self.number(duration.map(super::micros))
    }

    /// The fact, unless there is no number.
    pub(crate) fn number<'a>(self, number: impl Into<Option<u64>>) -> Option<Fact<'a>> {
        number.into().map(|number| Fact { name: self, value: FactValue::Number(number) })
    }

    /// The fact with a fixed word.
    pub(crate) fn word<'a>(self, word: &'static str) -> Option<Fact<'a>> {
        Some(Fact { name: self, value: FactValue::Text(word) })
    }

    /// The fact, unless there is no name. It must be a name of the configuration, never a text of a
    /// client, model or provider.
    pub(crate) fn name<'a>(self, name: impl Into<Option<&'a str>>) -> Option<Fact<'a>> {
        name.into().map(|name| Fact { name: self, value: FactValue::Text(name) })
    }
}
