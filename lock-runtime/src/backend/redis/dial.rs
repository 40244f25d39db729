//! Opening one connection, and the manners of whoever opens another when it is cut.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo};

use super::faults;
use super::target::Target;
use crate::backend::Fault;
use crate::error::StoreError;

/// A connection that lived so long is replaced at once.
pub(super) const STABLE: Duration = Duration::from_secs(1);

/// Commands that may be queued in one connection. Below it nobody waits for a place, so the queue stays in order
/// of calling; the limit on acquires keeps room for renewals and releases.
const QUEUE: usize = 4096;

/// Connects and logs in, within `timeout`. Must run on the runtime that drives the connection.
///
/// `on_push` is called by the connection's own task: it must not block. One of the pushes is the client's
/// `Disconnection`.
pub(super) async fn open(
    target: &Target,
    timeout: Duration,
    on_push: impl Fn(PushInfo) + Send + Sync + 'static,
) -> Result<MultiplexedConnection, Fault> {
    let fault = |error: &redis::RedisError| faults::of_connecting(error, target.is_tls());
    let client = Client::open(target.info().clone()).map_err(|error| fault(&error))?;
    // Every call has its own timeout, so the connection needs none.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE)
        .set_push_sender(move |push| {
            on_push(push);
            Ok::<(), ()>(())
        });
    match tokio::time::timeout(
        timeout,
        client.get_multiplexed_async_connection_with_config(&config),
    )
    .await
    {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(fault(&error)),
        Err(_) => Err(Fault::NotDone(StoreError::new(format!(
            "no connection within {timeout:?}"
        )))),
    }
}

/// The pauses between two attempts: 50 ms, doubling up to 1 s, each shortened by up to a half at random so that
/// many clients do not come back in the same instant.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(1);

    pub(super) fn new() -> Backoff {
        Backoff(Backoff::FIRST)
    }

    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(Backoff::LONGEST);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

/// One outage: a warning at its beginning, a word at its end.
#[derive(Debug)]
pub(super) struct Outage {
    what: &'static str,
    since: Option<tokio::time::Instant>,
}

impl Outage {
    pub(super) fn new(what: &'static str) -> Outage {
        Outage { what, since: None }
    }

    pub(super) fn is_on(&mut self, target: &Target, fault: &Fault) {
        if self.since.is_none() {
            self.since = Some(tokio::time::Instant::now());
            tracing::warn!(server = target.shown(), reason = %fault, "{} lost; reconnecting", self.what);
        }
    }

    pub(super) fn is_over(&mut self, target: &Target) {
        if let Some(since) = self.since.take() {
            tracing::info!(server = target.shown(), after = ?since.elapsed(), "{} restored", self.what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_second_and_are_jittered() {
        let mut backoff = Backoff::new();
        let pauses: Vec<_> = (0..20).map(|_| backoff.next()).collect();
        assert!(pauses[0] <= Backoff::FIRST && pauses[0] >= Backoff::FIRST / 2);
        assert!(pauses.iter().all(|pause| *pause <= Backoff::LONGEST));
        assert!(
            pauses[10..]
                .iter()
                .all(|pause| *pause >= Backoff::LONGEST / 2)
        );
    }
}
