//! The tests that every recipe has to pass, whatever the resource is.

use lock_runtime::{FencingToken, LockGuard, LockManager};
use tokio::task::JoinSet;

/// A connection to a resource that keeps the meter `gas`, which is at 0 when it is new.
pub(crate) trait Meter: Send + Sync + 'static {
    /// Raises the fence and reads. Returns `None` if that was refused.
    fn raise_and_read(&self, token: FencingToken) -> impl Future<Output = Option<i64>> + Send;

    /// Writes, and returns whether that was done. If not, it was refused.
    fn write(&self, token: FencingToken, value: i64) -> impl Future<Output = bool> + Send;
}

pub(crate) fn token(number: u64) -> FencingToken {
    FencingToken::try_from(number).unwrap()
}

/// Returns the tokens of a holder that is paused, and of the next one, which has the lock meanwhile.
async fn paused_and_next() -> (FencingToken, FencingToken) {
    let locks = LockManager::in_memory();
    let paused = locks.mutex("meter:gas").acquire().await.unwrap();
    locks.force_release("meter:gas").await.unwrap();
    let next = locks.mutex("meter:gas").acquire().await.unwrap();
    let token_of = |guard: &LockGuard| guard.fencing_token().unwrap();
    (token_of(&paused), token_of(&next))
}

/// Asserts that a paused holder is refused from the moment at which the next holder shows its token, and not only from
/// its first write.
pub(crate) async fn refuses_a_paused_holder_once_the_next_one_has_read(meter: &impl Meter) {
    let (paused, next) = paused_and_next().await;
    assert_eq!(meter.raise_and_read(paused).await, Some(0));
    assert!(meter.write(paused, 100).await);

    assert_eq!(meter.raise_and_read(next).await, Some(100));
    assert!(!meter.write(paused, 1000).await, "what was read is changed");
    assert_eq!(meter.raise_and_read(paused).await, None);

    assert_eq!(meter.raise_and_read(next).await, Some(100));
    assert!(meter.write(next, 2000).await);
    assert!(meter.write(next, 2000).await, "a write that is sent again");
    assert!(meter.write(next, 2001).await);
    assert!(!meter.write(paused, 1000).await);
    assert_eq!(meter.raise_and_read(next).await, Some(2001));
}

/// Lets each of the connections write once in a round, under a token of its own, and asserts that the highest write
/// stays.
pub(crate) async fn keeps_the_highest_of_many_writes_at_once<M: Meter>(mut connections: Vec<M>) {
    let count = connections.len() as u64;
    for round in 0..20 {
        fastrand::shuffle(&mut connections);
        let mut writers = JoinSet::new();
        for (writer, meter) in connections.into_iter().enumerate() {
            let number = round * count + writer as u64 + 1;
            writers.spawn(async move {
                meter.write(token(number), number.cast_signed()).await;
                meter
            });
        }
        connections = writers.join_all().await;
        let last = (round + 1) * count;
        assert_eq!(
            connections[0].raise_and_read(token(last)).await,
            Some(last.cast_signed())
        );
    }
}
