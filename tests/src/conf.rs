//! The configuration of a test's Redis server.

use std::time::Duration;

use crate::server::RedisServer;
use crate::tls::TlsFiles;

/// Settings for one [`RedisServer`]. Setters change its configuration file.
#[derive(Debug, Clone, Default)]
pub struct ServerConf {
    pub(crate) lines: Vec<String>,
    pub(crate) password: Option<String>,
    pub(crate) unix_socket: bool,
    pub(crate) tls: bool,
    pub(crate) tls_files: Option<TlsFiles>,
    pub(crate) cluster: bool,
}

impl ServerConf {
    /// Adds one line of `redis.conf`, as is.
    #[must_use]
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Sets the password of the default user. [`RedisServer::url`] carries it.
    #[must_use]
    pub fn requirepass(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.line(format!("requirepass {password}"))
    }

    /// Adds a user. `rules` are ACL rules such as `on >secret ~lock:* +@all`.
    #[must_use]
    pub fn user(self, name: &str, rules: &str) -> Self {
        self.line(format!("user {name} {rules}"))
    }

    /// Sets a memory limit such as `3mb`, with its eviction policy.
    #[must_use]
    pub fn maxmemory(self, limit: &str, policy: &str) -> Self {
        self.line(format!("maxmemory {limit}"))
            .line(format!("maxmemory-policy {policy}"))
    }

    /// Makes every write reach the append-only file before it is answered, so that data survive a kill.
    #[must_use]
    pub fn appendonly(self) -> Self {
        self.line("appendonly yes").line("appendfsync always")
    }

    /// Listens on a unix socket, too: see [`RedisServer::unix_url`].
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Listens with TLS on a second port, too: see [`RedisServer::tls_url`].
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Does the same as [`tls`](Self::tls), with a certificate that others may have, too.
    #[must_use]
    pub(crate) fn tls_by(mut self, files: TlsFiles) -> Self {
        self.tls_files = Some(files);
        self.tls()
    }

    /// Makes the server a node that can join a cluster, with a bus port of its own: see
    /// [`RedisCluster`](crate::RedisCluster).
    #[must_use]
    pub fn cluster_node(mut self) -> Self {
        self.cluster = true;
        self.line("cluster-enabled yes")
            .line("cluster-config-file nodes.conf")
    }

    /// Makes the server disconnect clients that are idle for longer than this.
    #[must_use]
    pub fn idle_timeout(self, timeout: Duration) -> Self {
        self.line(format!("timeout {}", timeout.as_secs()))
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// If there is no server binary, or if it does not start. The message has the server's own log.
    pub fn start(self) -> RedisServer {
        RedisServer::of(self)
    }

    /// Does the same on a port that another server has had. A port of [`free_port`](crate::ports::free_port) is nobody
    /// else's, so it is free once that server is gone.
    ///
    /// # Panics
    /// As [`start`](Self::start) does.
    pub fn start_at(self, port: u16) -> RedisServer {
        RedisServer::at(port, self)
    }
}
