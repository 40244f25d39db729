//! A server as the `redis` crate knows it: the one place where types of that crate are part of the public API.

use std::fmt;

use redis::{Client, ConnectionInfo};

use crate::api::builder::LockManagerBuilder;
use crate::api::manager::LockManager;
use crate::api::quorum::QuorumNode;
use crate::backend::connect::Location;
use crate::backend::redis::Target;
use crate::values::LockError;

/// A Redis server that the program knows already, as a [`redis::Client`] or as a [`redis::ConnectionInfo`]. Pass it to
/// [`LockManagerBuilder::connect_redis`], or use it as a [`QuorumNode`].
///
/// The address, the database, user and password are taken over. The protocol (RESP3), the settings of TCP and all timeouts
/// are this library's own; connections are not shared with the client. The certificates that a client was built with
/// cannot be read from it: it is refused, unless the builder was given certificates (`root_certificate`,
/// `client_certificate`), which then count.
///
/// It follows the major version of the `redis` crate: [`lock_runtime::redis`](crate::redis) is the version that fits.
///
/// `Debug` shows no password.
///
/// ```no_run
/// use lock_runtime::{LockManager, RedisServer, redis};
///
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let client = redis::Client::open("redis://127.0.0.1/2")?;
/// let locks = LockManager::builder().connect_redis(RedisServer::from(client)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisServer(ConnectionInfo);

impl RedisServer {
    pub(super) fn location(self) -> Result<Location, LockError> {
        Ok(Location::Redis(Box::new(Target::of(self.0)?)))
    }
}

impl From<RedisServer> for QuorumNode {
    fn from(server: RedisServer) -> QuorumNode {
        QuorumNode::known(server.location())
    }
}

impl From<ConnectionInfo> for RedisServer {
    fn from(info: ConnectionInfo) -> RedisServer {
        RedisServer(info)
    }
}

impl From<&ConnectionInfo> for RedisServer {
    fn from(info: &ConnectionInfo) -> RedisServer {
        RedisServer(info.clone())
    }
}

impl From<Client> for RedisServer {
    fn from(client: Client) -> RedisServer {
        RedisServer::from(&client)
    }
}

impl From<&Client> for RedisServer {
    fn from(client: &Client) -> RedisServer {
        RedisServer::from(client.get_connection_info())
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisServer").field(self.0.addr()).finish()
    }
}

impl LockManagerBuilder {
    /// Connects to the server of a `redis` client, or of its connection info: for programs that have one already.
    ///
    /// ```no_run
    /// use lock_runtime::{LockManager, redis};
    ///
    /// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1/2")?;
    /// let locks = LockManager::builder().connect_redis(&client).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It is a single server: clusters and Sentinels are named by [URLs](Self::connect).
    ///
    /// # Errors
    /// The same as [`connect`](Self::connect); also [`LockError::InvalidConfig`] for a client that does not verify
    /// certificates, and for a client with certificates of its own if the builder has none.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect_redis(
        self,
        server: impl Into<RedisServer>,
    ) -> Result<LockManager, LockError> {
        self.connect_to(server.into().location()?).await
    }
}
