//! What the runtime leaves in the log.

use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Keeps what `lock_runtime` says; a subscriber for [`tracing::subscriber::set_default`], so for one thread.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<Mutex<Vec<(Level, String)>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("lock_runtime")
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let mut events = self.0.lock().unwrap();
        events.push((*event.metadata().level(), text.0));
    }
}

impl Events {
    /// The events of one level so far, each as its fields.
    #[must_use]
    pub fn of(&self, level: Level) -> Vec<String> {
        let events = self.0.lock().unwrap();
        let of_level = events.iter().filter(|(of, _)| *of == level);
        of_level.map(|(_, text)| text.clone()).collect()
    }
}
