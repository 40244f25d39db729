//! A master with a replica and a sentinel, and each client's own way to the sentinel.

use std::time::{Duration, Instant};

use redis::Value;
use tests::sentinel::SERVICE;
use tests::{FaultProxy, RedisServer, SentinelGroup};
use tokio::runtime::Runtime;

use crate::site::takes_writes;

/// Clients log in as this user, sentinel and replica as the default one: that one can be switched off.
const CLIENT: &str = "client";
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(10);

pub(crate) struct Replicated {
    pub(crate) group: SentinelGroup,
    /// One for each client: what stands between it and the sentinel.
    pub(crate) proxies: Vec<FaultProxy>,
    /// The server that is the master, as far as the faults know.
    pub(crate) master: usize,
}

impl Replicated {
    pub(crate) fn start(runtime: &Runtime, clients: usize) -> Self {
        let group = runtime.block_on(SentinelGroup::builder(1, 1).client_user(CLIENT).start());
        let addr = group.sentinels[0].addr().parse().expect("an address");
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

    /// The server that is not the master.
    pub(crate) fn other(&self) -> usize {
        1 - self.master
    }

    /// Whether the sentinel has named another master that takes writes.
    pub(crate) fn has_moved(&self) -> bool {
        let new = &self.group.servers[self.other()];
        self.group.sentinels[0].master_port() == Some(new.port())
            && takes_writes(new.addr(), "probe")
    }

    /// Sentinel and replica no longer reach a server, or do again. The harness has its connection already.
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

    /// Waits until the other server replicates the master, and what is written gets there.
    pub(crate) fn wait_in_step(&self) -> Result<(), String> {
        let (master, replica) = (self.master(), &self.group.servers[self.other()]);
        let mark = format!("probe:{}", fastrand::u64(..));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let _ = master.command(&["SET", &mark, "1", "EX", "60"]);
            let role: String = replica.query(&["INFO", "replication"]);
            if role.contains("role:slave") && replica.exists(&mark) {
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

    /// Waits for [`has_moved`](Self::has_moved), and takes note of it.
    pub(crate) fn follow(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while !self.has_moved() {
            if Instant::now() > deadline {
                let log = self.group.sentinels[0].log();
                return Err(format!("no failover within {PATIENCE:?}\n{log}"));
            }
            std::thread::sleep(STEP);
        }
        self.master = self.other();
        Ok(())
    }
}
