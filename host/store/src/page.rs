//! Listings in parts.

/// A part of a listing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Page<T> {
    /// The entries.
    pub entries: Vec<T>,
    /// Whether more entries follow.
    pub has_more: bool,
}

impl<T> Page<T> {
    /// The first `limit` of these.
    pub(crate) fn of(mut all: impl Iterator<Item = T>, limit: usize) -> Page<T> {
        let entries = all.by_ref().take(limit).collect();
        Page { entries, has_more: all.next().is_some() }
    }

    /// The first `limit` rows, each read with `read`. A row after them is not read.
    pub(crate) fn try_of<R, E>(
        mut rows: impl Iterator<Item = R>,
        limit: usize,
        read: impl FnMut(R) -> Result<T, E>,
    ) -> Result<Page<T>, E> {
        let entries = rows.by_ref().take(limit).map(read).collect::<Result<_, E>>()?;
        Ok(Page { entries, has_more: rows.next().is_some() })
    }
}
