//! Audit records of guests' outbound requests. They are handed to the writer without waiting: a
//! kill of the process may lose those of the last second.

use super::Store;
use crate::audit::{Actor, AuditAction, AuditEntry, Reflection, RefusedRequest};
use crate::error::QueueFull;

impl Store {
    /// Records that a guest's request was refused.
    ///
    /// # Errors
    /// [`QueueFull`] when 4,096 audit entries wait, or the store does not write.
    pub fn note_refused_request(&self, actor: Actor, refused: RefusedRequest) -> Result<(), QueueFull> {
        self.0.queues.push_audit(AuditEntry { actor, action: AuditAction::RequestRefused(refused) })
    }

    /// Records that a host sent a secret back.
    ///
    /// # Errors
    /// [`QueueFull`] as for [`Store::note_refused_request`].
    pub fn note_reflection(&self, actor: Actor, reflection: Reflection) -> Result<(), QueueFull> {
        self.0.queues.push_audit(AuditEntry { actor, action: AuditAction::SecretReflected(reflection) })
    }
}
