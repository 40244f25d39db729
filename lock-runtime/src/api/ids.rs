//! Ids.

use std::fmt;
use std::sync::Arc;

use crate::acquire::ids;
use crate::hold::Core;
use crate::hold::ids::IdSource;
use crate::values::{LockError, LockName};

/// A source of ids by its name: positive numbers of 63 bits for a `BIGINT` column, unique over all processes, and ordered
/// by time. [`LockManager::ids`](crate::LockManager::ids) makes it. It is cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = lock_runtime::LockManager::in_memory();
/// let orders = locks.ids("order");
/// let (first, second) = (orders.next().await?, orders.next().await?);
/// assert!(0 < first && first < second);
///
/// let thousand = orders.take(1_000).await?; // for a bulk insert: one request
/// assert!(second < thousand[0] && thousand.len() == 1_000);
/// # Ok(())
/// # }
/// ```
///
/// # What an id is
///
/// `seconds << 32 | rest`: the seconds since 2026-01-01T00:00:00Z, and 32 bits that begin each second from the µs × 4,294
/// of the store's clock. The next id is one more than the last, or this time, whichever is larger. So ids never repeat as
/// long as the store keeps its data. If the store loses them (a flush, a restart, a failover), ids go on from its clock:
/// they do not repeat unless that clock is behind the time of the last id.
/// [What is guaranteed](crate::_documentation::guarantees#ids) has the exceptions. The ids last until 2094.
///
/// In SQL, an id tells its time: `to_timestamp((id >> 32) + 1767225600)`.
///
/// JavaScript's numbers lose digits from 2^53 on, as do all readers of JSON that use doubles. Send ids to them as text.
///
/// # When the store is asked
///
/// At a low rate, for each id; so ids of several processes have the order of time, within a round trip. Where two ids or
/// more are asked for in a round trip, the manager draws as many as its callers take in 10 ms (two round trips if that is
/// longer; 10,000 at most), and the next ones before these are used up. What was drawn ahead is handed out for 100 ms, and
/// then thrown away. Within one manager, ids rise in the order of the calls.
#[derive(Clone)]
#[must_use = "a source of ids by its name gives none: await `next()`"]
pub struct Ids {
    core: Arc<Core>,
    source: Arc<IdSource>,
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ids")
            .field("name", &self.source.name().as_str())
            .finish_non_exhaustive()
    }
}

impl Ids {
    pub(crate) fn new(core: Arc<Core>, name: &LockName) -> Ids {
        let source = core.id_sources.get(name, false);
        Ids { core, source }
    }

    /// Shuffles the ids within a millisecond (977 µs), so that they tell outsiders the millisecond, and not how many there
    /// are: two plain ids that were drawn together differ by as many as were taken in between.
    ///
    /// The order is by the millisecond then, within one process, too. The secret by which ids are shuffled is made at
    /// random, and kept by the store; anybody who reads the store can undo it. The first id of a source comes up to a
    /// millisecond later for that, as does an id whose millisecond the store's clock has not reached. Either all
    /// processes shuffle the ids of a name, or none: the store refuses the others with [`LockError::ForeignKey`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::in_memory();
    /// let invoices = locks.ids("invoice").shuffled();
    /// assert_ne!(invoices.next().await?, invoices.next().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shuffled(self) -> Ids {
        let source = self.core.id_sources.get(self.source.name(), true);
        Ids { source, ..self }
    }

    /// Returns an id that nobody else has or gets.
    ///
    /// # Errors
    /// [`LockError::InvalidName`]; [`LockError::InvalidConfig`] on a quorum, which keeps no ids, and if the store's clock is
    /// not between 2026 and 2093; [`LockError::ForeignKey`] if the name is a lock or a semaphore;
    /// [`LockError::Unavailable`] if the store did not answer within the call timeout; for a caller that came while the
    /// store was being asked for others, this may be up to twice the call timeout, or longer where many callers want so
    /// many ids that each needs a draw of its own. [`LockError::Denied`];
    /// [`LockError::ShuttingDown`] once a shutdown is done: bodies that it lets finish still get ids.
    ///
    /// # Cancel safety
    /// Dropping the future loses one id at most.
    pub async fn next(&self) -> Result<i64, LockError> {
        let range = ids::take(&self.core, &self.source, 1).await?;
        Ok(range.first())
    }

    /// Returns `count` ids, 1 to 10,000. They were drawn together, in one request at most.
    ///
    /// # Errors
    /// The same as [`next`](Ids::next), and [`LockError::InvalidConfig`] for 0 or more than 10,000.
    ///
    /// # Cancel safety
    /// Dropping the future loses the ids at most.
    pub async fn take(&self, count: u32) -> Result<Vec<i64>, LockError> {
        let range = ids::take(&self.core, &self.source, count).await?;
        Ok(range.ids().collect())
    }
}
