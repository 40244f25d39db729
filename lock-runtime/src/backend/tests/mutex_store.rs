//! The smallest store: five methods, mutexes only, no push. CONTRIBUTING.md walks through it.

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::backend::{
    AcquireRequest, Acquired, Backend, Event, EventSink, Fault, Granted, HoldRef, Released,
    Renewal, Renewed, Reply, Snapshot, Victim,
};
use crate::values::clock;
use crate::values::fence::FencingToken;
use crate::values::holder::HolderId;
use crate::values::key::Key;
use crate::values::kind::LockMode;

/// What the store knows. Clones of the `Arc` are the same store, for several managers.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Mutex<HashMap<String, Row>>,
}

#[derive(Debug)]
struct Row {
    holder: Option<HolderId>,
    expires: Instant,
    /// Never goes back: a row stays when its lock is free.
    token: Option<FencingToken>,
}

impl Row {
    fn is_held(&self) -> bool {
        self.holder.is_some() && self.expires > clock::tick()
    }

    fn left(&self) -> Duration {
        self.expires - clock::tick()
    }
}

/// One manager's access to the table.
#[derive(Debug)]
pub(super) struct MutexStore {
    table: Arc<Table>,
    events: Events,
}

struct Events(EventSink);

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

impl MutexStore {
    pub(super) fn new(table: &Arc<Table>, events: EventSink) -> MutexStore {
        MutexStore {
            table: table.clone(),
            events: Events(events),
        }
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<String, Row>> {
        self.table.rows.lock().unwrap()
    }
}

fn done<'a, T: Send + 'a>(answer: T) -> Reply<'a, T> {
    Box::pin(ready(Ok::<T, Fault>(answer)))
}

impl Backend for MutexStore {
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired> {
        // Before anything that may take time: the lease counts from here.
        let sent_at = request.asked_at;
        let HoldRef { key, holder, .. } = request.hold_ref;
        let mut rows = self.rows();
        let row = rows.entry(key.raw().to_owned()).or_insert_with(|| Row {
            holder: None,
            expires: clock::tick(),
            token: None,
        });
        // The same request again has the effect of once.
        if row.is_held() && row.holder != Some(holder) {
            let left = Some(row.left());
            return done(Acquired::Busy { left });
        }
        if row.holder != Some(holder) {
            row.token = Some(FencingToken::after(row.token, clock::wall_micros()));
        }
        row.holder = Some(holder);
        row.expires = clock::tick() + request.ttl.duration();
        let token = row.token.filter(|_| request.fenced);
        done(Acquired::Granted(Granted { token, sent_at }))
    }

    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, _: Duration) -> Reply<'a, Released> {
        let mut rows = self.rows();
        let row = rows.get_mut(hold_ref.key.raw());
        match row.filter(|row| row.is_held() && row.holder == Some(hold_ref.holder)) {
            Some(row) => {
                row.holder = None;
                done(Released::Done)
            }
            None => done(Released::NotHeld),
        }
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        _: Duration,
        _: Duration,
    ) -> Reply<'a, Vec<Renewed>> {
        let mut rows = self.rows();
        let mut renew = |item: &Renewal| {
            let row = rows.get_mut(item.key.raw());
            let Some(row) = row.filter(|row| row.is_held() && row.holder == Some(item.holder))
            else {
                return Renewed::NotHeld;
            };
            if let Some(ttl) = item.ttl {
                // Never shorter: a late copy of a request must not take anything away.
                row.expires = row.expires.max(clock::tick() + ttl.duration());
            }
            Renewed::Held
        };
        done(batch.iter().map(&mut renew).collect())
    }

    fn force_release<'a>(&'a self, key: &'a Key, _: Duration) -> Reply<'a, bool> {
        let victim = {
            let mut rows = self.rows();
            let row = rows.get_mut(key.raw()).filter(|row| row.is_held());
            row.and_then(|row| row.holder.take())
        };
        if let Some(holder) = victim {
            (self.events.0)(Event::ForceReleased(Victim::Id(holder)));
        }
        done(victim.is_some())
    }

    fn inspect<'a>(&'a self, key: &'a Key, _: Duration) -> Reply<'a, Option<Snapshot>> {
        let rows = self.rows();
        let row = rows.get(key.raw()).filter(|row| row.is_held());
        done(row.map(|row| Snapshot {
            mode: LockMode::Exclusive,
            holder: row.holder.map(HolderId::text),
            count: 1,
            left: Some(row.left()),
            available: None,
            queued: 0,
            readers: 0,
        }))
    }

    fn name(&self) -> &'static str {
        "the store of this test"
    }
}
