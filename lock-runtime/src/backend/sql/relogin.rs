//! Another connection in place of one whose login is about to expire: a session of a database keeps the login that it
//! began with.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinSet;

use super::{Connector, Pool};
use crate::backend::kit::login::LoginRetries;
use crate::values::clock;

/// The task that opens the other connection. It belongs to the first one, and ends with it.
pub(super) struct PoolRelogin {
    _task: JoinSet<()>,
    is_over: Arc<AtomicBool>,
}

impl PoolRelogin {
    pub(super) fn start<C: Connector>(pool: &Arc<Pool<C>>, after: Duration) -> PoolRelogin {
        let is_over = Arc::<AtomicBool>::default();
        let replacing = replace(Arc::downgrade(pool), is_over.clone(), after);
        let mut task = JoinSet::new();
        task.spawn_on(replacing, &pool.handle);
        PoolRelogin {
            _task: task,
            is_over,
        }
    }

    /// Returns `true` if the other connection is there.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

async fn replace<C: Connector>(pool: Weak<Pool<C>>, is_over: Arc<AtomicBool>, after: Duration) {
    clock::sleep(after).await;
    let mut tries = LoginRetries::new();
    // The pool may end meanwhile.
    while let Some(pool) = pool.upgrade() {
        match pool.connect_once().await {
            Ok(open) => {
                is_over.store(true, Ordering::SeqCst);
                pool.replace(open);
                return;
            }
            Err(fault) => {
                let server = pool.server.clone();
                drop(pool);
                tries.failed(&server, &fault).await;
            }
        }
    }
}
