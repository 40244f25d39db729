//! An open connection that commands share, and the task that drives it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, RedisConnectionInfo, RedisResult};
use tokio::task::AbortHandle;

use super::stream::Stream;

/// The capacity of one connection's command queue, larger than ever needed. A command that had to wait for a place
/// could be overtaken by a later one. That must not happen to a group: the release that compensates one of its acquires
/// has to be sent after it. The queue takes memory only for its contents, and the limit on acquires keeps it short for
/// renewals and releases.
const QUEUE: usize = 1 << 20;

/// A connection that is logged in. It ends with the last of its clones. The client's own connections over a stream of
/// the caller's would stay open until the server has accepted all commands that are still to be sent.
#[derive(Clone)]
pub(crate) struct Wire {
    connection: MultiplexedConnection,
    _driver: Arc<WireDriver>,
}

struct WireDriver(AbortHandle);

impl Drop for WireDriver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Wire {
    /// Greets the server, logs in, and starts the task on the current runtime.
    pub(super) async fn begin(
        login: &RedisConnectionInfo,
        stream: Stream,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> RedisResult<Wire> {
        // Every call has its own timeout, so the connection needs none.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE)
            .set_push_sender(move |push| {
                on_push(push);
                Ok::<(), ()>(())
            });
        let beginning = MultiplexedConnection::new_with_config(login, stream, config);
        let (connection, driving) = beginning.await?;
        let driver = Arc::new(WireDriver(tokio::spawn(driving).abort_handle()));
        Ok(Wire {
            connection,
            _driver: driver,
        })
    }
}

impl Deref for Wire {
    type Target = MultiplexedConnection;

    fn deref(&self) -> &MultiplexedConnection {
        &self.connection
    }
}

impl DerefMut for Wire {
    fn deref_mut(&mut self) -> &mut MultiplexedConnection {
        &mut self.connection
    }
}
