//! An open connection that commands share, and the task that drives it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisConnectionInfo, RedisResult};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::stream::Stream;

/// The capacity of one connection's command queue, larger than ever needed. A command that had to wait for a place
/// could be overtaken by a later one. That must not happen to a group: the release that compensates one of its acquires
/// has to be sent after it. The queue takes memory only for its contents, and the limit on acquires keeps it short for
/// renewals and releases.
const QUEUE: usize = 1 << 20;

/// What a connection's task calls with each message of the server's own. It must not block.
pub(crate) type OnPush = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// A connection that is logged in. It ends with the last of its clones. The client's own connections over a stream of
/// the caller's would stay open until the server has accepted all commands that are still to be sent.
#[derive(Clone)]
pub(crate) struct Wire {
    connection: MultiplexedConnection,
    driver: Arc<WireDriver>,
}

struct WireDriver {
    /// Signalled when the connection was cut.
    cut: Arc<Notify>,
    /// Ends its task when it is dropped.
    _task: JoinSet<()>,
}

impl Wire {
    /// Greets the server, logs in, and starts the task on the current runtime. The task calls `on_push`, which must not
    /// block.
    pub(super) async fn begin(
        login: &RedisConnectionInfo,
        stream: Stream,
        on_push: OnPush,
    ) -> RedisResult<Wire> {
        let cut = Arc::<Notify>::default();
        let signal = cut.clone();
        // Every call has its own timeout, so the connection needs none.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE)
            .set_push_sender(move |push: PushInfo| {
                match push.kind {
                    PushKind::Disconnection => signal.notify_one(),
                    _ => on_push(push),
                }
                Ok::<(), ()>(())
            });
        let beginning = MultiplexedConnection::new_with_config(login, stream, config);
        let (connection, driving) = beginning.await?;
        let mut task = JoinSet::new();
        task.spawn(driving);
        let driver = Arc::new(WireDriver { cut, _task: task });
        Ok(Wire { connection, driver })
    }

    /// Resolves once the connection was cut, for one caller and one time: give the connection up then.
    pub(crate) async fn cut(&self) {
        self.driver.cut.notified().await;
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
