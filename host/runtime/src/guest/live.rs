//! One live instance of a guest, in use or idle, and whether it may be used again.

use std::sync::Arc;

use wasmtime::Store;
use wasmtime::component;

use super::GuestState;
use super::exports::Exports;
use crate::account::InstanceAccount;
use crate::context::{Alias, CallContext};
use crate::permits::InstanceSlot;
use crate::services::Services;

/// Number of uses after which an instance is replaced, so that small leaks of a guest do not
/// accumulate.
const USES_MAX: u32 = 1_000;
/// Largest size of an instance that is kept. An instance that grew for an unusual request would
/// hold that memory while idle.
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A live guest, in use or idle. Fields are dropped in order: the store must be dropped before the
/// slot is free.
pub(crate) struct LiveInstance {
    pub(crate) store: Store<GuestState>,
    pub(crate) handle: component::Instance,
    /// The exports that were looked up so far.
    pub(crate) exports: Exports,
    pub(crate) account: Arc<InstanceAccount>,
    pub(crate) alias: Alias,
    pub(crate) uses: u32,
    _slot: InstanceSlot,
}

impl LiveInstance {
    /// An instance that was just created and not used yet.
    pub(crate) fn new(
        store: Store<GuestState>,
        handle: component::Instance,
        account: Arc<InstanceAccount>,
        slot: InstanceSlot,
    ) -> Self {
        let (exports, alias) = (Exports::default(), Alias::default());
        Self { store, handle, exports, account, alias, uses: 0, _slot: slot }
    }

    /// Whether this use leaves nothing behind except in the guest's own memory: no open handle,
    /// nothing that was refused, and a memory of ordinary size.
    pub(crate) fn is_clean(&self) -> bool {
        let state = self.store.data();
        state.table.is_empty()
            && self.account.cut().is_none()
            && state.limiter.bytes() <= KEPT_BYTES_MAX
            && self.uses < USES_MAX
            && !state.limiter.has_room()
    }

    /// Resets the host's state for another call.
    pub(crate) fn renew(&mut self, context: &CallContext) {
        self.account.renew();
        let state = self.store.data_mut();
        state.services = Services::default();
        state.log.turn_to(Arc::clone(&context.request_id));
        state.clock.set(context.now_ms);
        (state.asks, state.requests) = (0, 0);
    }
}
