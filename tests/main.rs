//! Black-box tests: each starts the built program and talks to it through its
//! real doors. Modules in reading order.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::excessive_nesting,
    unreachable_pub,
    missing_docs,
    reason = "tests: a panic is how they fail, and nobody imports them"
)]

mod kit;

mod start;

mod responses;
mod streaming;

mod fallback;

mod embeddings;

mod bad_input;
