//! The layer's own caps on waiting requests. A manager has caps of its own, over all of its callers.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_runtime::LockName;

use crate::key::Client;
use crate::refusal::RefusalKind;

/// The numbers of requests that may wait at a time. With `None`, only the manager's caps apply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Caps {
    pub(crate) all: Option<usize>,
    pub(crate) per_key: Option<usize>,
}

/// The requests that wait in the services of one layer.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    keys: HashMap<Arc<str>, usize>,
    clients: HashMap<ClientName, usize>,
}

/// The name of a client. `None` stands for all requests that name no client.
type ClientName = Option<Arc<str>>;

impl Waiters {
    // Nothing panics while the counts are locked, so their poison means nothing.
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request until the returned [`Waiting`] is dropped. The error says which cap is reached. Returns `None`,
    /// and counts nothing, if nothing is capped.
    pub(crate) fn enter(
        self: &Arc<Waiters>,
        caps: Caps,
        client: Option<Client>,
    ) -> Result<Option<Waiting>, RefusalKind> {
        if caps.all.is_none() && caps.per_key.is_none() && client.is_none() {
            return Ok(None);
        }
        let mut counts = self.counts();
        let name = |name: LockName| Arc::from(name.as_str());
        let client = client.map(|client| (client.name.map(name), client.most));
        // The client's own cap comes first, because the client can do something about it.
        if let Some((client, most)) = &client
            && is_full(&counts.clients, client, *most)
        {
            return Err(RefusalKind::ClientOverloaded);
        }
        if caps.all.is_some_and(|most| counts.all >= most) {
            return Err(RefusalKind::Overloaded);
        }
        let client = client.map(|(client, _)| client);
        counts.all += 1;
        if let Some(client) = &client {
            *counts.clients.entry(client.clone()).or_default() += 1;
        }
        drop(counts);
        Ok(Some(Waiting {
            waiters: self.clone(),
            per_key: caps.per_key,
            key: None,
            client,
        }))
    }
}

/// A request that waits and is counted.
#[derive(Debug)]
pub(crate) struct Waiting {
    waiters: Arc<Waiters>,
    per_key: Option<usize>,
    key: Option<Arc<str>>,
    client: Option<ClientName>,
}

impl Waiting {
    /// Counts the request for its key, too. The error says that the key's cap is reached.
    pub(crate) fn ask_for(mut self, name: &LockName) -> Result<Waiting, RefusalKind> {
        let Some(most) = self.per_key else {
            return Ok(self);
        };
        let key = Arc::from(name.as_str());
        let mut counts = self.waiters.counts();
        if is_full(&counts.keys, &key, most) {
            return Err(RefusalKind::Overloaded);
        }
        *counts.keys.entry(key.clone()).or_default() += 1;
        drop(counts);
        self.key = Some(key);
        Ok(self)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut counts = self.waiters.counts();
        counts.all -= 1;
        if let Some(key) = &self.key {
            leave(&mut counts.keys, key);
        }
        if let Some(client) = &self.client {
            leave(&mut counts.clients, client);
        }
    }
}

fn is_full<N: Eq + Hash>(counts: &HashMap<N, usize>, name: &N, most: usize) -> bool {
    counts.get(name).copied().unwrap_or(0) >= most
}

/// Counts one request less for `name`. A name without requests is removed, because there is no limit to how many names
/// there are.
fn leave<N: Eq + Hash>(counts: &mut HashMap<N, usize>, name: &N) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}
