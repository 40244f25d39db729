//! Moves of slots from one master to another, at once or step by step.

use redis::Value;

use super::RedisCluster;
use crate::eventually::eventually;

impl RedisCluster {
    /// Moves a slot with all of its keys, and waits until every node knows.
    pub async fn move_slot(&self, slot: u16, to: usize) {
        if self.owner_of(slot) == to {
            return;
        }
        self.begin_move(slot, to);
        self.migrate_keys(slot, to);
        self.finish_move(slot, to).await;
    }

    /// Begins a move, its first step. From then on, the slot's master answers ASK for keys that it does not have, and
    /// TRYAGAIN if it has only some of a script's keys.
    pub fn begin_move(&self, slot: u16, to: usize) {
        let from = self.owner_of(slot);
        let slot = slot.to_string();
        self.order(to, &["SETSLOT", &slot, "IMPORTING", &self.ids[from]]);
        self.order(from, &["SETSLOT", &slot, "MIGRATING", &self.ids[to]]);
    }

    /// Moves one key, in the second step of a move. Returns whether the key was there.
    pub fn migrate_key(&self, key: &str, to: usize) -> bool {
        let from = self.owner_of_key(key);
        let port = match self.conf.tls {
            None => self.nodes[to].port(),
            Some(_) => self.nodes[to].tls_port(),
        };
        let port = port.to_string();
        let mut args = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000"];
        if let Some(password) = &self.conf.password {
            args.extend(["AUTH", password]);
        }
        args.extend(["KEYS", key]);
        match self.query::<String>(from, &args).as_str() {
            "OK" => true,
            "NOKEY" => false,
            other => panic!("MIGRATE {key}: {other}"),
        }
    }

    /// Moves all keys of the slot, in the second step of a move. Returns how many there were.
    pub fn migrate_keys(&self, slot: u16, to: usize) -> usize {
        let mut moved = 0;
        loop {
            let keys = self.keys_in_slot(self.owner_of(slot), slot);
            if keys.is_empty() {
                return moved;
            }
            // A key may expire or be deleted in between.
            moved += keys.iter().filter(|key| self.migrate_key(key, to)).count();
        }
    }

    /// Gives the slot to the new master, the last step of a move. Keys that were created since then are moved, too.
    pub async fn finish_move(&self, slot: u16, to: usize) {
        let from = self.owner_of(slot);
        self.migrate_keys(slot, to);
        // The new master takes an epoch above all that it knows. An epoch that it does not know yet, of a move a moment
        // ago, would outrank it for ever at a node that hears a late message of the old master.
        eventually("every node knows what the last move came to", async || {
            let epochs = |node: usize| {
                let view = self.view(node);
                [from, to].map(|of| Some(view.by_port(self.nodes[of].port())?.epoch))
            };
            let awake = self.awake();
            awake.iter().all(|node| epochs(*node) == epochs(to))
        })
        .await;
        let name = slot.to_string();
        let is_master = |node: &usize| {
            let view = self.view(*node);
            view.by_port(self.nodes[*node].port())
                .is_some_and(|own| own.is("master"))
        };
        let masters: Vec<_> = self.awake().into_iter().filter(is_master).collect();
        // The new master is told first: if it failed after the old one forgot the slot, nobody would have the slot.
        let rest = masters.iter().filter(|node| ![to, from].contains(*node));
        for node in [&to, &from].into_iter().chain(rest) {
            self.order(*node, &["SETSLOT", &name, "NODE", &self.ids[to]]);
        }
        eventually("every node knows who has the slot", async || {
            let awake = self.awake();
            awake
                .iter()
                .all(|node| self.owner_at(*node, slot) == Some(to))
        })
        .await;
    }

    /// Cancels a move, none of whose keys have been moved.
    pub fn cancel_move(&self, slot: u16, to: usize) {
        for node in [self.owner_of(slot), to] {
            self.order(node, &["SETSLOT", &slot.to_string(), "STABLE"]);
        }
    }

    /// Returns the keys of a slot that this node has.
    pub fn keys_in_slot(&self, node: usize, slot: u16) -> Vec<String> {
        self.query(
            node,
            &["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1000"],
        )
    }

    /// Returns whether this node has the key. Asks as a client does that an ASK has sent there.
    pub fn stands_at(&self, node: usize, key: &str) -> bool {
        let _: Value = self.query(node, &["ASKING"]);
        self.query::<i64>(node, &["EXISTS", key]) == 1
    }
}
