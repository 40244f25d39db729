//! A master with a replica and a sentinel, and each client's own way to the sentinel.
//!
//! These are the reasons why no failover of a *guarded* group makes two holders, and the case in which one could:
//!
//! - A guard is believed in until `sent_at + lease − margin`, where `sent_at` is the date of the last request that a
//!   replica has confirmed: `renewals(true)`.
//! - Replicas are told dates at which keys end, not durations. A server that has that request ends the lease when its
//!   own clock shows the date. That is not before the guard, provided that its clock is not ahead of the old master's
//!   by more than the margin. Here it is the same clock.
//! - The new master has that request. One replica of two has confirmed it, and the sentinel takes the one that has read
//!   most of the stream, of both: they are up, and it has asked them since the old master went silent.
//! - The old master confirms nothing once both replicas are away, and refuses to write: `min-replicas-to-write 1`. So
//!   there is nothing that the new one does not know, however fast it was promoted.
//!
//! The last point fails if the other replica still follows the old master when the first one is promoted, and follows
//! the new one later: it vouches for both. That is how `SENTINEL FAILOVER` does it, so its overlaps are counted.
//! `moved_to` waits for a write that the new master takes, hence for its replica: no cut is healed before that.

use std::time::{Duration, Instant};

use redis::Value;
use tests::sentinel::{SERVICE, SentinelConf};
use tests::{FaultProxy, RedisServer, SentinelGroup};
use tokio::runtime::Runtime;

use crate::server::takes_writes;

/// The user that clients log in as. Sentinel and replica log in as the default user, which can be switched off.
const CLIENT: &str = "client";
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(10);

pub(crate) struct Replicated {
    pub(crate) group: SentinelGroup,
    /// The proxies between the clients and the sentinel, one for each client.
    pub(crate) proxies: Vec<FaultProxy>,
    /// The server that is the master, as far as the faults know.
    pub(crate) master: usize,
}

impl Replicated {
    pub(crate) fn start(runtime: &Runtime, clients: usize) -> Self {
        Self::launch(SentinelGroup::builder(1, 1), runtime, clients)
    }

    /// Starts a group with two replicas that takes no write without one of them, so that nothing is forgotten that a
    /// client was told of.
    pub(crate) fn guarded(runtime: &Runtime, clients: usize) -> Self {
        let conf = SentinelGroup::builder(2, 1).min_replicas_to_write(1);
        Self::launch(conf, runtime, clients)
    }

    fn launch(conf: SentinelConf, runtime: &Runtime, clients: usize) -> Self {
        let group = runtime.block_on(conf.client_user(CLIENT).start());
        let addr = group.sentinels[0].addr();
        let proxies = (0..clients)
            .map(|_| runtime.block_on(FaultProxy::start(addr)))
            .collect();
        Self {
            group,
            proxies,
            master: 0,
        }
    }

    pub(crate) fn url(&self, place: usize) -> String {
        let proxy = &self.proxies[place % self.proxies.len()];
        format!("redis-sentinel://{CLIENT}:any@{}/{SERVICE}", proxy.addr())
    }

    pub(crate) fn master(&self) -> &RedisServer {
        &self.group.servers[self.master]
    }

    /// Returns the servers that are not the master.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> {
        let master = self.master;
        (0..self.group.servers.len()).filter(move |server| *server != master)
    }

    /// Returns the master that the sentinel has named in the place of the one we know, if it takes writes.
    pub(crate) fn moved_to(&self) -> Option<usize> {
        let port = self.group.sentinels[0].master_port()?;
        let server = |index: &usize| &self.group.servers[*index];
        self.others()
            .find(|index| server(index).port() == port)
            .filter(|index| takes_writes(server(index).addr(), "probe"))
    }

    /// Cuts a server off from sentinel and replica, or lets them reach it again. The harness has its connection
    /// already.
    pub(crate) fn cut_off(&self, server: usize, on: bool) {
        let server = &self.group.servers[server];
        let state = if on { "off" } else { "on" };
        let _: Value = server.query(&["ACL", "SETUSER", "default", state]);
        if on {
            for those in [["USER", "default"], ["TYPE", "replica"]] {
                let _ = server.command(&["CLIENT", "KILL", those[0], those[1]]);
            }
        }
    }

    /// Waits until the other servers replicate the master, and what is written gets there.
    pub(crate) fn wait_in_step(&self) -> Result<(), String> {
        let master = self.master();
        let mark = format!("probe:{}", fastrand::u64(..));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let _ = master.command(&["SET", &mark, "1", "EX", "60"]);
            let in_step = self.others().all(|index| {
                let replica = &self.group.servers[index];
                let role: String = replica.query(&["INFO", "replication"]);
                role.contains("role:slave") && replica.exists(&mark)
            });
            if in_step {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "no replica again within {PATIENCE:?}\n{}",
                    self.group.sentinels[0].log()
                ));
            }
            std::thread::sleep(STEP);
        }
    }

    /// Waits for [`moved_to`](Self::moved_to), and remembers the new master.
    pub(crate) fn follow(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(new) = self.moved_to() {
                self.master = new;
                return Ok(());
            }
            if Instant::now() > deadline {
                let log = self.group.sentinels[0].log();
                return Err(format!("no failover within {PATIENCE:?}\n{log}"));
            }
            std::thread::sleep(STEP);
        }
    }
}
