//! The spans `lock.wait` and `lock.hold`: what they say, and when they end.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use lock_runtime::{LockManager, LockName};
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber, span};

/// A span: its fields as text, and whether it has ended.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    fields: BTreeMap<String, String>,
    handles: i32,
}

#[derive(Clone, Debug)]
struct Spans(Arc<Mutex<Vec<Seen>>>);

impl Default for Spans {
    /// Sets a subscriber for the whole process first, which is asked about each span. Without it, if another thread meets a
    /// span first at this moment, tracing may remember that nobody wants the span.
    fn default() -> Spans {
        static WHOLE_PROCESS: Once = Once::new();
        let spans = || Spans(Arc::default());
        WHOLE_PROCESS.call_once(|| _ = tracing::subscriber::set_global_default(spans()));
        spans()
    }
}

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        self.0
            .insert(field.name().to_owned(), text.trim_matches('"').to_owned());
    }
}

impl Spans {
    fn with(&self, id: &span::Id, change: impl FnOnce(&mut Seen)) {
        let index = id.into_u64() as usize - 1;
        change(&mut self.0.lock().unwrap()[index]);
    }

    /// Name, outcome, and whether it has ended, in the order in which they began.
    fn all(&self) -> Vec<(&'static str, String, bool)> {
        let spans = self.0.lock().unwrap();
        let shown = spans.iter().map(|span| {
            let outcome = span.fields.get("outcome").cloned().unwrap_or_default();
            (span.name, outcome, span.handles == 0)
        });
        shown.collect()
    }

    fn field(&self, index: usize, field: &str) -> Option<String> {
        self.0.lock().unwrap()[index].fields.get(field).cloned()
    }
}

impl Subscriber for Spans {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
            && *metadata.level() == Level::DEBUG
            && metadata.target().starts_with("lock_runtime")
    }
    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut seen = Seen {
            name: attributes.metadata().name(),
            handles: 1,
            ..Seen::default()
        };
        attributes.record(&mut Fields(&mut seen.fields));
        let mut spans = self.0.lock().unwrap();
        spans.push(seen);
        span::Id::from_u64(spans.len() as u64)
    }
    fn record(&self, id: &span::Id, values: &span::Record<'_>) {
        self.with(id, |span| values.record(&mut Fields(&mut span.fields)));
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn clone_span(&self, id: &span::Id) -> span::Id {
        self.with(id, |span| span.handles += 1);
        id.clone()
    }
    fn try_close(&self, id: span::Id) -> bool {
        let mut closed = false;
        self.with(&id, |span| {
            span.handles -= 1;
            closed = span.handles == 0;
        });
        closed
    }
}

fn order(number: u32) -> LockName {
    LockName::from("order:")
        .with(&number)
        .template("order:{id}")
}

fn text(parts: &[(&'static str, &str, bool)]) -> Vec<(&'static str, String, bool)> {
    let owned = |(name, outcome, ended): &(&'static str, &str, bool)| {
        (*name, (*outcome).to_owned(), *ended)
    };
    parts.iter().map(owned).collect()
}

#[tokio::test(start_paused = true)]
async fn a_trace_shows_the_wait_and_the_hold_of_a_lock() {
    let spans = Spans::default();
    let _watched = tracing::subscriber::set_default(spans.clone());
    let locks = LockManager::in_memory();
    let guard = locks.mutex(order(7)).acquire().await.unwrap();
    assert_eq!(
        spans.all(),
        text(&[("lock.wait", "acquired", true), ("lock.hold", "", false)])
    );
    let token = guard.fencing_token().unwrap().get().to_string();
    for (index, field, value) in [
        (0, "lock", "order:7"),
        (0, "template", "order:{id}"),
        (0, "kind", "mutex"),
        (0, "store", "memory"),
        (1, "lock", "order:7"),
        (1, "token", &token),
    ] {
        assert_eq!(spans.field(index, field).as_deref(), Some(value), "{field}");
    }
    let busy = locks.mutex(order(7)).wait(Duration::from_secs(1)).acquire();
    assert!(busy.await.is_err());
    guard.release().await.unwrap();
    assert_eq!(
        spans.all()[1..],
        text(&[("lock.hold", "released", true), ("lock.wait", "busy", true)])
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_and_a_cancelled_wait_say_so() {
    let spans = Spans::default();
    let _watched = tracing::subscriber::set_default(spans.clone());
    let locks = LockManager::in_memory();
    let guard = locks.fair(order(7)).acquire().await.unwrap();
    let cancelled = locks.fair(order(7)).acquire();
    assert!(
        tokio::time::timeout(Duration::from_millis(50), cancelled)
            .await
            .is_err()
    );
    locks.force_release(order(7)).await.unwrap();
    guard.lost().await;
    drop(guard);
    assert_eq!(
        spans.all(),
        text(&[
            ("lock.wait", "acquired", true),
            ("lock.hold", "lost", true),
            ("lock.wait", "cancelled", true)
        ])
    );
}
