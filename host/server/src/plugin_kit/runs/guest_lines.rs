//! The lines that a plugin writes into the log while a case runs.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry;

/// Number of lines that are kept.
const LINES_MAX: usize = 64;
/// The target of a guest's own lines.
const GUEST: &str = "cofferdam::guest";

/// Keeps lines of the log. Clones share them.
#[derive(Clone, Default)]
pub(in super::super) struct GuestLines(Arc<Mutex<Vec<String>>>);

impl GuestLines {
    /// Takes the place of the log on this thread, until the guard is dropped.
    pub(in super::super) fn watch(&self) -> DefaultGuard {
        set_default(registry().with(self.clone()))
    }

    pub(in super::super) fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<S: Subscriber> Layer<S> for GuestLines {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let metadata = event.metadata();
        let is_warning = metadata.target().starts_with("cofferdam") && *metadata.level() <= Level::WARN;
        if metadata.target() != GUEST && !is_warning {
            return;
        }
        let mut line = format!("log: {} ", metadata.level().as_str().to_ascii_lowercase());
        event.record(&mut EventMessage(&mut line));
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < LINES_MAX {
            lines.push(line);
        }
    }
}

/// Appends the message of an event, and the function that was called. Other fields repeat what a case says anyway.
struct EventMessage<'l>(&'l mut String);

impl Visit for EventMessage<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "function" {
            write!(self.0, ", in {value}").unwrap_or_default();
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing into a `String` cannot fail.
            write!(self.0, "{value:?}").unwrap_or_default();
        }
    }
}
