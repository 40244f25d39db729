//! The reply for services that are not HTTP.

use crate::refusal::Refusal;
use crate::reply::Reply;

/// A reply that is an error, for services whose error is `From<Refusal>`, such as `tower::BoxError`.
///
/// [`Refusal::kind`] tells the caller why, and [`Refusal::error`] has the lock's own error.
///
/// ```
/// use std::time::Duration;
///
/// use lock_runtime::{LockManager, LockName};
/// use tower::{BoxError, Layer, ServiceExt, service_fn};
/// use tower_lock::{AsError, LockLayer, Refusal, RefusalKind};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// struct Job { queue: u32 }
///
/// let locks = LockManager::in_memory();
/// let by_queue = |job: &Job| Some(LockName::from("queue:").with(&job.queue));
/// let work = LockLayer::from_key(locks.clone(), by_queue)
///     .wait(Duration::ZERO)
///     .reply(AsError)
///     .layer(service_fn(async |_: Job| Ok::<_, BoxError>("done")));
///
/// let guard = locks.mutex("queue:7").acquire().await?;
/// let error = work.oneshot(Job { queue: 7 }).await.unwrap_err();
/// let refusal = error.downcast_ref::<Refusal>().unwrap();
/// assert_eq!(refusal.kind(), RefusalKind::Busy);
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct AsError;

impl<Response, Error> Reply<Response, Error> for AsError
where
    Error: From<Refusal>,
{
    fn reply(&self, refusal: Refusal) -> Result<Response, Error> {
        Err(Error::from(refusal))
    }
}
