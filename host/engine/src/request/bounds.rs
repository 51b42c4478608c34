//! How many items, parts, tools and options one body may have. Work on a body grows with these
//! counts as well as with its length.

use super::invalid::InvalidRequest;
use super::json::JsonValue;
use super::rule::OPEN_OBJECT;

/// Default for the most items of `input`.
pub const ITEMS_MAX: usize = 10_000;
/// Parts of all items together, or of all inputs of an embeddings request together.
const PARTS_MAX: usize = 10_000;
/// Tools of a body, including those in namespaces and in items of `input`.
pub(super) const TOOLS_MAX: usize = 1024;
/// Members of `provider.options`, and of each object in it.
const OPTIONS_MAX: usize = 256;

/// The limits for one body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestBounds {
    /// Items of `input`.
    pub items: usize,
    /// Parts of all items together.
    parts: usize,
}

impl Default for RequestBounds {
    fn default() -> Self {
        Self::of_client(ITEMS_MAX)
    }
}

impl RequestBounds {
    /// The limits for a body that a client sends.
    #[must_use]
    pub const fn of_client(items: usize) -> Self {
        Self { items, parts: PARTS_MAX }
    }

    /// The limits for the request that a hook returns. In normal form a call of a server tool
    /// becomes two items, and the text of a message becomes a part, so a hook must be allowed more
    /// than the client.
    #[must_use]
    pub const fn of_hook(self) -> Self {
        Self { items: self.items.saturating_mul(2), parts: self.parts.saturating_add(self.items) }
    }
}

/// Counts the parts of a body and fails beyond the limit.
#[derive(Debug)]
pub(super) struct PartCount {
    left: usize,
    max: usize,
}

impl Default for PartCount {
    fn default() -> Self {
        Self::of(RequestBounds::default())
    }
}

impl PartCount {
    pub(super) const fn of(bounds: RequestBounds) -> Self {
        Self { left: bounds.parts, max: bounds.parts }
    }

    /// Counts the elements of an array.
    ///
    /// # Errors
    /// The limit is exceeded; the error has the array's path.
    pub(super) fn take(&mut self, list: JsonValue<'_>) -> Result<(), InvalidRequest> {
        for _ in list.items() {
            self.left = self.left.checked_sub(1).ok_or_else(|| {
                list.invalid(format!("holds one part too many: the whole input may hold {}", self.max))
            })?;
        }
        Ok(())
    }
}

/// Counts the tools of a body and fails beyond the limit.
#[derive(Debug)]
pub(super) struct Tools {
    left: usize,
}

impl Default for Tools {
    fn default() -> Self {
        Self { left: TOOLS_MAX }
    }
}

impl Tools {
    /// Counts the tools of an array; a namespace counts as the tools inside it.
    ///
    /// # Errors
    /// The limit is exceeded; the error has the path of the array that holds the first tool beyond
    /// it.
    pub(super) fn take(&mut self, list: JsonValue<'_>) -> Result<(), InvalidRequest> {
        for tool in list.items() {
            match tool.get("tools").filter(|_| tool.get("type").is_some_and(|tag| tag.is("namespace"))) {
                Some(inner) => inner.items().try_for_each(|_| self.take_one(inner))?,
                None => self.take_one(list)?,
            }
        }
        Ok(())
    }

    fn take_one(&mut self, list: JsonValue<'_>) -> Result<(), InvalidRequest> {
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            list.invalid(format!(
                "holds one tool too many: a request may offer {TOOLS_MAX}, those of namespaces and of items included"
            ))
        })?;
        Ok(())
    }
}

/// Checks `provider.options`: objects by provider, each with a limited number of members.
pub(super) fn check_option_counts(options: JsonValue<'_>) -> Result<(), InvalidRequest> {
    OPEN_OBJECT.check(options)?;
    check_members(options)?;
    options.members().try_for_each(|(_, own)| {
        OPEN_OBJECT.check(own)?;
        check_members(own)
    })
}

fn check_members(object: JsonValue<'_>) -> Result<(), InvalidRequest> {
    if object.members().nth(OPTIONS_MAX).is_some() {
        return Err(object.invalid(format!("must have at most {OPTIONS_MAX} members")));
    }
    Ok(())
}
