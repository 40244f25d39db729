//! The keys of all metrics of locks with one label, made once. A key is a list in a box and a hash of all its texts,
//! and each cycle of a lock needs eight.
//!
//! The recorder is looked up each time: it may be installed later, and a test has one of its own.

use std::cell::Cell;
use std::collections::BTreeMap;

use metrics::{Counter, Gauge, Histogram, Key, Level, Metadata, with_recorder};

use super::metrics::{ACQUIRES, RELEASES};
use crate::sync::Mutex;
use crate::values::{Kind, Label};

pub(super) const WAIT: &str = "lock_wait_seconds";
pub(super) const HOLD: &str = "lock_hold_seconds";
pub(super) const HELD: &str = "lock_held";
pub(super) const WAITING: &str = "lock_waiting";
pub(super) const HAND_OVERS: &str = "lock_hand_overs_total";

/// The measurements that locks of one label, one kind and one store have in common.
pub(super) struct Series {
    label: Label,
    kind: Kind,
    pub(super) waiting: Key,
    pub(super) wait: Key,
    pub(super) acquired: Key,
    pub(super) held: Key,
    pub(super) hold: Key,
    pub(super) handed_over: Key,
    pub(super) released: Key,
}

impl Series {
    fn new(label: Label, kind: Kind) -> Series {
        let labels = [
            metrics::Label::new("lock", label.lock),
            metrics::Label::new("kind", kind.name()),
            metrics::Label::new("store", label.store),
        ];
        let key = |name| Key::from_parts(name, labels.to_vec());
        let key_of = |name, outcome| {
            let outcome = metrics::Label::new("outcome", outcome);
            Key::from_parts(name, [labels.as_slice(), &[outcome]].concat())
        };
        Series {
            label,
            kind,
            waiting: key(WAITING),
            wait: key(WAIT),
            acquired: key_of(ACQUIRES, "acquired"),
            held: key(HELD),
            hold: key(HOLD),
            handed_over: key(HAND_OVERS),
            released: key_of(RELEASES, "released"),
        }
    }

    /// Whether it has these texts, by their addresses: comparing the texts would cost more than the rest.
    fn is_of(&self, label: Label, kind: Kind) -> bool {
        std::ptr::eq(self.label.lock, label.lock)
            && std::ptr::eq(self.label.store, label.store)
            && self.kind == kind
    }
}

const NEAR: usize = 16;

/// Never dropped: there are no more of them than texts in the program.
static ALL: Mutex<BTreeMap<[&'static str; 3], &'static Series>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// The series that this thread has used last.
    static MET: [Cell<Option<&'static Series>>; NEAR] = const { [const { Cell::new(None) }; NEAR] };
}

pub(super) fn of(label: Label, kind: Kind) -> &'static Series {
    let place = (label.lock.as_ptr().addr() / 8 + kind as usize) % NEAR;
    MET.with(|met| match met[place].get() {
        Some(series) if series.is_of(label, kind) => series,
        _ => {
            let series = find(label, kind);
            met[place].set(Some(series));
            series
        }
    })
}

fn find(label: Label, kind: Kind) -> &'static Series {
    let texts = [label.lock, label.store, kind.name()];
    let mut all = ALL.lock();
    all.entry(texts)
        .or_insert_with(|| Box::leak(Box::new(Series::new(label, kind))))
}

static METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

pub(super) fn counter(key: &Key) -> Counter {
    with_recorder(|recorder| recorder.register_counter(key, &METADATA))
}

pub(super) fn gauge(key: &Key) -> Gauge {
    with_recorder(|recorder| recorder.register_gauge(key, &METADATA))
}

pub(super) fn histogram(key: &Key) -> Histogram {
    with_recorder(|recorder| recorder.register_histogram(key, &METADATA))
}
