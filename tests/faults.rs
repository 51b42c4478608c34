//! What happens to acknowledged writes when the process, the power or the disk fails.

mod canary;
mod clock;
mod damage;
mod disk;
mod kill;
mod ledger;
mod rotation;
mod rows;
mod sync;
mod timing;
