//! The task that keeps the table up to date. It asks several nodes, at intervals and whenever a caller doubts the
//! table.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::Cluster;
use super::members;
use super::slots::{self, SlotView};
use crate::backend::Fault;
use crate::backend::kit::closed::until_closed;
use crate::backend::kit::hosts::Address;
use crate::backend::redis::connection::{Wire, dial, refused::refused};
use crate::backend::redis::scripting::{self, faults};
use crate::observe::metrics::logged;
use crate::values::{clock, jittered};

/// The pause while all is well, jittered.
const SELDOM: Duration = Duration::from_secs(10);
/// The pause while a slot has no node, or the connection to a master is down, jittered: another node may have the slot
/// by now.
const OFTEN: Duration = Duration::from_millis(250);
/// The same pause after a long time without changes.
const RARELY: Duration = Duration::from_secs(2);
/// The least pause between two refreshes, however many callers doubt the table, jittered.
const LEAST: Duration = Duration::from_millis(50);
/// The time for which slower nodes are awaited once one has answered.
const GRACE: Duration = Duration::from_millis(100);
/// The same time before anything is known of the cluster: the first view should be that of most of the URL's hosts.
const FIRST_GRACE: Duration = Duration::from_secs(1);
/// The number of nodes that are asked at once, while any has a connection.
const ASKED: usize = 5;
/// If this many nodes have a connection and all is well, no connection is opened only to ask.
const ENOUGH: usize = 3;

impl Cluster {
    /// Keeps the table up to date until the backend is closed.
    pub(in super::super) async fn keep_table(self: Arc<Self>) {
        until_closed(self.closed.clone(), self.keep_refreshing()).await;
    }

    async fn keep_refreshing(self: &Arc<Self>) {
        let mut failing = false;
        // The last state, and the time since which it has lasted.
        let (mut state, mut since) = (None, clock::now());
        loop {
            let refreshed = self.refresh().await;
            match &refreshed {
                Err(fault) if !failing => {
                    logged!(warn, cluster = self.shown, reason = %fault, "no node reports the owners of the slots");
                }
                Ok(()) if failing => {
                    logged!(
                        info,
                        cluster = self.shown,
                        "nodes report the owners of the slots again"
                    );
                }
                _ => {}
            }
            failing = refreshed.is_err();
            self.table
                .is_refused(refreshed.err().filter(|fault| !fault.is_passing()));
            self.covered.note(self.table.homeless() == 0);
            let troubles = self.table.troubles();
            let found = Some((failing, troubles, self.table.version()));
            if std::mem::replace(&mut state, found) != found {
                since = clock::now();
            }
            let (least, longest) = pauses(failing || troubles > 0, since.elapsed());
            clock::sleep(jittered(least)).await;
            tokio::select! {
                () = self.doubt.notified() => {}
                () = clock::sleep(jittered(longest)) => {}
            }
        }
    }

    /// Asks some nodes at once for the owners of the slots.
    pub(super) async fn refresh(self: &Arc<Self>) -> Result<(), Fault> {
        let timeout = self.opening.options.call_timeout;
        let mut questions = JoinSet::new();
        let asked = self.to_ask();
        let is_open = |(_, connection): &&(Address, Option<Wire>)| connection.is_some();
        // The open connections on which no view was given yet.
        let mut silent = asked.iter().filter(is_open).count();
        for (address, connection) in asked {
            let (cluster, open) = (self.clone(), connection.is_some());
            let question = async move {
                let asked = cluster.ask(&address, connection);
                let answer = scripting::in_time("CLUSTER SLOTS", timeout, asked).await;
                (address, open, answer)
            };
            questions.spawn_on(question, &self.opening.runtime);
        }
        let is_first = self.table.masters().is_empty();
        let hosts = &self.seeds.hosts;
        let (mut views, mut admitted, mut failed) = (Vec::new(), Vec::new(), None);
        let mut until = clock::now() + timeout;
        while let Ok(Some(joined)) =
            tokio::time::timeout_at(until.tick(), questions.join_next()).await
        {
            match joined {
                Ok((address, open, Ok(view))) => {
                    if open {
                        silent -= 1;
                        admitted.push(address.clone());
                    }
                    if open || self.members.know(&view) {
                        let is_alone = is_first && 2 * (views.len() + 1) <= hosts.len();
                        let grace = if is_alone { FIRST_GRACE } else { GRACE };
                        until = until.earlier(clock::now() + grace);
                    } else if failed.is_none() {
                        let what = format!("it is {}", members::FOREIGN);
                        failed = Some((address.clone(), Fault::not_done(what)));
                    }
                    views.push((address, view));
                }
                Ok((address, _, Err(fault))) => {
                    let worse = matches!(failed, None | Some((_, Fault::NotDone(_))));
                    if worse {
                        failed = Some((address, fault));
                    }
                }
                Err(_) => {}
            }
        }
        let answered = !views.is_empty();
        let lease = self.opening.options.lease;
        let views = self
            .members
            .choose(views, hosts, &admitted, silent > 0, lease);
        if views.is_empty() {
            return Err(match failed {
                // It names the node.
                Some((_, fault @ Fault::Impossible(_))) => fault,
                Some((address, fault)) => fault
                    .of_a_question()
                    .about(format_args!("the cluster's node {address}")),
                None if answered => {
                    Fault::not_done("the nodes that answer are of several clusters")
                }
                None => Fault::not_done("no node of the cluster answers"),
            });
        }
        let before = |slot| {
            let node = self.table.owner(slot)?;
            let is_live = node.link.get().is_some_and(|link| link.is_live());
            Some((node.address.clone(), is_live))
        };
        self.table.replace(&slots::agree(&views, before));
        Ok(())
    }

    /// Returns the nodes to ask: first nodes with a connection, then seeds and nodes without one, because a new master
    /// may be none of the known nodes.
    fn to_ask(self: &Arc<Self>) -> Vec<(Address, Option<Wire>)> {
        let mut nodes = self.table.masters();
        fastrand::shuffle(&mut nodes);
        let mut asked: Vec<(Address, Option<Wire>)> = Vec::new();
        let mut others = Vec::new();
        for node in nodes {
            match node.link.get().and_then(|link| link.live()) {
                Some(live) => asked.push((node.address.clone(), Some(live.connection()))),
                None => others.push(node.address.clone()),
            }
        }
        let mut seeds = self.seeds.hosts.clone();
        fastrand::shuffle(&mut seeds);
        if asked.len() >= ENOUGH && !self.table.is_in_trouble() {
            asked.truncate(ASKED);
            return asked;
        }
        // Even if many nodes are connected, one place is for a seed, because all the others may have left the cluster. While
        // none is, any of the seeds may be the only one that lives.
        let most = if asked.is_empty() {
            ASKED.max(seeds.len())
        } else {
            ASKED
        };
        asked.truncate(ASKED - 1);
        for address in seeds.into_iter().chain(others) {
            if asked.len() < most && asked.iter().all(|(known, _)| *known != address) {
                asked.push((address, None));
            }
        }
        asked
    }

    async fn ask(
        self: &Arc<Self>,
        address: &Address,
        connection: Option<Wire>,
    ) -> Result<SlotView, Fault> {
        if *self.closed.borrow() {
            return Err(Fault::closed());
        }
        let mut connection = match connection {
            Some(connection) => connection,
            None => {
                let target = self.target(address);
                let timeout = self.opening.options.call_timeout;
                // What answers there is judged by its view. It may be the first node of a cluster that is new as a whole.
                dial::reach(&target, timeout, Arc::new(|_| ()))
                    .await?
                    .connection
            }
        };
        let question = redis::cmd("CLUSTER").arg("SLOTS").take();
        let reply = match scripting::send(&mut connection, &question).await {
            Ok(reply) => reply,
            Err(error) => return Err(of_refusal(address, faults::of_call(&error))),
        };
        slots::read(&reply, address)
            .ok_or_else(|| Fault::not_done("it reports no slots: it may not be in a cluster yet"))
    }
}

/// Returns the pauses before the next refresh: the first one, which a doubt does not end, and the second one, which a doubt
/// ends. Both are jittered.
///
/// In trouble, they grow to an eighth of the time for which nothing has changed. So a failover is noticed with little
/// delay, and a lasting failure costs little. Requests that wait for a node still raise doubts, which make the task ask a
/// few times in a second.
fn pauses(in_trouble: bool, unchanged: Duration) -> (Duration, Duration) {
    let eighth = unchanged / 8;
    if in_trouble {
        (eighth.clamp(LEAST, OFTEN), eighth.clamp(OFTEN, RARELY))
    } else {
        (LEAST, SELDOM)
    }
}

/// Returns the fault of a refused question. A server that is not in a cluster will not be in one later.
fn of_refusal(address: &str, fault: Fault) -> Fault {
    match fault {
        Fault::NotDone(source) if source.to_string().contains("cluster support disabled") => {
            Fault::Impossible(format!(
                "the server {address} is not a node of a cluster: use `redis://`"
            ))
        }
        fault => refused(fault.of_a_question()).at(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refreshes_get_rarer_while_nothing_changes() {
        let ms = Duration::from_millis;
        for (unchanged, least, longest) in [
            (0, 50, 250),
            (1_000, 125, 250),
            (4_000, 250, 500),
            (60_000, 250, 2_000),
        ] {
            let expected = (ms(least), ms(longest));
            assert_eq!(pauses(true, ms(unchanged)), expected, "{unchanged}");
        }
    }
}
