//! The operations that faults and checks need of a server of any kind.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use redis::Value;
use tests::{Data, FaultProxy, Protocol, RedisServer};
use tokio::runtime::Runtime;

/// A server, and the proxy through which clients reach it.
pub(crate) trait Server {
    fn proxy(&self) -> &FaultProxy;

    fn addr(&self) -> SocketAddr;

    /// Ends the server as a crash would.
    fn kill9(&mut self);

    /// Starts the server again with what it had on disk.
    fn restart(&mut self);

    fn freeze(&self);

    fn thaw(&self);

    /// Returns an id that tells one start of it from the next.
    fn run_id(&self) -> String;

    /// Makes it lose every lock. Returns what proves that it did, or why that is in doubt.
    fn forget(&mut self) -> Result<String, String>;

    /// Ends the connections of clients: those on which they listen, or the others. Returns how many there were.
    fn end_connections(&self, that_listen: bool) -> u64;

    /// Gives clients the right to take locks, or takes it away.
    fn grant(&self, on: bool);

    /// Returns how often that right was missing so far.
    fn denials(&self) -> u64;

    /// Ends every lease earlier by this much, also those of readers and of permits. Returns how many leases there were,
    /// and how many of them are over by that.
    fn shorten_leases(&self, by: Duration) -> (u64, u64);

    /// Returns whether the server itself answers in time.
    fn answers(&self, within: Duration) -> bool {
        answers(self.proxy().protocol(), self.addr(), within)
    }

    /// Returns whether it answers through the proxy in time.
    fn answers_clients(&self, within: Duration) -> bool {
        answers(self.proxy().protocol(), self.proxy().addr(), within)
    }
}

/// A server that keeps locks in a table.
pub(crate) trait Database: Server {
    /// Returns the URL that clients connect to: as a user with the rights that the documentation names, and no others.
    fn url(&self) -> String;

    /// Returns the locks that are held, and until when, in microseconds since 1970.
    fn leases(&self) -> Vec<(String, u64)>;

    /// Cancels the statements of clients that are under way. Returns how many there were.
    fn cancel_statements(&self) -> u64;

    /// Locks the row of a key in a transaction of its own, until the value that is returned is called or dropped.
    fn block(&self, key: &str) -> Box<dyn FnOnce()>;
}

/// A Redis server.
pub(crate) struct Node {
    pub(crate) server: RedisServer,
    pub(crate) proxy: FaultProxy,
}

impl Node {
    /// Starts a server and its proxy. With `durable`, every write is on disk before it is answered.
    pub(crate) fn start(runtime: &Runtime, durable: bool) -> Self {
        let conf = RedisServer::builder();
        let server = if durable { conf.appendonly() } else { conf }.start();
        let proxy = runtime.block_on(FaultProxy::start(server.addr()));
        Self { server, proxy }
    }

    /// Returns how often the server has counted the error of this code.
    pub(crate) fn errors(&self, code: &str) -> u64 {
        let info: String = self.server.query(&["INFO", "errorstats"]);
        let prefix = format!("errorstat_{code}:count=");
        let mut lines = info.lines();
        lines
            .find_map(|line| line.strip_prefix(&prefix)?.trim().parse().ok())
            .unwrap_or(0)
    }
}

impl Server for Node {
    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    fn kill9(&mut self) {
        self.server.kill9();
    }

    fn restart(&mut self) {
        self.server.restart(Data::Kept);
    }

    fn freeze(&self) {
        self.server.sigstop();
    }

    fn thaw(&self) {
        self.server.sigcont();
    }

    /// Returns the id that the server's process gave itself.
    fn run_id(&self) -> String {
        let info: String = self.server.query(&["INFO", "server"]);
        let mut lines = info.lines();
        let id = lines.find_map(|line| line.strip_prefix("run_id:"));
        id.unwrap_or_default().to_owned()
    }

    /// Restarts the server without its data.
    fn forget(&mut self) -> Result<String, String> {
        let before = self.run_id();
        self.server.restart(Data::Lost);
        let run = self.run_id();
        let proof = format!("empty; run {before} became {run}");
        if run == before { Err(proof) } else { Ok(proof) }
    }

    fn end_connections(&self, that_listen: bool) -> u64 {
        let kind = if that_listen { "pubsub" } else { "normal" };
        let kill = ["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"];
        self.server.query(&kill)
    }

    fn grant(&self, on: bool) {
        // Ours calls scripts by their hash; other libraries also send their texts, or a plain SET.
        let rights = match on {
            true => ["+evalsha", "+eval", "+set"],
            false => ["-evalsha", "-eval", "-set"],
        };
        let user = ["ACL", "SETUSER", "default"];
        let _: Value = self.server.query(&[&user[..], &rights].concat());
    }

    fn denials(&self) -> u64 {
        self.errors("NOPERM")
    }

    fn shorten_leases(&self, by: Duration) -> (u64, u64) {
        let by = by.as_millis().to_string();
        self.server.query(&["EVAL", SHORTEN, "0", &by])
    }
}

const SHORTEN: &str = "
local by, time = tonumber(ARGV[1]), redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local shortened, ended = 0, 0
local function cut(left)
  shortened = shortened + 1
  if left <= by then
    ended = ended + 1
  end
  return left - by
end
-- Beside a read/write lock, each reader has a key with its lease.
for _, pattern in ipairs({'lock:*', '{lock:*}:*:rwlock_timeout:*'}) do
  for _, key in ipairs(redis.call('KEYS', pattern)) do
    local left = redis.call('PTTL', key)
    if left > 0 then
      -- A key whose expiry is over is deleted at once.
      redis.call('PEXPIRE', key, cut(left))
    end
  end
end
-- A permit's lease is the moment at which it ends.
for _, key in ipairs(redis.call('KEYS', '{lock:*}:timeout')) do
  local permits = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  for i = 1, #permits, 2 do
    local left = permits[i + 1] - now
    if left > 0 then
      redis.call('ZADD', key, now + cut(left), permits[i])
    end
  end
end
return {shortened, ended}";

/// Returns whether something answers there in time.
pub(crate) fn answers(protocol: Protocol, addr: SocketAddr, within: Duration) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&addr, within)?;
        stream.set_read_timeout(Some(within))?;
        stream.write_all(&protocol.hello())?;
        let (mut said, mut part) = (Vec::new(), [0; 256]);
        while !protocol.has_answered(&said) {
            match stream.read(&mut part)? {
                0 => return Ok(false),
                read => said.extend_from_slice(&part[..read]),
            }
        }
        Ok(true)
    };
    ask().unwrap_or(false)
}

/// Returns whether a plain `SET` is done there at once.
pub(crate) fn takes_writes(addr: SocketAddr, key: &str) -> bool {
    let within = Duration::from_millis(100);
    let set = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&addr, within)?;
        stream.set_read_timeout(Some(within))?;
        let length = key.len();
        write!(
            stream,
            "*3\r\n$3\r\nSET\r\n${length}\r\n{key}\r\n$1\r\n1\r\n"
        )?;
        let mut reply = [0; 16];
        let read = stream.read(&mut reply)?;
        Ok(reply[..read].starts_with(b"+OK"))
    };
    set().unwrap_or(false)
}
