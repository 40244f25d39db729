//! By which channels waiters are woken in a cluster.

/// The channels by which a release wakes waiters in a Redis Cluster.
///
/// A sharded message stays within the node that has the lock's slot; a classic one goes to every node of the cluster. A
/// client that listens to one sort does not get the other: waiters whose holders publish by the other sort ask by
/// themselves about once a second. So all clients that share locks have to use the same sort, or [`Both`].
///
/// [`Both`]: ClusterChannels::Both
///
/// ```no_run
/// use lock_runtime::{ClusterChannels, LockManager};
///
/// # async fn connect() -> Result<(), lock_runtime::LockError> {
/// let builder = LockManager::builder().cluster_channels(ClusterChannels::Both);
/// let locks = builder.connect("redis-cluster://10.0.0.1:7000").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClusterChannels {
    /// `SPUBLISH` and `SSUBSCRIBE`: as Redisson from 3.22 on, by its default.
    #[default]
    Sharded,
    /// `PUBLISH` and `SUBSCRIBE`: as older Redisson, and newer with sharded subscriptions turned off.
    Classic,
    /// Publishes and listens both ways: for fleets that have clients of both sorts.
    Both,
}

impl ClusterChannels {
    pub(crate) fn are_sharded(self) -> bool {
        self != ClusterChannels::Classic
    }

    pub(crate) fn are_classic(self) -> bool {
        self != ClusterChannels::Sharded
    }
}
