//! Permits for instances: the permit to use one, and the room for one that exists.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::OwnedSemaphorePermit;

use crate::fairness::{Fairness, OwnerPermit};

/// How many permits for instances are taken, and the rule that limits each owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstancePermits {
    /// Permits that are taken.
    pub taken: usize,
    /// Permits that the owner in question holds.
    pub held: usize,
    /// The rule that refuses more permits to an owner.
    pub fairness: Fairness,
}

/// A permit to use an instance. There are as many as instances. A holder that gave its instance
/// back for a while always gets one again: if necessary, an idle instance is ended.
pub(crate) struct Claim {
    _permit: OwnedSemaphorePermit,
    _held: Option<OwnerPermit>,
}

impl Claim {
    pub(crate) fn new(permit: OwnedSemaphorePermit, held: Option<OwnerPermit>) -> Self {
        Self { _permit: permit, _held: held }
    }
}

/// An instance that exists, idle or in use. The epoch is incremented until this value is dropped.
pub(crate) struct TickedInstance(Arc<AtomicUsize>);

impl TickedInstance {
    /// Counts an instance in `instances`. Returns also whether it is the only one.
    pub(crate) fn count(instances: &Arc<AtomicUsize>) -> (Self, bool) {
        let is_first = instances.fetch_add(1, Ordering::Relaxed) == 0;
        (Self(Arc::clone(instances)), is_first)
    }
}

impl Drop for TickedInstance {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Room for one instance, idle or in use. Given back on drop.
pub(crate) struct InstanceSlot {
    _permit: OwnedSemaphorePermit,
    _ticked: TickedInstance,
}

impl InstanceSlot {
    pub(crate) fn new(permit: OwnedSemaphorePermit, ticked: TickedInstance) -> Self {
        Self { _permit: permit, _ticked: ticked }
    }
}
