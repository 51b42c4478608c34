//! Audit records of guests' requests that are handed to the writer and not waited for: a kill may cost those of
//! the last second.

use super::Store;
use crate::audit::{Actor, AuditAction, AuditEntry};
use crate::error::QueueFull;
use crate::guests::{Reflection, RefusedRequest};

impl Store {
    /// Writes down that a guest's request was refused.
    ///
    /// # Errors
    /// [`QueueFull`] when 4,096 audit records wait, or the store does not write.
    pub fn note_refused_request(&self, actor: Actor, refused: RefusedRequest) -> Result<(), QueueFull> {
        self.0.queue.push_audit(AuditEntry { actor, action: AuditAction::RequestRefused(refused) })
    }

    /// Writes down that a host sent a secret back.
    ///
    /// # Errors
    /// [`QueueFull`] as above.
    pub fn note_reflection(&self, actor: Actor, reflection: Reflection) -> Result<(), QueueFull> {
        self.0.queue.push_audit(AuditEntry { actor, action: AuditAction::SecretReflected(reflection) })
    }
}
