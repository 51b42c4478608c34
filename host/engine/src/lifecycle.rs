//! How long a request lives: its deadline, its client, and the end of the host.

pub(crate) mod deadline;
pub(crate) mod departure;
pub(crate) mod shutdown;
pub(crate) mod stream;
