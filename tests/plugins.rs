//! Request plugins: hooks that a request selects by id, or that its workspace has by default.

mod compression;
mod defaults;
mod files;
mod healing;
mod held;
mod moderation;

use crate::kit::upstream::Upstream;

/// The messages of the last request to the provider, as JSON text.
fn asked(upstream: &Upstream) -> String {
    upstream.asked().pop().expect("nobody was asked").body["messages"].to_string()
}
