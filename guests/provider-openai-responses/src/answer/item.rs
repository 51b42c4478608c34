//! The output items of one answer, and what has been passed on of each. Events name their item by id
//! and by index. Some servers change the id between events, others give every item the same index,
//! so an item is looked up by both.

use crate::wire::{PartBody, StreamEvent};

/// The kind of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Reasoning,
    Function,
    Custom,
    Image,
    /// Any other item. It is passed on unchanged once it is complete.
    Opaque,
}

impl Kind {
    pub(super) fn of(name: &str) -> Self {
        match name {
            "message" => Kind::Message,
            "reasoning" => Kind::Reasoning,
            "function_call" => Kind::Function,
            "custom_tool_call" => Kind::Custom,
            "image_generation_call" => Kind::Image,
            _ => Kind::Opaque,
        }
    }
}

/// A text within an item, with the index that the server gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    Text(u64),
    Refusal(u64),
    Reasoning(u64),
    Summary(u64),
    /// The arguments or the input of a call.
    Input,
}

impl Piece {
    /// The kind of item that has such pieces. [`Kind::Function`] includes custom calls.
    pub(super) fn kind(self) -> Kind {
        match self {
            Piece::Text(_) | Piece::Refusal(_) => Kind::Message,
            Piece::Reasoning(_) | Piece::Summary(_) => Kind::Reasoning,
            Piece::Input => Kind::Function,
        }
    }
}

impl PartBody<'_> {
    /// The kind of item that has such parts.
    pub(super) fn owner(&self) -> Kind {
        match self.kind.as_str() {
            "reasoning_text" | "summary_text" => Kind::Reasoning,
            _ => Kind::Message,
        }
    }
}

/// How an event names its item: by id, by index, or both.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemRef<'a> {
    id: &'a str,
    index: Option<u64>,
    /// Whether the item comes from the list in the terminal event.
    listed: bool,
}

impl<'a> ItemRef<'a> {
    pub(super) fn of(event: &'a StreamEvent<'_>) -> Self {
        Self { id: event.item_id.as_str(), index: event.output_index.0, listed: false }
    }

    pub(super) fn listed(index: u64) -> Self {
        Self { id: "", index: Some(index), listed: true }
    }

    pub(super) fn or_id(self, id: &'a str) -> Self {
        if self.id.is_empty() { Self { id, ..self } } else { self }
    }
}

/// One output item.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    id: String,
    index: Option<u64>,
    done: bool,
    /// Whether the list of the terminal event has contained the item.
    listed: bool,
    passed_on: Vec<Piece>,
    /// The number of annotations passed on, by part.
    annotations: Vec<(u64, usize)>,
    /// Where the text of each part begins in the open text, in characters. The host makes one part of
    /// texts that follow each other.
    starts: Vec<(u64, usize)>,
    /// The characters of the open text.
    chars: usize,
}

/// All items, in the order of their first event.
#[derive(Debug, Default)]
pub(super) struct Items(Vec<Item>);

impl Items {
    pub(super) fn open(&mut self, named: ItemRef<'_>, kind: Kind) -> usize {
        self.0.push(Item {
            kind,
            id: named.id.to_owned(),
            index: named.index,
            done: false,
            listed: named.listed,
            passed_on: Vec::new(),
            annotations: Vec::new(),
            starts: Vec::new(),
            chars: 0,
        });
        self.0.len() - 1
    }

    /// The item that a delta or a similar event belongs to. An event with neither id nor index
    /// belongs to the last item that fits.
    pub(super) fn find(&self, named: ItemRef<'_>, fits: impl Fn(&Item) -> bool) -> Option<usize> {
        let fits = |item: &Item| !item.done && fits(item);
        if let Some(at) = self.by_id(named).filter(|at| self.0.get(*at).is_some_and(&fits)) {
            return Some(at);
        }
        match named.index {
            Some(index) => self.0.iter().rposition(|item| item.index == Some(index) && fits(item)),
            None if named.id.is_empty() => self.0.iter().rposition(fits),
            None => None,
        }
    }

    /// The item that an `added` event announces a second time.
    pub(super) fn find_same(&self, named: ItemRef<'_>, kind: Kind) -> Option<usize> {
        if let Some(at) = self.by_id(named) {
            return Some(at);
        }
        let anonymous = |item: &Item| item.id.is_empty() || named.id.is_empty();
        let same = |item: &Item| !item.done && item.kind == kind && item.index == named.index;
        self.0.iter().rposition(|item| same(item) && anonymous(item))
    }

    /// The item whose whole content the server now sends. The list of the terminal event may use
    /// other indexes than the stream. Then the item is the first one of the same kind that the
    /// list has not contained yet.
    pub(super) fn find_whole(&mut self, named: ItemRef<'_>, kind: Kind) -> Option<usize> {
        let is_kind = |item: &Item| item.kind == kind;
        let known = self.by_id(named).filter(|at| self.0.get(*at).is_some_and(is_kind));
        if !named.listed {
            return known.or_else(|| self.find(named, is_kind));
        }
        let unlisted = |item: &Item| is_kind(item) && !item.listed;
        let at = known
            .or_else(|| self.0.iter().position(|item| item.index == named.index && unlisted(item)))
            .or_else(|| self.0.iter().position(unlisted))?;
        self.0.get_mut(at)?.listed = true;
        Some(at)
    }

    fn by_id(&self, named: ItemRef<'_>) -> Option<usize> {
        if named.id.is_empty() {
            return None;
        }
        self.0.iter().rposition(|item| item.id == named.id)
    }

    /// A number that no other item has.
    pub(super) fn key(&self, at: usize) -> u32 {
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    pub(super) fn kind(&self, at: usize) -> Kind {
        self.0.get(at).map_or(Kind::Opaque, |item| item.kind)
    }

    /// Records that a piece is passed on. Returns false if a part of it was passed on before.
    pub(super) fn mark(&mut self, at: usize, piece: Piece) -> bool {
        let Some(item) = self.0.get_mut(at) else { return false };
        let new = !item.passed_on.contains(&piece);
        if new {
            item.passed_on.push(piece);
        }
        new
    }

    /// Whether a piece of the same kind was passed on, at any index.
    pub(super) fn has_like(&self, at: usize, piece: Piece) -> bool {
        let like = |other: &Piece| std::mem::discriminant(other) == std::mem::discriminant(&piece);
        self.0.get(at).is_some_and(|item| item.passed_on.iter().any(like))
    }

    /// Whether the item of this id is complete.
    pub(super) fn is_done(&self, named: ItemRef<'_>) -> bool {
        self.by_id(named).and_then(|at| self.0.get(at)).is_some_and(|item| item.done)
    }

    /// Records that an item is complete. Returns false if it was complete before.
    pub(super) fn finish(&mut self, at: usize) -> bool {
        self.0.get_mut(at).is_some_and(|item| !std::mem::replace(&mut item.done, true))
    }

    /// Records that a text of a part is passed on.
    pub(super) fn add_text(&mut self, at: usize, part: u64, text: &str) {
        let Some(item) = self.0.get_mut(at) else { return };
        if item.starts.iter().all(|(known, _)| *known != part) {
            item.starts.push((part, item.chars));
        }
        item.chars += text.chars().count();
    }

    /// Records that the open text ends.
    pub(super) fn end_text(&mut self, at: usize) {
        if let Some(item) = self.0.get_mut(at) {
            item.chars = 0;
        }
    }

    /// Where a part begins in the text that the host makes of it, in characters. Some servers number
    /// the parts of texts and annotations differently, so an unknown part is taken as the last one.
    pub(super) fn start(&self, at: usize, part: u64) -> usize {
        let starts = self.0.get(at).map(|item| item.starts.as_slice()).unwrap_or_default();
        let known = starts.iter().find(|(index, _)| *index == part);
        known.or(starts.last()).map_or(0, |(_, start)| *start)
    }

    /// How many annotations of a part have been passed on.
    pub(super) fn annotations(&self, at: usize, part: u64) -> usize {
        let counts = self.0.get(at).map(|item| item.annotations.as_slice()).unwrap_or_default();
        counts.iter().find(|(index, _)| *index == part).map_or(0, |(_, count)| *count)
    }

    pub(super) fn annotate(&mut self, at: usize, part: u64) {
        let Some(item) = self.0.get_mut(at) else { return };
        match item.annotations.iter_mut().find(|(index, _)| *index == part) {
            Some((_, count)) => *count += 1,
            None => item.annotations.push((part, 1)),
        }
    }
}
