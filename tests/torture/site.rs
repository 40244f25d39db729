//! What is tortured: one Redis server behind a proxy, and the resource that its locks guard.
//!
//! Another topology is another way to build a [`Site`], and faults of its own; clients, checks and reports see only
//! the URL and the keys.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tests::{FaultProxy, RedisServer};
use tokio::runtime::Runtime;

/// Servers and proxy of one round.
pub(crate) struct Site {
    pub(crate) server: RedisServer,
    pub(crate) proxy: FaultProxy,
    pub(crate) resource: RedisServer,
}

impl Site {
    /// `durable`: every write is on disk before it is answered.
    pub(crate) fn standalone(runtime: &Runtime, durable: bool) -> Self {
        let conf = RedisServer::builder();
        let server = if durable { conf.appendonly() } else { conf }.start();
        let proxy = runtime.block_on(FaultProxy::start(server.addr()));
        let resource = RedisServer::start();
        Self {
            server,
            proxy,
            resource,
        }
    }

    /// What the server counted of one error's code.
    pub(crate) fn errors(&self, code: &str) -> u64 {
        let info: String = self.server.query(&["INFO", "errorstats"]);
        let prefix = format!("errorstat_{code}:count=");
        let mut lines = info.lines();
        lines
            .find_map(|line| line.strip_prefix(&prefix)?.trim().parse().ok())
            .unwrap_or(0)
    }

    /// The id that the server's process gave itself.
    pub(crate) fn run_id(&self) -> String {
        let info: String = self.server.query(&["INFO", "server"]);
        let mut lines = info.lines();
        let id = lines.find_map(|line| line.strip_prefix("run_id:"));
        id.unwrap_or_default().to_owned()
    }
}

/// Whether something answers a PING there in time.
pub(crate) fn answers(addr: SocketAddr, within: Duration) -> bool {
    let ping = || -> std::io::Result<usize> {
        let mut stream = TcpStream::connect_timeout(&addr, within)?;
        stream.set_read_timeout(Some(within))?;
        stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
        stream.read(&mut [0; 16])
    };
    ping().is_ok_and(|read| read > 0)
}
