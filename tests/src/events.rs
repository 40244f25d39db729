//! The events that the runtime logs.

use std::sync::{Arc, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber, span};

/// A subscriber that keeps what `lock_runtime` logs. It is for [`tracing::subscriber::set_default`], so for one thread.
#[derive(Clone, Debug)]
pub struct Events(Arc<Mutex<Vec<(Level, String)>>>);

impl Default for Events {
    /// Registers a subscriber for the whole process first, which says that it may want any event. Without it, if
    /// another thread meets an event first at this moment, tracing may remember that nobody wants the event.
    fn default() -> Self {
        static SOMEBODY: Once = Once::new();
        SOMEBODY.call_once(|| {
            // An error means that the process has one already.
            let _ = tracing::subscriber::set_global_default(Undecided);
        });
        Self(Arc::default())
    }
}

/// A subscriber that wants no event, and is asked about each one.
struct Undecided;

impl Subscriber for Undecided {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

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
    /// Returns the events of one level so far, each as its fields.
    #[must_use]
    pub fn of(&self, level: Level) -> Vec<String> {
        let events = self.0.lock().unwrap();
        let of_level = events.iter().filter(|(of, _)| *of == level);
        of_level.map(|(_, text)| text.clone()).collect()
    }
}
