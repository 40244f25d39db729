//! The check of the nodes of a quorum, and the connections to a majority of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::{VotingNode, next_by};
use crate::backend::Backend;
use crate::backend::connect::Location;
use crate::backend::kit::uptime::{RunIds, Uptime};
use crate::backend::opening::Opening;
use crate::values::{LockError, Moment, clock, config};

/// Refuses nodes that do not make a quorum, before any I/O.
///
/// # Errors
/// [`LockError::InvalidConfig`].
pub(crate) fn check(nodes: &[Location]) -> Result<(), LockError> {
    let count = nodes.len();
    if count == 0 {
        return Err(config("a quorum has no nodes: name three or five"));
    }
    if count.is_multiple_of(2) {
        return Err(config(format!(
            "a quorum has an odd number of nodes, not {count}: a majority of {count} outlives no more nodes than one \
             of {}",
            count - 1
        )));
    }
    for (index, node) in nodes.iter().enumerate() {
        node.check_node()?;
        if nodes
            .iter()
            .take(index)
            .any(|other| other.is_one_with(node))
        {
            return Err(config(
                "a node of the quorum is named twice: its vote would count twice",
            ));
        }
    }
    Ok(())
}

/// The shortest time that the other nodes have once a majority is connected.
const LEAST_FOR_OTHERS: Duration = Duration::from_millis(200);

/// Connects to all nodes at once. Once a majority is there, the others have as long again. Those that are later are connected
/// to in the background.
///
/// # Errors
/// The first [`LockError::Unavailable`] if a majority is away; the error of any node that refuses for good by then.
pub(crate) async fn connect(
    nodes: Vec<Location>,
    opening: &Opening,
) -> Result<Vec<VotingNode>, LockError> {
    let run_ids: Arc<RunIds> = Arc::default();
    let open = |index: usize, location: Location, lazy: bool| {
        let uptime = Arc::new(Uptime::new(index, &run_ids));
        let shown = location.shown().to_owned();
        let mut opening = opening.clone();
        opening.options.lazy = lazy;
        opening.uptime = Some(uptime.clone());
        let opened = location.open(opening);
        async move {
            let backend: Arc<dyn Backend> = opened.await?;
            let age = Arc::new(move || uptime.age());
            Ok::<_, LockError>(VotingNode::new(backend, shown, age))
        }
    };
    let (count, began) = (nodes.len(), clock::now());
    let mut connecting = JoinSet::new();
    for (index, location) in nodes.iter().enumerate() {
        let opened = open(index, location.clone(), opening.options.lazy);
        connecting.spawn(async move { (index, opened.await) });
    }
    let mut connected: Vec<Option<VotingNode>> = Vec::new();
    connected.resize_with(count, || None);
    let mut away = Vec::new();
    let mut until: Option<Moment> = None;
    while let Some(done) = next_by(until, connecting.join_next()).await {
        let (index, opened) =
            done.map_err(|_| config("a task that connects to a quorum node was ended"))?;
        match opened {
            Ok(node) => connected[index] = Some(node),
            Err(error @ LockError::Unavailable { .. }) => away.push(error),
            Err(error) => return Err(error),
        }
        // A failed majority is an error whatever else comes.
        if away.len() > count / 2 {
            return Err(away.swap_remove(0));
        }
        if until.is_none() && connected.iter().flatten().count() > count / 2 {
            until = Some(clock::now() + began.elapsed().max(LEAST_FOR_OTHERS));
        }
    }
    let mut all = Vec::with_capacity(count);
    for (index, (node, location)) in connected.into_iter().zip(nodes).enumerate() {
        all.push(match node {
            Some(node) => node,
            None => open(index, location, true).await?,
        });
    }
    Ok(all)
}
