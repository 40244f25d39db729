//! The check of a server before it may keep locks. A server that is too old is refused, and an eviction policy that
//! evicts held locks is reported. The whole life of one lock proves that the ACL allows every script.

use std::time::Duration;

use redis::{InfoDict, Value};
use uuid::Uuid;

use super::{Wire, dial, uptime};
use crate::backend::kit::server_clock::ServerClock;
use crate::backend::opening::Opening;
use crate::backend::redis::cluster::{Redirect, slots};
use crate::backend::redis::pubsub::messages::channel;
use crate::backend::redis::scripting::exclusive::{Acquire, HandOver, Release, Renew};
use crate::backend::redis::scripting::outcomes::AcquireReply;
use crate::backend::redis::scripting::{self, Manner, Script, faults};
use crate::backend::{Fault, Released, Renewed};
use crate::observe::metrics::logged;
use crate::values::{ClusterChannels, Key, Kind, LockName, SPARE_TOKENS, clock, key};

/// If the check is interrupted, its key expires after this time. A slow server, or a process that has little of its
/// processor, needs seconds from one step to the next.
const LEASE_MS: u64 = 10_000;

/// The check of one server, and the server's clock, which every check reads.
pub(crate) struct Check {
    pub(crate) opening: Opening,
    pub(crate) clock: ServerClock,
    /// The channels that scripts publish on.
    pub(crate) channels: ClusterChannels,
    /// For a node of a cluster, returns a slot that the node has, if it has any.
    pub(crate) slot: Option<Box<dyn Fn() -> Option<u16> + Send + Sync>>,
}

impl Check {
    /// The timeout of each request.
    pub(crate) fn timeout(&self) -> Duration {
        self.opening.options.call_timeout
    }

    /// Reads the server's uptime, on every new connection, before it is used.
    pub(crate) async fn look_at_birth(&self, connection: &Wire) -> Result<(), Fault> {
        match &self.opening.uptime {
            Some(known) => uptime::look(known, &mut connection.clone(), self.timeout()).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn run(&self, connection: &Wire) -> Result<(), Fault> {
        let mut connection = connection.clone();
        self.ask_info(&mut connection).await?;
        match self.own_key()? {
            Some(key) => self.unless_moved(self.live_once(&mut connection, &key).await),
            // The node has no slots yet. Its first requests will show what it allows.
            None => Ok(()),
        }
    }

    /// Acquires and releases a lock of its own. A server that answers need not grant locks: it may be a replica by now,
    /// be full, have too few replicas, or have revoked a right.
    pub(crate) async fn can_lock(&self, connection: &Wire) -> Result<(), Fault> {
        let mut connection = connection.clone();
        let Some(key) = self.own_key()? else {
            return Ok(());
        };
        let holder = self.opening.ids.fresh().text();
        let locked = async {
            self.take(&mut connection, &key, &holder).await?;
            self.give_back(&mut connection, &key, &holder).await
        };
        self.unless_moved(locked.await.map(drop))
    }

    /// Returns a key of its own, in one slot for all checks, so that every check raises the same fence. `None` at a
    /// node without slots.
    fn own_key(&self) -> Result<Option<Key>, Fault> {
        match self.slot.as_ref().map(|slot| slot()) {
            None => own_key(&self.opening, None).map(Some),
            Some(Some(slot)) => own_key(&self.opening, Some(slot)).map(Some),
            Some(None) => Ok(None),
        }
    }

    /// Ignores an error about a slot that is being moved, which says nothing about the node.
    fn unless_moved(&self, checked: Result<(), Fault>) -> Result<(), Fault> {
        match checked {
            Err(fault) if self.slot.is_some() && Redirect::of(&fault).is_some() => Ok(()),
            checked => checked,
        }
    }

    async fn ask_info(&self, connection: &mut Wire) -> Result<(), Fault> {
        let asked = scripting::info(connection, &[]);
        let info = match scripting::in_time("INFO", self.timeout(), asked).await {
            Err(Fault::Denied(reason)) if self.opening.options.strict => {
                return Err(Fault::denied(format!(
                    "{reason}: `strict(true)` needs to see the maxmemory policy of the server (`+info`)"
                )));
            }
            Err(Fault::Denied(reason)) => {
                logged!(
                    warn,
                    %reason,
                    "the lock store does not show its version and its maxmemory policy (INFO): \
                     make sure that it is Redis 7.0 or newer and that the policy is noeviction"
                );
                return Ok(());
            }
            info => info?,
        };
        self.judge(&info)?;
        if self.slot.is_none() && info.get::<u8>("cluster_enabled") == Some(1) {
            self.is_whole_cluster(connection).await?;
        }
        Ok(())
    }

    /// Refuses a node of a cluster that has other masters, too, if it is used as a single server: most keys belong to
    /// the others.
    async fn is_whole_cluster(&self, connection: &mut Wire) -> Result<(), Fault> {
        let question = redis::cmd("CLUSTER").arg("SLOTS").take();
        let asked = tokio::time::timeout(self.timeout(), scripting::send(connection, &question));
        // The address does not matter if the server can name only itself.
        let view = match asked.await {
            Ok(Ok(reply)) => slots::read(&reply, ":0"),
            _ => None,
        };
        match view {
            Some(view) if !view.is_of_one_master() => Err(Fault::impossible(
                "the server is a node of a Redis Cluster and has only a part of the keys: use `redis-cluster://`",
            )),
            _ => {
                logged!(
                    warn,
                    "the lock store is a node of a Redis Cluster: once it has other masters, too, their keys cannot be \
                     locked; use `redis-cluster://`"
                );
                Ok(())
            }
        }
    }

    fn judge(&self, info: &InfoDict) -> Result<(), Fault> {
        let version: String = info.get("redis_version").unwrap_or_default();
        let major = version
            .split('.')
            .next()
            .and_then(|major| major.parse::<u32>().ok());
        if major.is_some_and(|major| major < 7) {
            return Err(Fault::Impossible(format!(
                "the lock store is Redis {version}; 7.0 or newer is needed"
            )));
        }
        let policy: String = info.get("maxmemory_policy").unwrap_or_default();
        if policy.is_empty() && self.opening.options.strict {
            return Err(Fault::impossible(
                "the lock store does not show its maxmemory-policy, which `strict(true)` wants to see",
            ));
        }
        if !policy.is_empty() && policy != "noeviction" {
            let why = format!(
                "the lock store's maxmemory-policy is `{policy}`: it may evict locks that are held, \
                 and then two holders work at once; set it to `noeviction`"
            );
            if self.opening.options.strict {
                return Err(Fault::Impossible(why));
            }
            logged!(warn, "{why}");
        }
        Ok(())
    }

    /// Acquires, renews, hands over and releases a lock, on a key of its own.
    async fn live_once(&self, connection: &mut Wire, key: &Key) -> Result<(), Fault> {
        let (lock, fence) = (key.raw(), key.fence());
        let channel = channel(key);
        let ids = &self.opening.ids;
        let (from, to) = (ids.fresh().text(), ids.fresh().text());
        self.take(connection, key, &from).await?;
        let renew = Renew {
            items: &[(lock, from.clone(), LEASE_MS.cast_signed())],
        };
        if self.call(connection, &renew).await? != [Renewed::Held] {
            return Err(self.inconsistent("renew"));
        }
        let hand_over = HandOver {
            lock,
            fence: Some(&fence),
            from: &from,
            to: &to,
            lease_ms: LEASE_MS,
            channel: &channel,
            counted: false,
            spare: SPARE_TOKENS,
        };
        match self.call(connection, &hand_over).await? {
            Some((.., tenure)) => {
                if tenure.subscribers.is_none() {
                    logged!(
                        warn,
                        "the lock store does not show how many listen to a channel (PUBSUB NUMSUB, in a cluster PUBSUB \
                         SHARDNUMSUB): this process backs off for other processes more often"
                    );
                }
            }
            None => return Err(self.inconsistent("handover")),
        }
        if !self.give_back(connection, key, &to).await? {
            logged!(
                warn,
                "the lock store refuses PUBLISH on lock channels (in a cluster SPUBLISH): waiters of other processes \
                 will not be woken by a release, but ask again about once a second"
            );
        }
        Ok(())
    }

    async fn take(&self, connection: &mut Wire, key: &Key, holder: &str) -> Result<(), Fault> {
        let (clock, fence) = (&self.clock, key.fence());
        // The second try is for a clock that has jumped since it was last read.
        for _ in 0..2 {
            let sent_at = clock::now();
            let acquire = Acquire {
                lock: key.raw(),
                fence: Some(&fence),
                holder,
                lease_ms: LEASE_MS,
                not_after_us: clock.not_after(sent_at, sent_at + self.timeout()),
                counted: false,
                channel: None,
                spare: None,
            };
            match self.call(connection, &acquire).await? {
                AcquireReply::Granted { time, .. } => {
                    clock.saw(time, sent_at);
                    return Ok(());
                }
                AcquireReply::Busy { .. } => return Err(self.inconsistent("acquire")),
                AcquireReply::Stale { time } => clock.saw(time, sent_at),
            }
        }
        Err(Fault::not_done("the lock store's clock jumped"))
    }

    /// Releases the lock. Returns `true` if the server has published the release.
    async fn give_back(
        &self,
        connection: &mut Wire,
        key: &Key,
        holder: &str,
    ) -> Result<bool, Fault> {
        let channel = channel(key);
        let release = Release::of(key.raw(), holder, &channel);
        let reply = self.call(connection, &release).await?;
        if reply.done.released != Released::Done {
            return Err(self.inconsistent("release"));
        }
        Ok(reply.unpublished.is_empty())
    }

    async fn call<S: Script>(&self, connection: &mut Wire, script: &S) -> Result<S::Reply, Fault> {
        let name = S::source().name;
        let manner = Manner {
            channels: self.channels,
            ..Manner::PLAIN
        };
        let run = scripting::run(connection, script, manner);
        let answer = scripting::in_time(name, self.timeout(), run).await;
        answer.map_err(|fault| match fault {
            Fault::Denied(source) => Fault::denied(format!("the script `{name}`: {source}")),
            fault if faults::is_demotion(&fault) => {
                Fault::not_done(format!("{fault} {}", dial::NO_MASTER))
            }
            fault => fault,
        })
    }

    /// Returns the fault of an answer that makes no sense, because no other client knows the check's key.
    fn inconsistent(&self, script: &str) -> Fault {
        Fault::not_done(format!(
            "the lock store did not keep a new lock until the script `{script}` asked for it"
        ))
    }
}

/// Returns the key of a lock that is acquired only to check that the server grants it. In a cluster, the key is in
/// `slot`.
pub(crate) fn own_key(opening: &Opening, slot: Option<u16>) -> Result<Key, Fault> {
    let tag = slot.map_or(0, key::tag_of);
    // No other manager has this name, whatever random bytes it drew: see `HolderIds`.
    let own = Uuid::from_bytes(opening.ids.fresh().permit(0));
    let name = LockName::from(format!("connect-check:{{{tag}}}:{own}"));
    Key::new(&opening.options.namespace, &name, Kind::Mutex)
        .map_err(|error| Fault::Impossible(format!("the namespace cannot be used: {error}")))
}

/// Parses a TIME reply into µs.
pub(crate) fn micros(reply: &Value) -> Option<u64> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value_ref(reply).ok()?;
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::options::Options;

    fn judged(strict: bool, info: &str) -> Result<(), Fault> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let opening = Opening {
            options: Options {
                strict,
                ..Options::default()
            },
            runtime: runtime.handle().clone(),
            events: std::sync::Arc::new(|_| ()),
            ids: std::sync::Arc::default(),
            uptime: None,
        };
        let check = Check {
            opening,
            clock: ServerClock::default(),
            channels: ClusterChannels::Classic,
            slot: None,
        };
        check.judge(&InfoDict::new(info))
    }

    #[test]
    fn versions_before_seven_are_refused_by_name() {
        let refused = judged(false, "redis_version:6.2.14\r\n");
        assert!(matches!(refused, Err(Fault::Impossible(why)) if why.contains("6.2.14")));
        assert!(judged(false, "redis_version:7.0.15\r\n").is_ok());
        assert!(judged(false, "redis_version:8.0.0\r\nvalkey_version:9.0.0\r\n").is_ok());
        assert!(judged(false, "").is_ok(), "a proxy that shows nothing");
    }

    #[test]
    fn an_evicting_policy_is_refused_only_when_strict() {
        for policy in ["allkeys-lru", "volatile-ttl", "volatile-lru"] {
            let info = format!("redis_version:7.2.0\r\nmaxmemory_policy:{policy}\r\n");
            assert!(judged(false, &info).is_ok());
            assert!(
                matches!(judged(true, &info), Err(Fault::Impossible(why)) if why.contains(policy))
            );
        }
        assert!(judged(true, "maxmemory_policy:noeviction\r\n").is_ok());
        assert!(judged(true, "redis_version:7.2.0\r\n").is_err());
        assert!(judged(false, "redis_version:7.2.0\r\n").is_ok());
    }

    #[test]
    fn a_time_reply_is_read_strictly() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let time = Value::Array(vec![bulk("1795248594"), bulk("129926")]);
        assert_eq!(micros(&time), Some(1_795_248_594_129_926));
        assert_eq!(micros(&Value::Array(vec![bulk("1")])), None);
        assert_eq!(micros(&Value::Nil), None);
        assert_eq!(
            micros(&Value::Array(vec![bulk("99999999999999999999"), bulk("0")])),
            None
        );
    }
}
