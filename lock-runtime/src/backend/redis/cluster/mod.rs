//! A Redis Cluster: finding the node that has a key's slot, and following the slot when it moves.
//!
//! | file | concept |
//! |---|---|
//! | `url` | `redis-cluster://` → the first nodes, login |
//! | `slots` | the nodes' answers about the owners of slots, and the agreement between them |
//! | `members` | the ids of the nodes, which tell them from other servers at their addresses |
//! | `redirect` | MOVED, ASK, TRYAGAIN, CLUSTERDOWN |
//! | `table` | slot → node, and the nodes that are known |
//! | `refresh` | keeping the table true |
//! | `health` | checking that the masters answer |
//! | `subscriptions` | each channel's node |
//!
//! The client's own cluster connection sends a request up to sixteen times, on connections of its choice. Here a
//! request is sent once, on a known connection. Only after a definite "not executed" is it sent to another node.

mod health;
mod members;
pub(crate) mod redirect;
mod refresh;
pub(super) mod slots;
pub(crate) mod subscriptions;
mod table;
mod url;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

pub(super) use self::members::Members;
pub(super) use self::redirect::Redirect;
use self::redirect::RedirectKind;
pub(super) use self::table::ClusterNode;
use self::table::SlotTable;
pub(super) use self::url::{Seeds, parse};
use crate::backend::Fault;
use crate::backend::kit::hosts::Address;
use crate::backend::kit::server_clock::ServerClock;
use crate::backend::kit::standing::Standing;
use crate::backend::opening::Opening;
use crate::backend::redis::connection::{
    Check, ClusterMember, DialOptions, Link, Live, Opened, Supervisor, Target,
};
use crate::values::{Backoff, ClusterChannels, LockError, Moment, clock, key};

/// The number of nodes that may redirect a request before there is a pause. Two nodes that name each other would
/// otherwise redirect it without end.
const HOPS_AT_ONCE: u32 = 3;

/// The nodes and slots of a cluster. They are shared by requests, the task that keeps the table true, and the
/// subscriptions.
pub(super) struct Cluster {
    seeds: Arc<Seeds>,
    shown: String,
    dial_options: Arc<DialOptions>,
    opening: Opening,
    pub(super) table: SlotTable,
    members: Arc<Members>,
    /// The time since which every slot has a node, or since which some slot has none.
    covered: Standing,
    /// Signalled by callers that have reason to doubt the table.
    doubt: Arc<Notify>,
    closed: watch::Receiver<bool>,
}

impl Cluster {
    pub(super) fn new(
        seeds: Arc<Seeds>,
        target: &Target,
        opening: Opening,
        closed: watch::Receiver<bool>,
    ) -> Arc<Cluster> {
        Arc::new(Cluster {
            seeds,
            shown: target.shown().to_owned(),
            dial_options: target.dial_options().clone(),
            opening,
            table: SlotTable::new(),
            members: Arc::default(),
            covered: Standing::default(),
            doubt: Arc::default(),
            closed,
        })
    }

    /// Finds the owners of the slots, connects to each master and checks it. If one master answers, the others are
    /// connected to when they are needed, if they do not answer by `until`.
    pub(super) async fn connect(self: Arc<Self>, until: Moment) -> Result<(), LockError> {
        self.refresh()
            .await
            .map_err(|fault| fault.into_error(&self.shown))?;
        let mut opening = JoinSet::new();
        for node in self.table.masters() {
            let cluster = self.clone();
            opening.spawn(async move { cluster.open(&node).await });
        }
        let (mut there, mut away) = (false, None);
        while let Ok(Some(opened)) =
            tokio::time::timeout_at(until.tick(), opening.join_next()).await
        {
            match opened {
                Ok(Ok(())) => there = true,
                Ok(Err(error @ LockError::Unavailable { .. })) => away = Some(error),
                Ok(Err(error)) => return Err(error),
                Err(_) => {}
            }
        }
        if there {
            return Ok(());
        }
        Err(away.unwrap_or_else(|| {
            let late = Fault::not_done("no master answers in time");
            late.into_error(&self.shown)
        }))
    }

    async fn open(self: &Arc<Self>, node: &Arc<ClusterNode>) -> Result<(), LockError> {
        let target = self.target(&node.address);
        let check = self.check(node);
        let opened = Opened::checked(&target, &check).await?;
        node.link
            .get_or_init(|| self.start(node, check, Some(opened)));
        Ok(())
    }

    /// Returns the connection to that node. If there was none, starts to open one.
    fn link<'a>(self: &Arc<Self>, node: &'a Arc<ClusterNode>) -> &'a Arc<Link> {
        node.link
            .get_or_init(|| self.start(node, self.check(node), None))
    }

    fn start(
        self: &Arc<Self>,
        node: &Arc<ClusterNode>,
        check: Arc<Check>,
        first: Option<Opened>,
    ) -> Arc<Link> {
        let member = ClusterMember {
            address: node.address.clone(),
            dismissed: node.dismissed.subscribe(),
            alarm: self.doubt.clone(),
        };
        Supervisor::start(
            Arc::new(self.target(&node.address)),
            check,
            self.closed.clone(),
            Some(member),
            first,
        )
    }

    pub(super) fn target(&self, address: &Address) -> Target {
        let info = url::at(&self.seeds.server, address, self.seeds.tls);
        let (options, members) = (self.dial_options.clone(), self.members.clone());
        Target::node(info, address, self.seeds.tls, options, members)
    }

    /// Returns the check of one node, which uses a key of one of its slots.
    fn check(self: &Arc<Self>, node: &Arc<ClusterNode>) -> Arc<Check> {
        let cluster = Arc::downgrade(self);
        let address = node.address.clone();
        let slot = move || cluster.upgrade()?.table.slot_of(&address);
        Arc::new(Check {
            opening: self.opening.clone(),
            clock: ServerClock::default(),
            channels: self.channels(),
            slot: Some(Box::new(slot)),
        })
    }

    /// Returns the connection to the node that has the slot, waiting for it until `deadline`, and the current time,
    /// which is `now` if there was no wait.
    ///
    /// If the node does not answer, another node may get its slots meanwhile.
    pub(super) async fn route(
        self: &Arc<Self>,
        slot: u16,
        now: Moment,
        deadline: Moment,
    ) -> Result<(Live, Moment), Fault> {
        let mut changed = self.table.changes();
        let mut now = now;
        loop {
            changed.mark_unchanged();
            let Some(node) = self.table.owner(slot) else {
                if let Some(fault) = self.table.refusal() {
                    return Err(fault);
                }
                self.doubt();
                self.change(&mut changed, deadline).await.map_err(|()| {
                    Fault::not_done(format!(
                        "no node of the cluster is known to have slot {slot}"
                    ))
                })?;
                now = clock::now();
                continue;
            };
            let link = self.link(&node);
            if let Some(live) = link.live() {
                return Ok((live, now));
            }
            // Another node may have its slots by now.
            self.doubt();
            let connected = tokio::select! {
                biased;
                live = link.get(now, deadline) => live,
                _ = changed.changed() => {
                    now = clock::now();
                    continue;
                }
            };
            match connected {
                Err(Fault::NotDone(_)) if link.is_dismissed() && !deadline.has_passed() => {
                    self.doubt();
                    let gone = |()| Fault::not_done("the cluster's nodes change");
                    self.change(&mut changed, deadline).await.map_err(gone)?;
                    now = clock::now();
                }
                connected => return connected,
            }
        }
    }

    /// Returns the connection to the node that has the slot, if it has fallen silent and its answers may only be late.
    pub(super) fn silent(&self, slot: u16) -> Option<Live> {
        let silent = self.table.owner(slot)?.link.get()?.silent()?;
        // Another node may have its slots by now.
        self.doubt();
        Some(silent)
    }

    /// Resolves once the slot is known to have another node than the one that this request went to.
    pub(super) async fn reassigned(&self, slot: u16, from: &Live) {
        self.table.reassigned(slot, from.address()).await;
    }

    /// Returns a number that is the same for all slots of a node.
    pub(super) fn place(&self, slot: u16) -> usize {
        let owner = self.table.owner(slot);
        owner.map_or(0, |node| Arc::as_ptr(&node).addr())
    }

    /// Waits until the table of slots changes. Fails at `deadline`, or when the backend is closed.
    async fn change(&self, changed: &mut watch::Receiver<u64>, deadline: Moment) -> Result<(), ()> {
        let mut closed = self.closed.clone();
        let changed = async {
            tokio::select! {
                changed = changed.changed() => changed.map_err(|_| ()),
                _ = closed.wait_for(|closed| *closed) => Err(()),
            }
        };
        match tokio::time::timeout_at(deadline.tick(), changed).await {
            Ok(changed) => changed,
            Err(_) => Err(()),
        }
    }

    /// Finds the connection for a request that `from` did not execute. Waits if that may help. If there is no time to
    /// wait, returns the error of `from`.
    pub(super) async fn follow(
        self: &Arc<Self>,
        redirect: Redirect,
        from: &Live,
        slot: u16,
        deadline: Moment,
    ) -> Result<(Live, Moment), Fault> {
        let Redirect { kind, fault } = redirect;
        if let RedirectKind::Moved { slot, address } = &kind {
            // First of all: if no time is left, the next request profits.
            self.table.assign(*slot, &named(address.clone(), from));
            self.doubt();
        }
        let hops = from.hops.saturating_add(1);
        let waits = hops > HOPS_AT_ONCE || matches!(kind, RedirectKind::Again | RedirectKind::Down);
        if waits && !deadline.leaves_time_after(pause(hops)).await {
            return Err(fault);
        }
        let now = clock::now();
        if now.has_reached(deadline) {
            return Err(fault);
        }
        let (mut live, now) = match kind {
            RedirectKind::Moved { slot, .. } => self.route(slot, now, deadline).await?,
            RedirectKind::Ask { address } => {
                let node = self.table.node(&named(address, from));
                let (mut live, now) = self.link(&node).get(now, deadline).await?;
                live.asking = true;
                (live, now)
            }
            RedirectKind::Again => self.route(slot, now, deadline).await?,
            RedirectKind::Down => {
                self.doubt();
                self.route(slot, now, deadline).await?
            }
        };
        live.hops = hops;
        Ok((live, now))
    }

    /// Publishes a message that a script did not publish.
    pub(super) async fn publish(
        self: Arc<Self>,
        channel: String,
        payload: String,
        everywhere: bool,
    ) -> Result<(), Fault> {
        let channels = self.channels();
        let sharded = (channels.are_sharded() && !everywhere).then_some("SPUBLISH");
        let classic = (channels.are_classic() || everywhere).then_some("PUBLISH");
        for verb in [sharded, classic].into_iter().flatten() {
            let slot = key::slot(channel.as_bytes());
            let now = clock::now();
            let deadline = now + self.opening.options.call_timeout;
            let (mut live, _) = self.route(slot, now, deadline).await?;
            loop {
                let published = live.clone().publish(verb, &channel, &payload).await;
                let Some(redirect) = published.as_ref().err().and_then(Redirect::of) else {
                    published?;
                    break;
                };
                (live, _) = self.follow(redirect, &live, slot, deadline).await?;
            }
        }
        Ok(())
    }

    /// Makes the task that keeps the table ask the nodes at once.
    fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// Returns the round trip to the node that has the slot. The round trips to other nodes do not matter to its keys.
    pub(super) fn round_trip(&self, slot: u16) -> Duration {
        let owner = self.table.owner(slot);
        let link = owner.as_ref().and_then(|node| node.link.get());
        link.map_or(Duration::ZERO, |link| link.round_trip())
    }

    fn channels(&self) -> ClusterChannels {
        self.opening.options.channels
    }
}

/// Returns the whole address of a node that `from` named. A node that does not know its own name leaves the host out:
/// it then has the host of the node that was asked.
fn named(address: Address, from: &Live) -> Address {
    let asked = from.address().and_then(|asked| url::split(asked));
    match (url::split(&address), asked) {
        (Some(("", port)), Some((host, _))) => url::address(host, port),
        (Some((host, port)), _) => url::address(host, port),
        _ => address,
    }
}

/// Returns the pause before a request is sent to the next node.
fn pause(hops: u32) -> Duration {
    let pauses = Backoff::new(Duration::from_millis(1), Duration::from_millis(50));
    pauses.after(hops).pause()
}
