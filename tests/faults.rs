//! Acknowledged writes must survive when the process, the power or the disk fails.

mod canary;
mod clock;
mod damage;
mod disk;
mod kill;
mod ledger;
mod memory;
mod mixed;
mod rotation;
mod rows;
mod sync;
mod timing;
