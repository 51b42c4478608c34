//! Request plugins: hooks that a request asks for by id, or has by default.

mod compression;
mod defaults;
mod files;
mod healing;
mod held;
mod moderation;

use crate::kit::upstream::Upstream;

/// The text of the messages that the provider was asked last.
fn asked(upstream: &Upstream) -> String {
    upstream.asked().pop().expect("nobody was asked").body["messages"].to_string()
}
