//! Rules for the values of fields, as data, and the one function that checks a value against a
//! rule.
//!
//! The tables in `shapes` are the readable form of the API; this file has all the code that
//! evaluates them. In an object with a shape, a null member counts as absent and a member without a
//! rule is skipped. Recursion is bounded by the nesting limit of the document.

mod schema;

use super::invalid::{InvalidRequest, quoted};
use super::json::{JsonKind, JsonValue, separate, write_key};
use serde_json::Value;

pub(super) use schema::or_null;

/// What a value may be. All bounds are inclusive.
#[derive(Debug)]
pub(super) enum ValueRule {
    /// Any value.
    Any,
    /// A boolean.
    Bool,
    /// A string with `min` to `max` characters.
    Text { min: usize, max: usize },
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// An integer, written without fraction or exponent.
    Integer { min: i64, max: i64 },
    /// A number.
    Number { min: f64, max: f64 },
    /// An array with `min` to `max` elements.
    List { of: &'static ValueRule, min: usize, max: usize },
    /// An object with any keys and with values of this rule.
    Map(&'static ValueRule),
    /// An object of a shape.
    Object(&'static Shape),
    /// An object whose shape depends on one of its members, such as `type`.
    Tagged(&'static TaggedRule),
    /// The first of these rules that accepts the JSON type of the value.
    Either(&'static [ValueRule]),
    /// A check that needs code, and its description as JSON Schema.
    Custom(fn(JsonValue<'_>) -> Result<(), InvalidRequest>, fn() -> Value),
}

/// The members of an object that are checked.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) fields: &'static [Field],
    /// A check across several members, made after each member was checked on its own.
    pub(super) also: Option<fn(JsonValue<'_>) -> Result<(), InvalidRequest>>,
}

#[derive(Debug)]
pub(super) struct Field {
    name: &'static str,
    rule: ValueRule,
    required: bool,
}

/// Objects whose shape is selected by a member.
#[derive(Debug)]
pub(super) struct TaggedRule {
    /// The member's name: `type`, or `id` for plugins.
    pub(super) tag: &'static str,
    /// The word for these objects in error messages.
    pub(super) noun: &'static str,
    pub(super) variants: &'static [(&'static str, Shape)],
}

/// Text of any length; it is bounded by the limit of the whole body.
pub(super) const TEXT: ValueRule = ValueRule::Text { min: 0, max: usize::MAX };
/// Text that must not be empty.
pub(super) const NAME: ValueRule = ValueRule::Text { min: 1, max: usize::MAX };
/// An object with any members.
pub(super) const OPEN_OBJECT: ValueRule = ValueRule::Object(&Shape::of(&[]));
/// Any array.
pub(super) const OPEN_LIST: ValueRule = ValueRule::List { of: &ValueRule::Any, min: 0, max: usize::MAX };
/// An array of objects with any members.
pub(super) const OBJECTS: ValueRule = ValueRule::List { of: &OPEN_OBJECT, min: 0, max: usize::MAX };
/// A positive integer of at most 32 bits.
pub(super) const COUNT: ValueRule = ValueRule::Integer { min: 1, max: u32::MAX as i64 };
/// A number that is not negative.
pub(super) const AMOUNT: ValueRule = ValueRule::Number { min: 0.0, max: f64::MAX };
/// Names of servers, models and the like.
pub(super) const NAMES: ValueRule =
    ValueRule::List { of: &ValueRule::Text { min: 1, max: 1024 }, min: 0, max: 1024 };

impl Shape {
    pub(super) const fn of(fields: &'static [Field]) -> Self {
        Self { fields, also: None }
    }

    /// Whether the shape has a rule for this member.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.name == name)
    }
}

pub(super) const fn required(name: &'static str, rule: ValueRule) -> Field {
    Field { name, rule, required: true }
}

pub(super) const fn optional(name: &'static str, rule: ValueRule) -> Field {
    Field { name, rule, required: false }
}

impl ValueRule {
    const fn takes(&self, kind: JsonKind) -> bool {
        match self {
            Self::Any | Self::Custom(..) | Self::Either(_) => true,
            Self::Bool => matches!(kind, JsonKind::True | JsonKind::False),
            Self::Text { .. } | Self::OneOf(_) => matches!(kind, JsonKind::String),
            Self::Integer { .. } | Self::Number { .. } => matches!(kind, JsonKind::Number),
            Self::List { .. } => matches!(kind, JsonKind::Array),
            Self::Map(_) | Self::Object(_) | Self::Tagged(_) => matches!(kind, JsonKind::Object),
        }
    }

    const fn noun(&self) -> &'static str {
        match self {
            Self::Any | Self::Custom(..) | Self::Either(_) => "a value",
            Self::Bool => "a boolean",
            Self::Text { .. } | Self::OneOf(_) => "a string",
            Self::Integer { .. } => "an integer",
            Self::Number { .. } => "a number",
            Self::List { .. } => "an array",
            Self::Map(_) | Self::Object(_) | Self::Tagged(_) => "an object",
        }
    }

    /// Checks a value.
    ///
    /// # Errors
    /// The first violation, with its path.
    pub(super) fn check(&self, value: JsonValue<'_>) -> Result<(), InvalidRequest> {
        if !self.takes(value.kind()) {
            return Err(value.mistyped(self.noun()));
        }
        match self {
            Self::Any | Self::Bool => Ok(()),
            Self::Text { min, max } => check_text(value, *min, *max),
            Self::OneOf(words) => {
                if words.iter().any(|word| value.is(word)) {
                    return Ok(());
                }
                Err(value.invalid(format!("must be one of {}", words.join(", "))))
            }
            Self::Integer { min, max } => check_integer(value, *min, *max),
            Self::Number { min, max } => check_number(value, *min, *max),
            Self::List { of, min, max } => check_list(value, of, *min, *max),
            Self::Map(of) => value.members().try_for_each(|(_, member)| of.check(member)),
            Self::Object(shape) => shape.check(value),
            Self::Tagged(tagged) => tagged.check(value).map(|_| ()),
            Self::Either(rules) => match rules.iter().find(|rule| rule.takes(value.kind())) {
                Some(rule) => rule.check(value),
                None => {
                    let nouns: Vec<&str> = rules.iter().map(Self::noun).collect();
                    Err(value.mistyped(&nouns.join(" or ")))
                }
            },
            Self::Custom(check, _) => check(value),
        }
    }

    /// Writes a value that was checked. Of objects and lists of objects only the members that have a rule are
    /// written. Values of every other rule are written whole.
    pub(super) fn write(&self, value: JsonValue<'_>, out: &mut Vec<u8>) {
        match self {
            Self::List { of, .. } => {
                out.push(b'[');
                for item in value.items() {
                    separate(out);
                    of.write(item, out);
                }
                out.push(b']');
            }
            Self::Object(shape) => shape.write(value, "", out),
            Self::Tagged(tagged) => tagged.write(value, out),
            _ => value.write(out),
        }
    }
}

impl Shape {
    /// Writes an object that was checked with the members that have a rule and are not null, and with
    /// its tag.
    fn write(&self, object: JsonValue<'_>, tag: &str, out: &mut Vec<u8>) {
        out.push(b'{');
        for (key, value) in object.members().filter(|(_, value)| !value.is_null()) {
            let name = key.text();
            let rule = match self.fields.iter().find(|field| field.name == &*name) {
                Some(field) => &field.rule,
                None if name == tag => &ValueRule::Any,
                None => continue,
            };
            write_key(key, out);
            rule.write(value, out);
        }
        out.push(b'}');
    }

    /// Checks an object.
    ///
    /// # Errors
    /// The first violation, with its path.
    pub(super) fn check(&self, object: JsonValue<'_>) -> Result<(), InvalidRequest> {
        self.visit(object, |_, _| ())
    }

    /// Checks an object and calls `found` for every member that has a rule and is not null.
    ///
    /// # Errors
    /// The first violation, with its path.
    pub(super) fn visit<'d>(
        &self,
        object: JsonValue<'d>,
        mut found: impl FnMut(&'static str, JsonValue<'d>),
    ) -> Result<(), InvalidRequest> {
        if object.kind() != JsonKind::Object {
            return Err(object.mistyped("an object"));
        }
        let mut missing = self.fields.iter().filter(|field| field.required).count();
        for (key, value) in object.members() {
            let name = key.text();
            let Some(field) = self.fields.iter().find(|field| field.name == &*name) else { continue };
            if value.is_null() {
                continue;
            }
            missing -= usize::from(field.required);
            field.rule.check(value)?;
            found(field.name, value);
        }
        if missing > 0 {
            // Only the error path searches for the name of the missing member.
            let absent = self.fields.iter().find(|field| field.required && object.get(field.name).is_none());
            return Err(object.invalid_member(absent.map_or("", |field| field.name), "is required"));
        }
        self.also.map_or(Ok(()), |also| also(object))
    }
}

impl TaggedRule {
    /// Checks an object against the shape that its tag selects. Returns the tag.
    ///
    /// # Errors
    /// The first violation, with its path. An unknown tag is quoted.
    pub(super) fn check(&self, object: JsonValue<'_>) -> Result<&'static str, InvalidRequest> {
        let tag = self.tag_of(object)?;
        let word = tag.text();
        let Some((name, shape)) = self.variants.iter().find(|(name, _)| *name == &*word) else {
            return Err(self.unknown(tag));
        };
        shape.check(object)?;
        Ok(name)
    }

    fn write(&self, object: JsonValue<'_>, out: &mut Vec<u8>) {
        let tag = object.get(self.tag).map(JsonValue::text).unwrap_or_default();
        if let Some((_, shape)) = self.variants.iter().find(|(name, _)| *name == &*tag) {
            shape.write(object, self.tag, out);
        }
    }

    /// The tag of an object.
    ///
    /// # Errors
    /// The value is not an object, or the tag is missing or not a string.
    pub(super) fn tag_of<'d>(&self, object: JsonValue<'d>) -> Result<JsonValue<'d>, InvalidRequest> {
        if object.kind() != JsonKind::Object {
            return Err(object.mistyped("an object"));
        }
        let Some(tag) = object.get(self.tag) else {
            return Err(object.invalid_member(self.tag, "is required"));
        };
        if tag.kind() != JsonKind::String {
            return Err(tag.mistyped("a string"));
        }
        Ok(tag)
    }

    /// The error for an unknown tag, with the tag quoted.
    pub(super) fn unknown(&self, tag: JsonValue<'_>) -> InvalidRequest {
        tag.invalid(format!("names an unknown {}: \"{}\"", self.noun, quoted(&tag.text())))
    }
}

fn check_text(value: JsonValue<'_>, min: usize, max: usize) -> Result<(), InvalidRequest> {
    let bytes = value.bytes_max();
    if bytes < min {
        return Err(value.invalid(if min == 1 {
            "must not be empty".to_owned()
        } else {
            format!("must have at least {min} characters")
        }));
    }
    // Characters are counted only when the length in bytes does not decide it.
    if bytes > max && value.chars() > max {
        return Err(value.invalid(format!("must have at most {max} characters")));
    }
    Ok(())
}

fn check_integer(value: JsonValue<'_>, min: i64, max: i64) -> Result<(), InvalidRequest> {
    let raw = value.raw();
    if raw.bytes().any(|b| matches!(b, b'.' | b'e' | b'E')) {
        return Err(value.invalid("must be an integer, without fraction or exponent"));
    }
    // Many parsers read -0 as a float.
    let integer = value.integer().filter(|_| min < 0 || !raw.starts_with('-'));
    let is_above = match integer {
        Some(integer) => integer > max,
        // The value has digits only and does not fit, so it is above the maximum.
        None => raw.bytes().all(|b| b.is_ascii_digit()),
    };
    match integer {
        Some(integer) if (min..=max).contains(&integer) => Ok(()),
        // The message names the maximum of an integer type only if the value is above it.
        _ if !is_above && max >= i64::from(u32::MAX) => {
            Err(value.invalid(format!("must be an integer of at least {min}")))
        }
        _ => Err(value.invalid(format!("must be an integer from {min} to {max}"))),
    }
}

fn check_number(value: JsonValue<'_>, min: f64, max: f64) -> Result<(), InvalidRequest> {
    match value.number() {
        Some(number) if (min..=max).contains(&number) => Ok(()),
        _ if max >= f64::MAX => Err(value.invalid(format!("must be a number of at least {min}"))),
        _ => Err(value.invalid(format!("must be a number from {min} to {max}"))),
    }
}

fn check_list(value: JsonValue<'_>, of: &ValueRule, min: usize, max: usize) -> Result<(), InvalidRequest> {
    let mut count = 0;
    for item in value.items() {
        count += 1;
        if count > max {
            return Err(value.invalid(format!("must hold at most {max} elements")));
        }
        of.check(item)?;
    }
    if count < min {
        let plural = if min == 1 { "element" } else { "elements" };
        return Err(value.invalid(format!("must hold at least {min} {plural}")));
    }
    Ok(())
}
