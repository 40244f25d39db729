//! The clients of the holders and waiters that an inspection has seen.

use std::collections::HashMap;

use tokio::task::JoinSet;

use crate::backend::{KnownClient, Snapshot};
use crate::hold::Core;
use crate::values::holder::client_alias;
use crate::values::{Alias, Key, Moment};

/// The records of the clients that are known.
#[derive(Debug, Default)]
pub(crate) struct Clients(HashMap<Alias, KnownClient>);

impl Clients {
    /// Asks the store about all clients that were seen, all of them at the same time. A client about which it has not
    /// answered by `deadline` remains unknown.
    pub(crate) async fn of(core: &Core, seen: Option<&Snapshot>, deadline: Moment) -> Clients {
        let mut known = HashMap::new();
        let mut asking = JoinSet::new();
        let own = core.ids.client_alias();
        let mut aliases: Vec<_> = seen
            .into_iter()
            .flat_map(|seen| seen.holder.iter().chain(&seen.first_waiters))
            .filter_map(|id| client_alias(id))
            .collect();
        aliases.sort_unstable();
        aliases.dedup();
        for alias in aliases {
            if alias == own {
                known.insert(alias, core.presence.known());
                continue;
            }
            let key = Key::of_client(&core.options.namespace, alias);
            let (backend, left) = (core.backend.clone(), deadline.remaining());
            asking.spawn(async move {
                let who = backend.directory()?.who(&key, left).await;
                Some((alias, who.ok()??))
            });
        }
        let asked = async {
            while let Some(who) = asking.join_next().await {
                known.extend(who.ok().flatten());
            }
        };
        let _ = tokio::time::timeout_at(deadline.tick(), asked).await;
        Clients(known)
    }

    /// Returns the client to which a holder belongs, if it is known.
    pub(crate) fn of_holder(&self, id: &str) -> Option<KnownClient> {
        self.0.get(&client_alias(id)?).cloned()
    }
}
