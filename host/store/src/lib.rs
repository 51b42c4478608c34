//! The durable part of Cofferdam: workspaces, members, interns, API keys, the vault's secrets, the
//! audit log and the records of usage and spend.
//!
//! Guarantees of this crate, each with the modules that give it:
//!
//! - One process at a time uses a data directory (`fjall`).
//! - A root key is generated only when a new store is created, never for a store that exists
//!   (`root_key`).
//! - Every row is authenticated with keys that only the root key can unwrap (`seal`, `rows`).
//! - A mutation that was acknowledged is durable and has an audit record (`fjall`).
//! - A store that is older or newer than its anchor file is opened only if the operator accepts it
//!   (`fjall`, `open`).
//! - Authentication of a request reads memory only, never the disk (`directory`).
//!
//! The modules are listed from [`Store`], which the rest of the program uses, down to what they
//! share. Each module imports only modules below it.

#![warn(missing_docs)]

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[expect(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "for tests only")]
pub mod fuzzing;
#[cfg(test)]
mod scratch;

mod store;

mod open;

mod backup;

mod ledger;

mod fjall;

mod database;
#[cfg(feature = "postgres")]
mod postgres;

mod check;

#[cfg(any(test, feature = "postgres"))]
mod loaded;

mod queue;

mod pending;

mod published;

#[cfg(feature = "postgres")]
mod shared_flush;
mod shared_limits;

mod changes;

mod authentication;
mod vault;

mod hosts;
mod knowledge;
mod operation;
mod state;

mod directory;

mod commit;
mod log;
mod space;

mod audit;
mod usage;

mod header;

mod rows;

mod seal;

mod error;

mod lookup;
mod page;
mod quota;
mod records;
mod root_key;

mod spend;
mod token;

mod secret;

#[cfg(debug_assertions)]
pub mod canaries;
mod clock;
mod digest;
mod dollars;
mod draft;
mod hex;
mod ids;
mod measure;
mod name;
mod text;

pub use self::fjall::{DirectoryLock, LockError};
pub use audit::{
    Actor, AuditAction, AuditEntry, AuditRecord, CopiedSecret, Purpose, Reflection, RefusedRequest,
    ReleaseRefusal, RequestRefusal, VaultFinding, VaultPart,
};
pub use authentication::{AuthenticationError, Principal};
pub use backup::{BackupSummary, LastBackup, RestoreSummary};
pub use changes::{
    KeyChange, KeyOwner, LimitsChange, MemberDeleted, NewIntern, NewKey, NewMember, NewWorkspace,
    WorkspaceChange, WorkspaceDeleted,
};
pub use check::Verification;
pub use clock::Clock;
pub use database::{Database, DatabaseError, DatabaseUrl, LedgerMode};
pub use directory::OwnedKey;
pub use dollars::{Dollars, DollarsError};
pub use draft::{Draft, drafted};
pub use error::{Error, OpenError, OutOfStep, QueueFull};
pub use hex::encode as hex;
pub use hosts::{HostFacts, StoreSchema};
pub use ids::{IdError, InternId, MemberId, StoreId, VaultId, WorkspaceId};
pub use knowledge::RequestPurpose;
pub use ledger::{Balance, KeySpend};
pub use lookup::{LookupError, RecordKind};
pub use measure::{HistogramReading, HistogramScale, NamedMeters, OTHER, SECONDS, StripedHistogram};
pub use name::{Name, NameError};
pub use operation::{Progress, VaultError};
pub use page::Page;
pub use pending::{Pending, QueuePermit};
pub use queue::QueuePart;
pub use quota::{QuotaExceeded, QuotaMeasure, QuotaScope, VaultQuota};
pub use records::{ApiKey, Credit, Intern, KeyCounts, KeyKind, Member, MemberRole, RoleError, Workspace};
pub use root_key::{
    PassphraseSource, RootKeyError, RootKeyId, RootKeyMaterial, RootKeySource, SourceError, Variable,
};
pub use secret::{
    Fingerprint, FingerprintPrefix, HostName, HostNameError, Hosts, HostsError, Secret, SecretMetadata,
    SecretName, SecretNameError, SecretValue, SecretValueError,
};
pub use shared_limits::{BucketAnswer, BucketAsk, BucketRate, LimitsAway, SeatAsk, SharedLimits};
pub use spend::{SpendLimits, SpendWindow, UsageDay, UsageDayError, WindowSpend};
pub use store::{
    APPROVAL_PROOF_DIGITS, CopyPermit, IssuedKey, KeyRotation, MoveSummary, OpenOptions, OrphansRemoved,
    Pledge, RecoveryKey, RefusedTokens, Reservation, RootRotation, Store, StoreStatus,
};
pub use token::{KeyId, KeyIdError};
pub use usage::{
    ReservationRefused, UsageBy, UsageGroup, UsageKind, UsageLabel, UsageOutcome, UsageQuery, UsageReport,
    UsageRow, UsageTotals,
};
pub use vault::{
    BoundSecret, EffectiveScope, EffectiveSecret, LegacySecret, NewSecret, Release, ReleaseError,
    ReleaseRequest, ReleaseScope,
};
