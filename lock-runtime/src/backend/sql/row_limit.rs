//! A limit for the statements that may wait for one row at a time: those of one row must not take the connections of all
//! others.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::sync::Mutex;

/// The statements that may wait for rows.
#[derive(Debug)]
pub(super) struct RowLimit {
    /// The number of statements that each row may have under way.
    each: usize,
    /// For each row that has statements, the permits for further ones.
    rows: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl RowLimit {
    pub(super) fn new(each: usize) -> Arc<RowLimit> {
        Arc::new(RowLimit {
            each,
            rows: Mutex::default(),
        })
    }

    /// Waits until a further statement may wait for this row.
    pub(super) async fn place(self: &Arc<Self>, row: &str) -> RowPlace {
        let permits = {
            let mut rows = self.rows.lock();
            let permits = rows.entry(row.to_owned());
            let permits = permits.or_insert_with(|| Arc::new(Semaphore::new(self.each)));
            permits.clone()
        };
        let mut place = RowPlace {
            limit: self.clone(),
            row: row.to_owned(),
            permits,
            permit: None,
        };
        // Nobody closes the semaphore.
        place.permit = place.permits.clone().acquire_owned().await.ok();
        place
    }
}

/// The right to wait for a row, or the wish for it.
#[derive(Debug)]
pub(super) struct RowPlace {
    limit: Arc<RowLimit>,
    row: String,
    permits: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for RowPlace {
    fn drop(&mut self) {
        let mut rows = self.limit.rows.lock();
        self.permit = None;
        // The map and this place share the semaphore with nobody else, so no statement has the row or waits for it. None can
        // come meanwhile, because it would have to lock the map.
        if Arc::strong_count(&self.permits) == 2 {
            rows.remove(&self.row);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Waker};

    use super::*;

    fn waits(place: Pin<&mut impl Future<Output = RowPlace>>) -> bool {
        place
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    }

    #[tokio::test]
    async fn statements_of_a_row_wait_beyond_the_limit_and_leave_nothing() {
        let limit = RowLimit::new(2);
        let (first, second) = (limit.place("a").await, limit.place("a").await);
        let other = limit.place("b").await;
        let mut third = Box::pin(limit.place("a"));
        let mut given_up = Box::pin(limit.place("a"));
        assert!(waits(third.as_mut()) && waits(given_up.as_mut()));
        drop(first);
        let third = third.await;
        assert!(waits(given_up.as_mut()));
        drop((given_up, other));
        assert_eq!(limit.rows.lock().keys().collect::<Vec<_>>(), ["a"]);
        drop((second, third));
        assert!(limit.rows.lock().is_empty());
    }
}
