//! The slices of this host in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use super::{DurableSlice, SliceEffects, SliceHost, SliceId, SliceRequest};
use crate::clock::Clock;
use crate::ids::WorkspaceId;
use crate::token::KeyId;
use crate::usage::{Slice, SliceChange, Taken, UsageKind, UsageRow};

/// A slice that no request asked for so long is given back, in milliseconds.
const IDLE_MS: u64 = 3_000;
/// A slice that is not used for so long is forgotten, in milliseconds. No commit takes so long.
const FORGOTTEN_MS: u64 = 120_000;
/// A request that holds a part of a slice for so long gets an intent of its own, in milliseconds.
const LONG_MS: u64 = 10_000;
/// How long a slice that others asked for gets nothing more, in milliseconds.
const RECALLED_MS: u64 = 2_000;
/// The most requests of a workspace that get an intent of their own at once.
const MOVERS_MAX: usize = 256;

/// The slices of this host.
pub(crate) struct Slices {
    clock: Clock,
    all: Mutex<All>,
    wake: Notify,
}

struct All {
    slices: BTreeMap<SliceId, Held>,
    /// Grows with each recall.
    epoch: u64,
    /// Number of the last request that reserved out of a slice.
    ticket: u64,
    /// Number of hosts that share the store.
    hosts: u64,
    is_closing: bool,
}

/// A slice with what is known besides.
#[derive(Default)]
struct Held {
    slice: Slice,
    /// Whether its row is in the database.
    has_row: bool,
    /// Whether the row has more than this host may use.
    is_due: bool,
    /// Number of usage rows that are not committed.
    rows: usize,
    /// Running requests in the order of their beginning: when that was, and the request.
    requests: BTreeMap<u64, (u64, Weak<dyn SliceRequest>)>,
    /// The names of the last request.
    last: Option<UsageRow>,
    asked_ms: u64,
    /// The epoch in which something was given back last.
    epoch: u64,
    recalled_ms: Option<u64>,
}

/// What a request holds of a slice. It must be ended.
pub(crate) struct SlicePart {
    slices: Arc<Slices>,
    id: SliceId,
    ticket: u64,
    pico: u64,
}

/// What is to be committed for the slices of a workspace.
pub(crate) struct DueSlices {
    pub(crate) workspace: WorkspaceId,
    /// Their slices have to be written anew.
    pub(crate) keys: Vec<KeyId>,
    /// These requests get an intent of their own.
    pub(crate) movers: Vec<Arc<dyn SliceRequest>>,
}

/// What a commit writes of a slice.
pub(super) struct WrittenSlice {
    pub(super) change: SliceChange,
    /// Whether requests or their rows are left in it.
    pub(super) is_open: bool,
    /// The names of the last request.
    pub(super) last: UsageRow,
}

impl Slices {
    pub(crate) fn new(clock: Clock) -> Slices {
        let all = All { slices: BTreeMap::new(), epoch: 0, ticket: 0, hosts: 1, is_closing: false };
        Slices { clock, all: Mutex::new(all), wake: Notify::new() }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        // A panic in another thread cannot leave a sum half updated.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves for a request of this host, which holds `part` already, so that it holds `pico` in all.
    /// `false` if too little is free.
    pub(crate) fn take(
        self: &Arc<Slices>,
        host: SliceHost,
        row: &UsageRow,
        part: &mut Option<SlicePart>,
        pico: u64,
        request: Weak<dyn SliceRequest>,
    ) -> bool {
        let id = SliceId { workspace: row.workspace, key: row.key, host };
        let more = match part {
            Some(part) if part.id != id => return false,
            Some(part) => pico.saturating_sub(part.pico),
            None => pico,
        };
        let now_ms = self.clock.monotonic_ms();
        let mut all = self.all();
        let All { slices, ticket, is_closing, .. } = &mut *all;
        let held = slices.entry(id).or_default();
        held.asked_ms = now_ms;
        held.slice.ask(more, now_ms);
        held.name(row);
        if *is_closing || !held.slice.take(more) {
            return false;
        }
        match part {
            Some(part) => part.pico = part.pico.saturating_add(more),
            None => {
                *ticket += 1;
                held.requests.insert(*ticket, (now_ms, request));
                *part = Some(SlicePart { slices: Arc::clone(self), id, ticket: *ticket, pico });
            }
        }
        true
    }

    /// Grows with each recall. What limits allowed that were read before one is not reserved out of after it.
    pub(crate) fn epoch(&self) -> u64 {
        self.all().epoch
    }

    /// What a commit makes of a slice.
    pub(super) fn change(
        &self,
        id: &SliceId,
        row: u64,
        taken: &Taken,
        left: Option<u64>,
        epoch: u64,
    ) -> WrittenSlice {
        let now_ms = self.clock.monotonic_ms();
        let mut all = self.all();
        let All { slices, hosts, is_closing, .. } = &mut *all;
        let held = slices.entry(*id).or_default();
        let is_recalled = held.recalled_ms.is_some_and(|at_ms| now_ms < at_ms.saturating_add(RECALLED_MS));
        let is_held_back = *is_closing || is_recalled || held.unused_ms(now_ms) >= IDLE_MS;
        let left = left.filter(|_| !is_held_back && held.epoch <= epoch);
        let change = held.slice.change(row, taken, left, *hosts, now_ms);
        let is_open = held.open() > taken.rows.saturating_add(taken.movers);
        let nameless = || UsageRow::begun(String::new(), id.workspace, id.key, UsageKind::Responses, false);
        WrittenSlice { change, is_open, last: held.last.clone().unwrap_or_else(nameless) }
    }

    /// Takes over what a durable commit has done.
    pub(crate) fn publish(&self, effects: SliceEffects) {
        let mut all = self.all();
        for (id, taken, change) in effects.changes {
            let Some(held) = all.slices.get_mut(&id) else { continue };
            held.rows = held.rows.saturating_sub(taken.rows);
            match change {
                Some(DurableSlice { change, has_row }) => {
                    // What was given back since is still in the row.
                    held.is_due = held.epoch > effects.epoch;
                    held.slice.apply(&change, !held.is_due);
                    held.has_row = has_row;
                }
                None => held.slice.replace(taken.settled, 0),
            }
        }
        drop(all);
        effects.movers.into_iter().for_each(|(request, amount)| request.moved(amount));
    }

    /// Gives back what is free of slices, and lets them grow again only after a while.
    pub(crate) fn recall(&self, is_meant: impl Fn(&SliceId) -> bool) {
        let now_ms = self.clock.monotonic_ms();
        let mut all = self.all();
        all.epoch += 1;
        let epoch = all.epoch;
        for (_, held) in all.slices.iter_mut().filter(|(id, _)| is_meant(id)) {
            held.give_back(epoch);
            held.recalled_ms = Some(now_ms);
        }
        drop(all);
        self.wake.notify_one();
    }

    /// The keys of a workspace that this host has slices of.
    pub(crate) fn keys_of(&self, workspace: WorkspaceId) -> Vec<KeyId> {
        let all = self.all();
        all.slices.keys().filter(|id| id.workspace == workspace).map(|id| id.key).collect()
    }

    /// Gives everything back that is free, and reserves nothing any more.
    pub(crate) fn close(&self) {
        self.all().is_closing = true;
        self.recall(|_| true);
    }

    pub(crate) fn set_hosts(&self, hosts: usize) {
        self.all().hosts = u64::try_from(hosts).unwrap_or(u64::MAX).max(1);
    }

    /// Waits for a recall.
    pub(crate) async fn until_recalled(&self) {
        self.wake.notified().await;
    }

    /// What has to be committed now for the slices of this host: what is given back, also of slices that no
    /// request asks for, and requests that run for long.
    pub(crate) fn due(&self, host: SliceHost) -> Vec<DueSlices> {
        let now_ms = self.clock.monotonic_ms();
        let mut due: BTreeMap<WorkspaceId, DueSlices> = BTreeMap::new();
        let mut all = self.all();
        all.epoch += 1;
        let epoch = all.epoch;
        all.slices.retain(|id, held| {
            if id.host != host {
                return held.open() > 0;
            }
            let unused_ms = held.unused_ms(now_ms);
            if unused_ms >= IDLE_MS && held.slice.free() > 0 {
                held.give_back(epoch);
            }
            let is_empty = held.open() == 0 && held.slice.amount == 0;
            let is_due = held.is_due || is_empty && held.has_row;
            let movers = held.movers(now_ms.saturating_sub(LONG_MS));
            if is_due || !movers.is_empty() {
                let workspace = id.workspace;
                let due = due.entry(workspace);
                let due =
                    due.or_insert_with(|| DueSlices { workspace, keys: Vec::new(), movers: Vec::new() });
                due.keys.push(id.key);
                let room = MOVERS_MAX.saturating_sub(due.movers.len());
                due.movers.extend(movers.into_iter().take(room));
            }
            is_due || !is_empty || held.has_row || unused_ms < FORGOTTEN_MS
        });
        drop(all);
        due.into_values().collect()
    }
}

impl Held {
    /// Number of running requests, and of rows that are not committed.
    fn open(&self) -> usize {
        self.requests.len() + self.rows
    }

    /// How long no request has asked for it, in milliseconds.
    fn unused_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.asked_ms)
    }

    fn name(&mut self, row: &UsageRow) {
        let is_named_so = |last: &UsageRow| {
            (last.kind, &last.model, &last.provider) == (row.kind, &row.model, &row.provider)
        };
        if !self.last.as_ref().is_some_and(is_named_so) {
            let begun = UsageRow::begun(String::new(), row.workspace, row.key, row.kind, row.streamed);
            let UsageRow { model, provider, .. } = row.clone();
            self.last = Some(UsageRow { model, provider, ..begun });
        }
    }

    fn give_back(&mut self, epoch: u64) {
        if self.slice.give_back() {
            self.is_due = true;
        }
        self.epoch = epoch;
    }

    /// Requests that began before.
    fn movers(&mut self, before_ms: u64) -> Vec<Arc<dyn SliceRequest>> {
        let is_long = |(_, (began_ms, _)): &(&u64, &(u64, _))| *began_ms <= before_ms;
        let long = self.requests.iter().take_while(is_long);
        long.filter_map(|(_, (_, request))| request.upgrade()).take(MOVERS_MAX).collect()
    }
}

impl SlicePart {
    pub(crate) fn id(&self) -> SliceId {
        self.id
    }

    pub(crate) fn pico(&self) -> u64 {
        self.pico
    }

    fn change(&mut self, pico: u64, also: impl FnOnce(&mut Held, u64)) {
        if let Some(held) = self.slices.all().slices.get_mut(&self.id) {
            held.slice.replace(self.pico, pico);
            also(held, self.ticket);
        }
        self.pico = pico;
    }

    /// Raises what the request holds to this, without a check.
    pub(crate) fn cover(&mut self, pico: u64) {
        if pico > self.pico {
            self.change(pico, |_, _| {});
        }
    }

    /// The request has ended with this cost. Its row is not committed.
    pub(crate) fn settle(mut self, cost_pico: u64) {
        self.change(cost_pico, |held, ticket| {
            held.requests.remove(&ticket);
            held.rows += 1;
        });
    }

    /// The request has ended without a row, or has an intent of its own.
    pub(crate) fn leave(mut self) {
        self.change(0, |held, ticket| drop(held.requests.remove(&ticket)));
    }
}

impl std::fmt::Debug for SlicePart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlicePart").field("id", &self.id).field("pico", &self.pico).finish_non_exhaustive()
    }
}
