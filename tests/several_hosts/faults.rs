//! What clients were told holds whatever happens to hosts, to the database and to the connections between them.
//!
//! Three hosts have a primary with a synchronous standby, each by proxies of its own. Clients of all kinds ask through
//! all hosts, and note what they were told. After each fault this is compared with what is there.

mod check;
mod cluster;
mod connections;
mod doors;
mod hosts;
mod load;
mod primary;
mod report;
mod told;
