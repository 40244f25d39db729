//! A memory store behind a network that a simulation controls, and processes whose clocks it drives. Compiled with
//! `--cfg simulation` only, and no public API: `tests/simulation` is built on it.
//!
//! All of it runs on one thread. Each process and each store has a runtime of its own, whose clock is paused. The driver lets
//! them run in turns, a *quantum* of virtual time each. What one of them sends reaches another one a quantum later at the
//! earliest, so no effect comes before its cause. Everything above the trait [`Backend`](crate::backend::Backend) runs as it
//! is shipped.
//!
//! | file | concept |
//! |---|---|
//! | `process` | one process: its runtime, its clocks, and what is on its way to it |
//! | `store` | the side of the store: its clock, and what is on its way to it |
//! | `line` | the way between the two, and what becomes of a message on it |
//! | `backend` | the store as a process sees it: dated requests, compensations, subscriptions |

mod backend;
mod line;
mod process;
mod store;

use std::sync::Arc;
use std::time::Duration;

pub use self::line::{Fate, Message, Network, Passing};
pub use self::process::Process;
pub use self::store::Store;
use crate::LockManagerBuilder;
use crate::api::manager::{LockManager, events_of};
use crate::backend::Backend;
use crate::backend::quorum::{QuorumBackend, VotingNode};
use crate::hold::current_runtime;
use crate::renew::Watch;

use crate::values::{LockError, Ttl, clock};

/// Returns the time since the simulation began, by the clock of the process that runs now.
pub fn now() -> Duration {
    clock::simulated_now()
}

/// Returns what a manager has in its memory, with the name of each: zero of everything while nobody uses it.
pub fn sizes(locks: &LockManager) -> Vec<(&'static str, usize)> {
    let core = locks.core();
    let [queues, store_queues, waiters] = core.queues.sizes();
    let [tenures, renewals, names] = core.watch.sizes();
    let counts = [
        &core.life.in_hand,
        &core.life.under_way,
        &core.life.background,
    ];
    let [in_hand, under_way, background] = counts.map(|count| count.count());
    vec![
        ("local queues", queues),
        ("keys waited for in the store's queue", store_queues),
        ("waiters", waiters),
        ("tenures", tenures),
        ("renewals to come", renewals),
        ("names of holders", names),
        ("guards", in_hand),
        ("bodies and questions under way", under_way),
        ("releases in the background", background),
    ]
}

/// Returns a manager of the process whose store is this one, or a quorum of these.
///
/// # Errors
/// Those of the builder's options.
pub fn manager(
    builder: LockManagerBuilder,
    process: &Process,
    stores: &mut [Store],
    network: &Passing,
) -> Result<LockManager, LockError> {
    let _here = process.enter();
    let watch = Arc::new(Watch::default());
    let options = builder.options;
    options.check()?;
    let mut nodes = Vec::new();
    for store in stores {
        let backend = store.connect(process, network, events_of(&watch));
        nodes.push(Arc::new(backend));
    }
    let backend: Arc<dyn Backend> = match nodes.len() {
        1 => nodes.remove(0),
        _ => {
            let longest = Ttl::new(options.lease, false).map_err(crate::values::config)?;
            let name = |(index, node): (usize, Arc<backend::SimulatedBackend>)| {
                VotingNode::new(node, format!("node {index}"), Arc::new(|| None))
            };
            let nodes = nodes.into_iter().enumerate().map(name).collect();
            Arc::new(QuorumBackend::new(nodes, longest, current_runtime()?))
        }
    };
    Ok(LockManager::assemble(
        options,
        backend,
        watch,
        Arc::default(),
    ))
}
