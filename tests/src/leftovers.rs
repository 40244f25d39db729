//! Checks that a test left nothing behind on its server.

use redis::Value;

use crate::cluster::RedisCluster;
use crate::eventually::eventually;
use crate::server::{HELPER, RedisServer};

impl RedisServer {
    /// Returns the keys that must not outlive the holds that made them: all except the bounded fence keys, the counters
    /// of fenced locks, which stay in Redisson's format, and the records of managers.
    pub fn stray_keys(&self) -> Vec<String> {
        let mut keys = self.keys();
        keys.retain(|key| {
            !(key.starts_with("lock:fence:{") && key.ends_with('}')
                || key.starts_with("redisson_lock_token:")
                || is_record(key))
        });
        keys
    }

    /// Returns the keys of the records in which managers say who they are.
    pub fn records(&self) -> Vec<String> {
        let mut keys = self.keys();
        keys.retain(|key| is_record(key));
        keys
    }

    /// Returns the channels with a subscriber, plain and sharded, sorted.
    pub fn channels(&self) -> Vec<String> {
        let mut channels: Vec<String> = self.query(&["PUBSUB", "CHANNELS"]);
        if let Ok(sharded) = self.command(&["PUBSUB", "SHARDCHANNELS"]) {
            channels.extend(redis::from_redis_value::<Vec<String>>(sharded).unwrap_or_default());
        }
        channels.sort();
        channels
    }

    /// Returns the number of connections that are subscribed to a channel, without sharded subscriptions.
    pub fn subscribers(&self, channel: &str) -> u64 {
        let (_, count): (String, u64) = self.query(&["PUBSUB", "NUMSUB", channel]);
        count
    }

    /// Returns the connections, as `CLIENT LIST` shows them, except the tests' own and those of replicas, masters and
    /// sentinels.
    pub fn clients(&self) -> Vec<String> {
        let list: String = self.query(&["CLIENT", "LIST"]);
        let own = format!("name={HELPER}");
        let is_own = |field: &str| {
            field == own
                || ["flags=S", "flags=M"].contains(&field)
                || field.starts_with("name=sentinel-")
        };
        let foreign = |line: &&str| !line.is_empty() && !line.split(' ').any(is_own);
        list.lines().filter(foreign).map(str::to_owned).collect()
    }

    /// Waits until no key is left except those that [`stray_keys`](Self::stray_keys) leaves out, and no channel except
    /// control channels of managers that still live.
    pub async fn assert_clean(&self) {
        eventually("no key but the fence keys is left", async || {
            self.stray_keys().is_empty()
        })
        .await;
        eventually("only control channels are subscribed to", async || {
            self.channels().iter().all(|channel| is_control(channel))
        })
        .await;
        assert_eq!(
            self.query::<i64>(&["PUBSUB", "NUMPAT"]),
            0,
            "patterns are subscribed to"
        );
    }

    /// Waits until nothing and nobody is left. The managers must have been dropped before.
    pub async fn assert_deserted(&self) {
        eventually("every client of the server is gone", async || {
            self.clients().is_empty()
        })
        .await;
        self.assert_clean().await;
        assert_eq!(self.channels(), Vec::<String>::new());
    }

    /// Cuts all other clients, which makes them reconnect.
    pub fn cut_clients(&self) {
        let _: Value = self.query(&["CLIENT", "KILL", "SKIPME", "yes"]);
    }
}

impl RedisCluster {
    /// Returns the stray keys of all masters that can be asked: see [`RedisServer::stray_keys`].
    pub fn stray_keys(&self) -> Vec<String> {
        let masters = self
            .awake()
            .into_iter()
            .filter(|node| self.has_slots(*node));
        masters
            .flat_map(|node| self.nodes[node].stray_keys())
            .collect()
    }
}

fn is_record(key: &str) -> bool {
    key.contains("lock-manager:{")
}

fn is_control(channel: &str) -> bool {
    channel.contains("control")
}
