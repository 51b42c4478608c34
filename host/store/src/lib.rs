//! The durable part of Cofferdam: workspaces, members, interns, API keys, the vault's secrets, the
//! audit log and the records of usage and spend.
//!
//! Guarantees of this crate, each with the modules that give it:
//!
//! - One process at a time uses a data directory (`lock`).
//! - A root key is generated only when a new store is created, never for a store that exists
//!   (`root_key`).
//! - Every row is authenticated with keys that only the root key can unwrap (`seal`, `rows`).
//! - A mutation that was acknowledged is durable and has an audit record (`commit`).
//! - A store that is older or newer than its anchor file is not opened (`anchor`, `open`).
//! - Authentication of a request reads memory only, never the disk (`directory`).

#![warn(missing_docs)]

mod anchor;
mod audit;
mod authentication;
mod backup;
mod changes;
mod check;
mod clock;
mod commit;
mod database;
mod directory;
mod dollars;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
#[expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "for tests only")]
pub mod fuzzing;
mod guests;
mod hex;
mod ids;
mod journal;
mod ledger;
mod lock;
mod log;
mod name;
mod open;
mod operation;
mod pending;
mod queue;
mod records;
mod root_key;
mod rows;
#[cfg(test)]
mod scratch;
mod seal;
mod secret;
mod space;
mod spend;
mod store;
mod text;
mod token;
mod usage;
mod vault;
mod versions;

pub use audit::{Actor, AuditAction, AuditEntry, AuditRecord, AuditSummary, CopiedSecret};
pub use authentication::{AuthenticationError, Principal};
pub use backup::{BackupSummary, RestoreSummary};
pub use changes::{
    KeyChange, KeyOwner, MemberDeleted, NewIntern, NewKey, NewMember, NewWorkspace, WorkspaceChange,
    WorkspaceDeleted,
};
pub use check::Verification;
pub use clock::Clock;
pub use directory::{Directory, LookupError, RecordKind};
pub use dollars::{Dollars, DollarsError};
pub use error::{Error, OpenError, OutOfStep, QueueFull};
pub use guests::{Reflection, RefusedRequest, RequestRefusal};
pub use ids::{IdError, InternId, MemberId, StoreId, WorkspaceId};
pub use ledger::{Balance, Funds, KeySpend, Pledge, Reservation, ReservationRefused};
pub use lock::{DirectoryLock, LockError};
pub use name::{Name, NameError};
pub use operation::{Progress, VaultError};
pub use pending::{Pending, QueuePermit};
pub use records::{ApiKey, Credit, Intern, KeyKind, Member, MemberRole, RoleError, Workspace};
pub use root_key::{
    PassphraseSource, RootKeyError, RootKeyId, RootKeyMaterial, RootKeySource, SourceError, Variable,
};
pub use secret::Secret;
pub use spend::{SpendLimits, SpendWindow, UsageDay, UsageDayError, WindowSpend};
pub use store::{
    APPROVAL_PROOF_DIGITS, IssuedKey, KeyRotation, OpenOptions, OrphansRemoved, RecoveryKey, RefusedTokens,
    RootRotation, Store, StoreStatus,
};
pub use token::{KeyId, KeyIdError};
pub use usage::{
    UsageBy, UsageGroup, UsageKind, UsageLabel, UsageOutcome, UsageQuery, UsageReport, UsageRow, UsageTotals,
};
pub use vault::{
    EffectiveScope, EffectiveSecret, Fingerprint, FingerprintPrefix, HostName, HostNameError, Hosts,
    HostsError, LegacySecret, NewSecret, Purpose, QuotaExceeded, QuotaMeasure, QuotaScope, Release,
    ReleaseError, ReleaseRefusal, ReleaseScope, SecretMetadata, SecretName, SecretNameError, SecretPage,
    SecretValue, SecretValueError, VaultFinding, VaultId, VaultPart, VaultQuota, VaultReport,
};
