//! The layer's own caps on waiting requests. A manager has caps of its own, over all of its callers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_runtime::LockName;

use crate::refusal::RefusalKind;

/// How many requests may wait at a time. `None`: as many as the manager lets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Caps {
    pub(crate) all: Option<usize>,
    pub(crate) per_key: Option<usize>,
}

/// Who waits in the services of one layer.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    keys: HashMap<Arc<str>, usize>,
    clients: HashMap<Arc<str>, usize>,
}

impl Crowd {
    // Nothing panics while the counts are locked.
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request in until its ticket is dropped, or says which cap is reached. `None` where nothing is
    /// capped, and nothing is counted.
    pub(crate) fn enter(
        self: &Arc<Crowd>,
        caps: Caps,
        name: &LockName,
        client: Option<(LockName, usize)>,
    ) -> Result<Option<Ticket>, RefusalKind> {
        if caps.all.is_none() && caps.per_key.is_none() && client.is_none() {
            return Ok(None);
        }
        let mut counts = self.counts();
        let waiting = |of: &HashMap<Arc<str>, usize>, name: &LockName| {
            of.get(name.as_str()).copied().unwrap_or(0)
        };
        // The client's own cap first: it is the client who can do something about it.
        if let Some((client, most)) = &client
            && waiting(&counts.clients, client) >= *most
        {
            return Err(RefusalKind::ClientOverloaded);
        }
        if caps.all.is_some_and(|most| counts.all >= most)
            || caps
                .per_key
                .is_some_and(|most| waiting(&counts.keys, name) >= most)
        {
            return Err(RefusalKind::Overloaded);
        }
        let key = caps.per_key.map(|_| Arc::from(name.as_str()));
        let client = client.map(|(client, _)| Arc::from(client.as_str()));
        counts.all += 1;
        let of_key = key.iter().cloned();
        of_key.for_each(|key| *counts.keys.entry(key).or_default() += 1);
        let of_client = client.iter().cloned();
        of_client.for_each(|client| *counts.clients.entry(client).or_default() += 1);
        drop(counts);
        Ok(Some(Ticket {
            crowd: self.clone(),
            key,
            client,
        }))
    }
}

/// A request that waits and is counted.
#[derive(Debug)]
pub(crate) struct Ticket {
    crowd: Arc<Crowd>,
    key: Option<Arc<str>>,
    client: Option<Arc<str>>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut counts = self.crowd.counts();
        counts.all -= 1;
        if let Some(key) = &self.key {
            leave(&mut counts.keys, key);
        }
        if let Some(client) = &self.client {
            leave(&mut counts.clients, client);
        }
    }
}

/// Names with nobody waiting are forgotten: there is no end of them.
fn leave(counts: &mut HashMap<Arc<str>, usize>, name: &Arc<str>) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}
