//! The bodies of requests that create and change keys. Unknown fields are errors: a key must not be
//! created without a limit because `limit` was misspelt.

use std::borrow::Cow;
use std::fmt;

use cofferdam_store::{
    ApiKey, Dollars, DollarsError, InternId, KeySpend, LimitsChange, MemberId, Name, NameError, SpendLimits,
    SpendWindow,
};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::access::CONSOLE_KEY;
use crate::api::spending::reset_of;
use crate::fault::FieldError;

/// The maximum number of fields in a body.
const MEMBERS_MAX: usize = 32;
/// The longest field name that an error message repeats.
const MEMBER_NAME_BYTES_MAX: usize = 64;

/// The body of `POST`.
#[derive(Debug)]
pub(super) struct CreateKeyBody {
    pub(super) name: Name,
    pub(super) limits: SpendLimits,
    pub(super) expires_at_ms: Option<u64>,
    pub(super) member: Option<MemberId>,
    pub(super) intern: Option<InternId>,
}

/// The body of `PATCH`; `None` leaves a field unchanged.
#[derive(Debug, Default)]
pub(super) struct Patch {
    pub(super) name: Option<Name>,
    pub(super) disabled: Option<bool>,
    /// In pico-dollars; the inner `None` removes the limit.
    limit: Option<Option<u64>>,
    reset: Option<SpendWindow>,
}

impl CreateKeyBody {
    /// # Errors
    ///
    /// The first invalid field.
    pub(super) fn parse(body: &[u8]) -> Result<Self, FieldError> {
        let (mut name, mut expires_at_ms, mut member, mut intern) = (None, None, None, None);
        let (mut limit, mut reset) = (None, None);
        for (member_name, value) in members(body)? {
            match member_name.as_str() {
                "name" => name = Some(read_name(value)?),
                "limit" => limit = read_limit(value)?,
                "limit_reset" => reset = Some(read_reset(value)?),
                "include_byok_in_limit" => check_byok(value)?,
                "expires_at" => expires_at_ms = nullable(value, read_date)?,
                "member_id" => member = nullable(value, |value| read_id(value, "member_id"))?,
                "intern_id" => intern = nullable(value, |value| read_id(value, "intern_id"))?,
                other => return Err(unknown(other)),
            }
        }
        if member.is_some() && intern.is_some() {
            return Err(FieldError::at("intern_id", "must not stand beside member_id"));
        }
        let name = name.ok_or_else(|| FieldError::at("name", "is missing"))?;
        let limits = limits(limit, reset.unwrap_or(SpendWindow::Total))?;
        Ok(Self { name, limits, expires_at_ms, member, intern })
    }
}

impl Patch {
    /// # Errors
    ///
    /// The first invalid field.
    pub(super) fn parse(body: &[u8]) -> Result<Self, FieldError> {
        let mut patch = Self::default();
        for (member_name, value) in members(body)? {
            match member_name.as_str() {
                "name" => patch.name = Some(read_name(value)?),
                "disabled" => patch.disabled = Some(read_flag(value, "disabled")?),
                "limit" => patch.limit = Some(read_limit(value)?),
                "limit_reset" => patch.reset = Some(read_reset(value)?),
                "include_byok_in_limit" => check_byok(value)?,
                other => return Err(unknown(other)),
            }
        }
        Ok(patch)
    }

    /// Whether the limits of the key may change.
    pub(super) fn changes_limits(&self) -> bool {
        self.limit.is_some() || self.reset.is_some()
    }

    /// The new limits of the key, where they [change](Self::changes_limits). The API shows and sets a single limit; amount or
    /// reset period keeps the value the key shows where the request leaves it out.
    ///
    /// # Errors
    ///
    /// A reset period without a limit.
    pub(super) fn limits(&self, spend: &KeySpend, key: &ApiKey) -> Result<LimitsChange, FieldError> {
        let shown = spend.tightest(&key.limits).map(|(window, _)| window);
        let limit = self.limit.unwrap_or_else(|| shown.and_then(|window| key.limits.of(window)));
        // Without a limit there is nothing to reset.
        let kept = if limit.is_some() { shown } else { None };
        let to = limits(limit, self.reset.or(kept).unwrap_or(SpendWindow::Total))?;
        // Amount and reset period together do not depend on the limits that the key has.
        let from = (self.limit.is_none() || self.reset.is_none()).then_some(key.limits);
        Ok(LimitsChange { from, to })
    }
}

fn limits(limit_pico: Option<u64>, window: SpendWindow) -> Result<SpendLimits, FieldError> {
    if limit_pico.is_none() && window != SpendWindow::Total {
        return Err(FieldError::at("limit_reset", "must be null without a limit"));
    }
    Ok(SpendLimits::default().with(window, limit_pico))
}

fn read_name(value: &RawValue) -> Result<Name, FieldError> {
    let name = text(value).ok_or(NameError::Empty).and_then(|text| Name::parse(&text));
    let name = name.map_err(|error| {
        let reason = match error {
            NameError::LooksLikeId => "must not have the form of a UUID, with or without its hyphens",
            _ => {
                "must be a text of 1 to 64 characters, none of them a control character, no space at the ends"
            }
        };
        FieldError::at("name", reason)
    })?;
    if name.as_str() == CONSOLE_KEY {
        return Err(FieldError::at("name", "must not be `console`: the key of this name is the operator's"));
    }
    Ok(name)
}

/// An amount in pico-dollars, parsed from the JSON text so that no digit is lost.
fn read_limit(value: &RawValue) -> Result<Option<u64>, FieldError> {
    nullable(value, |value| {
        let amount = value.get().parse::<Dollars>().map_err(|error| match error {
            DollarsError::NotANumber => "must be a number of dollars, 0 or more, or null",
            DollarsError::TooFine => "must have at most 12 digits after the point",
            DollarsError::TooMuch => "must be at most 18446744",
        });
        amount.map(Dollars::pico).map_err(|reason| FieldError::at("limit", reason))
    })
}

fn read_reset(value: &RawValue) -> Result<SpendWindow, FieldError> {
    let reset = nullable(value, |value| {
        let window = text(value).and_then(|text| reset_of(&text));
        window.ok_or_else(|| FieldError::at("limit_reset", "must be daily, weekly, monthly or null"))
    });
    reset.map(|window| window.unwrap_or(SpendWindow::Total))
}

fn check_byok(value: &RawValue) -> Result<(), FieldError> {
    let wanted = nullable(value, |value| read_flag(value, "include_byok_in_limit"))?;
    if wanted == Some(true) {
        return Err(FieldError::at(
            "include_byok_in_limit",
            "must be false: what own keys cost is not limited here",
        ));
    }
    Ok(())
}

fn read_flag(value: &RawValue, path: &'static str) -> Result<bool, FieldError> {
    serde_json::from_str(value.get()).map_err(|_| FieldError::at(path, "must be true or false"))
}

fn read_date(value: &RawValue) -> Result<u64, FieldError> {
    let date = text(value).and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let date = date.ok_or_else(|| {
        FieldError::at("expires_at", "must be a date like 2027-12-31T23:59:59Z, at most 9999-12-30T22:00:00Z")
    })?;
    u64::try_from(date.as_millisecond()).map_err(|_| FieldError::at("expires_at", "must lie in the future"))
}

fn read_id<T: std::str::FromStr>(value: &RawValue, path: &'static str) -> Result<T, FieldError> {
    let id = text(value).and_then(|text| text.parse().ok());
    id.ok_or_else(|| FieldError::at(path, "must be a UUID"))
}

fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

fn nullable<T>(
    value: &RawValue,
    read: impl FnOnce(&RawValue) -> Result<T, FieldError>,
) -> Result<Option<T>, FieldError> {
    if value.get() == "null" { Ok(None) } else { read(value).map(Some) }
}

/// The flaw for an unknown field. The field's name is only repeated if it looks like a field name:
/// a client may have put a secret there.
fn unknown(name: &str) -> FieldError {
    let is_plain = name.len() <= MEMBER_NAME_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let path = if is_plain && !name.is_empty() { Cow::Owned(name.to_owned()) } else { Cow::Borrowed("body") };
    FieldError { path, reason: "is not known here" }
}

/// The fields of a JSON object with unparsed values. No field may appear twice.
fn members(body: &[u8]) -> Result<Vec<(String, &RawValue)>, FieldError> {
    let flaw = || FieldError::at("body", "must be a JSON object with each member once");
    let text = std::str::from_utf8(body).map_err(|_| flaw())?;
    // The parser's error message may quote the body, so it is dropped.
    let KeyMembers(members) = serde_json::from_str(text).map_err(|_| flaw())?;
    Ok(members)
}

struct KeyMembers<'b>(Vec<(String, &'b RawValue)>);

impl<'de> Deserialize<'de> for KeyMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EachOnce)
    }
}

struct EachOnce;

impl<'de> Visitor<'de> for EachOnce {
    type Value = KeyMembers<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KeyMembers<'de>, A::Error> {
        let mut members: Vec<(String, &RawValue)> = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            if members.len() == MEMBERS_MAX || members.iter().any(|(known, _)| *known == name) {
                return Err(serde::de::Error::custom("too many members"));
            }
            members.push((name, value));
        }
        Ok(KeyMembers(members))
    }
}

#[cfg(test)]
mod tests;
