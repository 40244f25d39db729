//! The records of the clients, which end unless the clients renew them.

use std::time::Duration;

use tokio::time::Instant;

use super::MemoryBackend;
use crate::backend::{Directory, Introduction, KnownClient, Reply};
use crate::values::client::RECORD_TTL;
use crate::values::{Key, clock};

/// A client's record, and the time at which it ends.
pub(super) struct ClientEntry {
    known: KnownClient,
    expires: Instant,
}

impl Directory for MemoryBackend {
    fn introduce<'a>(&'a self, client: Introduction<'a>, _: Duration) -> Reply<'a, ()> {
        self.op(move |state| {
            let now = clock::tick();
            state.clients.retain(|_, client| client.expires > now);
            let key = client.key.raw();
            let client = ClientEntry {
                known: KnownClient {
                    record: client.record.clone(),
                    since: client.began.wall(),
                },
                expires: now + RECORD_TTL,
            };
            state.clients.insert(key.into(), client);
            Ok(())
        })
    }

    fn withdraw<'a>(&'a self, key: &'a Key, _: Duration) -> Reply<'a, ()> {
        self.op(move |state| {
            state.clients.remove(key.raw());
            Ok(())
        })
    }

    fn who<'a>(&'a self, key: &'a Key, _: Duration) -> Reply<'a, Option<KnownClient>> {
        self.op(move |state| {
            let client = state.clients.get(key.raw());
            let living = client.filter(|client| client.expires > clock::tick());
            Ok(living.map(|client| client.known.clone()))
        })
    }
}
