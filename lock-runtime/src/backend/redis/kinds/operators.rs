//! What operators ask: who has a lock, and to take it from them.

use std::time::Duration;

use super::operator_scripts::{ForceRelease, Inspect};
use super::{fair, permits};
use crate::backend::redis::{Inner, channel};
use crate::backend::{Fault, Snapshot};
use crate::values::key::Key;
use crate::values::kind::Kind;

impl Inner {
    pub(crate) async fn inspect(
        &self,
        key: &Key,
        timeout: Duration,
    ) -> Result<Option<Snapshot>, Fault> {
        let [queue, _] = fair::queue_keys(key);
        let script = Inspect {
            lock: key.raw(),
            queue: &queue,
        };
        match self.call(key, &script, timeout).await {
            // No hash: it may be a counter.
            Err(Fault::Foreign { key: foreign, why }) => {
                match permits::inspect(self, key, timeout).await {
                    Err(Fault::Foreign { .. }) => Err(Fault::Foreign { key: foreign, why }),
                    answer => answer,
                }
            }
            answer => answer,
        }
    }

    pub(crate) async fn force_release(&self, key: &Key, timeout: Duration) -> Result<bool, Fault> {
        // Whatever stands there is released: the kind of `key` says nothing about it.
        let [queue, _] = fair::queue_keys(key);
        let script = ForceRelease {
            lock: key.raw(),
            queue: &queue,
            channel: &channel(&key.as_kind(Kind::Mutex)),
            rw_channel: &channel(&key.as_kind(Kind::Write)),
        };
        let reply = match self.call(key, &script, timeout).await {
            // No hash: it may be a semaphore.
            Err(Fault::Foreign { key: foreign, why }) => {
                return match permits::force_release(self, key, timeout).await {
                    Err(Fault::Foreign { .. }) => Err(Fault::Foreign { key: foreign, why }),
                    answer => answer,
                };
            }
            reply => reply?,
        };
        if reply.untold > 0 {
            tracing::warn!(
                key = key.raw(),
                holders = reply.untold,
                "a forced release had too many holders to tell them all: the others learn of it at their next renewals"
            );
        }
        for (channel, payload) in reply.unpublished {
            self.publish(channel, payload);
        }
        Ok(reply.released)
    }
}
