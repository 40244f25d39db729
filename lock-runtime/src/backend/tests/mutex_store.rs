//! The smallest store: six methods, mutexes only, no push: waiters ask again within the longest nap.
//! CONTRIBUTING.md walks through it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::backend::{
    AcquireRequest, Acquired, Backend, Event, EventSink, Granted, HoldRef, Holders, Released,
    Renewal, Renewed, Reply, Snapshot, Within,
};
use crate::values::{FencingToken, HolderId, Key, LockMode, StoreKind, clock};

/// The state of the store. Clones of the `Arc` are the same store, for several managers.
#[derive(Default)]
pub(super) struct Table {
    rows: Mutex<HashMap<String, Row>>,
    /// The managers that use it. A holder is told of its forced release wherever it is.
    listeners: Mutex<Vec<EventSink>>,
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
pub(super) struct MutexStore {
    table: Arc<Table>,
    events: EventSink,
}

impl MutexStore {
    pub(super) fn new(table: &Arc<Table>, events: EventSink) -> MutexStore {
        table.listeners.lock().unwrap().push(events.clone());
        let table = table.clone();
        MutexStore { table, events }
    }

    /// An answer that is worked out when it is polled: a request that was dropped before has done nothing.
    fn reply<'a, T: Send + 'a>(
        &'a self,
        work: impl FnOnce(&mut HashMap<String, Row>) -> T + Send + 'a,
    ) -> Reply<'a, T> {
        Box::pin(async move { Ok(work(&mut self.table.rows.lock().unwrap())) })
    }
}

impl Backend for MutexStore {
    fn acquire<'a>(&'a self, request: AcquireRequest<'a>) -> Reply<'a, Acquired> {
        // Before anything that may take time: the lease counts from here.
        let sent_at = request.asked_at;
        let HoldRef { key, holder, .. } = request.hold_ref;
        self.reply(move |rows| {
            let row = rows.entry(key.raw().to_owned()).or_insert_with(|| Row {
                holder: None,
                expires: clock::tick(),
                token: None,
            });
            if row.is_held() && row.holder != Some(holder) {
                let left = Some(row.left());
                return Acquired::busy(left);
            }
            // The same request again has the effect of once.
            if row.holder != Some(holder) {
                row.token = Some(FencingToken::after(row.token, clock::wall_micros()));
            }
            row.holder = Some(holder);
            row.expires = clock::tick() + request.ttl.duration();
            let token = row.token.filter(|_| request.fenced);
            Acquired::Granted(Granted::leased(token, sent_at), None)
        })
    }

    fn release<'a>(&'a self, hold_ref: HoldRef<'a>, _: Duration) -> Reply<'a, Released> {
        self.reply(
            move |rows| match held_by(rows, hold_ref.key, hold_ref.holder) {
                Some(row) => {
                    row.holder = None;
                    Released::Done
                }
                None => Released::NotHeld,
            },
        )
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal], _: Within) -> Reply<'a, Vec<Renewed>> {
        self.reply(move |rows| {
            let renew = |item: &Renewal| {
                let Some(row) = held_by(rows, &item.key, item.holder) else {
                    return Renewed::NotHeld;
                };
                if let Some(ttl) = item.ttl {
                    // Never shorter: a late copy of a request must not take anything away.
                    row.expires = row.expires.max(clock::tick() + ttl.duration());
                }
                Renewed::Held
            };
            batch.iter().map(renew).collect()
        })
    }

    fn force_release<'a>(&'a self, key: &'a Key, _: Duration) -> Reply<'a, bool> {
        Box::pin(async move {
            let take = |rows: &mut HashMap<String, Row>| {
                let row = rows.get_mut(key.raw()).filter(|row| row.is_held());
                row.and_then(|row| row.holder.take())
            };
            let victim = self.reply(take).await?;
            if let Some(holder) = victim {
                // Nothing is locked: a waker may ask the store at once.
                let listeners = self.table.listeners.lock().unwrap().clone();
                for tell in listeners {
                    tell(Event::ForceReleased(Holders::Id(holder)));
                }
            }
            Ok(victim.is_some())
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key, _: Duration) -> Reply<'a, Option<Snapshot>> {
        self.reply(move |rows| {
            let row = rows.get(key.raw()).filter(|row| row.is_held())?;
            Some(Snapshot {
                holder: row.holder.map(HolderId::text),
                left: Some(row.left()),
                ..Snapshot::of(LockMode::Exclusive)
            })
        })
    }

    fn store(&self) -> StoreKind {
        StoreKind::Memory
    }

    fn close(&self) {
        let mut listeners = self.table.listeners.lock().unwrap();
        listeners.retain(|listener| !Arc::ptr_eq(listener, &self.events));
    }
}

/// A manager that was dropped, not shut down, has nobody to tell either.
impl Drop for MutexStore {
    fn drop(&mut self) {
        self.close();
    }
}

/// The row of a key, if that holder has it.
fn held_by<'a>(
    rows: &'a mut HashMap<String, Row>,
    key: &Key,
    holder: HolderId,
) -> Option<&'a mut Row> {
    let row = rows.get_mut(key.raw())?;
    (row.is_held() && row.holder == Some(holder)).then_some(row)
}
