//! The command connection as callers see it: its state, and requests on it. `supervisor.rs` keeps it alive.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};

use super::acquire_limit::AcquireLimit;
use super::check::Check;
use super::group::ScriptGroup;
use super::opened::{ConnectionFacts, Opened};
use super::wire::Wire;
use crate::backend::Fault;
use crate::backend::kit::hosts::Address;
use crate::backend::kit::round_trip::RoundTrip;
use crate::backend::kit::{server_clock::ServerClock, standing::Standing};
use crate::backend::redis::scripting::{self, Manner, Script, faults};
use crate::observe::metrics;
use crate::values::{HolderId, Moment, NodeHealth, StoreKind, clock, rare};

/// One call in this number measures its round trip, beginning with the first.
const SAMPLED: u64 = 16;

/// The state of the connection as callers see it, and their signals to the supervisor.
pub(crate) struct Link {
    pub(super) state: watch::Receiver<LinkState>,
    /// Signalled by callers; the supervisor then checks the connection.
    pub(super) suspicion: Notify,
    /// Written by one answered call in [`SAMPLED`].
    pub(super) round_trip: RoundTrip,
    pub(super) calls: AtomicU64,
    /// The number of answered calls: a connection that answers is alive.
    pub(super) answers: AtomicU64,
    pub(super) standing: Standing,
    pub(crate) check: Arc<Check>,
    /// The node of a cluster to which the connection leads.
    pub(super) address: Option<Address>,
    /// Whether the server has refused a script because its keys were of several slots. Such a server looks like a
    /// single one and is a cluster, or a proxy in front of one.
    pub(super) keeps_to_slots: AtomicBool,
}

/// A connection that answered when it was last used. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Live {
    connected: Connected,
    pub(crate) link: Arc<Link>,
    /// Whether ASKING precedes each script, because their slot is only being moved to this node.
    pub(crate) asking: bool,
    /// The number of times that the request went on to another node or connection.
    pub(crate) hops: u32,
}

/// The supervisor's connection and its details.
#[derive(Clone)]
pub(super) struct Connected {
    connection: Wire,
    /// Shared, because each request has a copy of the rest.
    facts: Arc<ConnectionFacts>,
    /// Closed once another state has replaced this one.
    limit: Arc<AcquireLimit>,
    group: Arc<ScriptGroup>,
}

impl Connected {
    pub(super) fn new(opened: &Opened) -> Connected {
        Connected {
            connection: opened.dialed.connection.clone(),
            facts: opened.facts.clone(),
            limit: Arc::new(AcquireLimit::new()),
            group: Arc::default(),
        }
    }

    fn is_one_with(&self, other: &Connected) -> bool {
        self.facts.ids_from == other.facts.ids_from
    }
}

pub(super) enum LinkState {
    /// With the connection that has fallen silent, while its answers may only be late.
    Down(Fault, Option<Connected>),
    Live(Connected),
    /// The node is no longer a master of the cluster.
    Dismissed,
    Closed,
}

impl LinkState {
    /// Replaces the state. Callers that wait for a permit of the replaced connection look for another connection.
    pub(super) fn replace(state: &watch::Sender<LinkState>, by: LinkState) {
        if let LinkState::Live(connected) = state.send_replace(by) {
            connected.limit.close();
        }
    }

    /// Returns the connection, or the reason why there is none.
    fn connected(&self) -> Result<&Connected, Fault> {
        match self {
            LinkState::Live(connected) => Ok(connected),
            LinkState::Down(fault, _) => Err(fault.clone()),
            LinkState::Dismissed => Err(dismissed()),
            LinkState::Closed => Err(Fault::closed()),
        }
    }
}

impl Link {
    /// Returns the live connection, waiting for one until `deadline`, and the current time, which is `now` if there was
    /// one at once.
    pub(crate) async fn get(
        self: &Arc<Link>,
        now: Moment,
        deadline: Moment,
    ) -> Result<(Live, Moment), Fault> {
        match self.live() {
            Some(live) => Ok((live, now)),
            None => Ok((rare(self.wait(deadline)).await?, clock::now())),
        }
    }

    async fn wait(self: &Arc<Link>, deadline: Moment) -> Result<Live, Fault> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| {
            !matches!(
                state,
                LinkState::Down(Fault::NotDone(_) | Fault::Unknown(_), _)
            )
        });
        let waited = tokio::time::timeout_at(deadline.tick(), settled).await;
        match waited {
            Ok(Ok(state)) => state.connected().map(|connected| self.on(connected)),
            Ok(Err(_)) => Err(self.ended()),
            Err(_) => Err(match &*self.state.borrow() {
                LinkState::Down(fault, _) => Fault::not_done(format!("not connected: {fault}")),
                _ => Fault::not_done("not connected in time"),
            }),
        }
    }

    fn on(self: &Arc<Link>, connected: &Connected) -> Live {
        Live {
            connected: connected.clone(),
            link: self.clone(),
            asking: false,
            hops: 0,
        }
    }

    /// Runs a script on this connection, sent now, until `deadline`. `once`: it is sent at most once, with the first poll.
    pub(super) async fn call<S: Script>(
        &self,
        live: &Live,
        script: &S,
        once: bool,
        now: Moment,
        deadline: Moment,
    ) -> Result<S::Reply, Fault> {
        if now.has_reached(deadline) {
            return Err(Fault::not_done("no time was left to send the request"));
        }
        // One call in several is enough.
        let sampled = self
            .calls
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(SAMPLED);
        let mut connection = live.connected.connection.clone();
        let manner = Manner {
            channels: self.check.channels,
            asking: live.asking,
            once,
        };
        // Pinned here: by value, its kilobyte and a half would be moved into the timeout.
        let call = pin!(scripting::run(&mut connection, script, manner));
        match tokio::time::timeout_at(deadline.tick(), call).await {
            Ok(Err(Fault::Unknown(source))) => {
                self.suspicion.notify_one();
                // Without a supervisor there will never be another connection.
                Err(match self.state.has_changed() {
                    Err(_) if !self.is_dismissed() => self.ended(),
                    _ => Fault::Unknown(source),
                })
            }
            Ok(answer) => {
                self.answers.fetch_add(1, Ordering::Relaxed);
                if let Err(fault) = &answer {
                    self.learn(fault);
                }
                if sampled {
                    self.round_trip.took(now.elapsed());
                }
                // Requests that share a script are sent again one by one, and their errors are explained then.
                if once {
                    answer
                } else {
                    answer.map_err(|fault| self.elsewhere(fault))
                }
            }
            Err(_) => {
                metrics::called(StoreKind::Redis, S::source().name, false);
                Err(self.unanswered())
            }
        }
    }

    /// Notes what an error shows about the server.
    fn learn(&self, fault: &Fault) {
        // The only shard of a cluster may have another master now.
        if faults::is_demotion(fault) || self.address.is_none() && faults::is_moved(fault) {
            self.suspicion.notify_one();
        }
        if faults::is_of_several_slots(fault) {
            self.keeps_to_slots.store(true, Ordering::Relaxed);
        }
    }

    /// Returns `true` if a script must have keys of one slot only.
    pub(crate) fn keeps_to_slots(&self) -> bool {
        self.keeps_to_slots.load(Ordering::Relaxed)
    }

    /// Explains an answer that only a node of a cluster gives: another node has the key, or the keys are of several
    /// slots. The links of a cluster follow such answers instead.
    fn elsewhere(&self, fault: Fault) -> Fault {
        match &fault {
            Fault::NotDone(source) if self.address.is_none() => {
                let text = source.to_string();
                match text.split(' ').next() {
                    Some("CROSSSLOT") => Fault::Impossible(format!(
                        "the server is a node of a Redis Cluster and cannot serve this: use `redis-cluster://` ({text})"
                    )),
                    Some("MOVED") => Fault::not_done(format!(
                        "the server is a node of a Redis Cluster and does not have this key: it is not the master any more, \
                         or not the only one; then use `redis-cluster://` ({text})"
                    )),
                    _ => fault,
                }
            }
            _ => fault,
        }
    }

    /// Returns the fault of a request that was not answered before its deadline.
    pub(super) fn unanswered(&self) -> Fault {
        self.suspicion.notify_one();
        Fault::unknown("no answer within the call timeout")
    }

    /// Returns the reason why the supervisor has ended.
    fn ended(&self) -> Fault {
        match &*self.state.borrow() {
            LinkState::Closed => Fault::closed(),
            LinkState::Dismissed => dismissed(),
            _ => Fault::runtime_ended(),
        }
    }

    /// Returns the live connection, if there is one at this moment.
    pub(crate) fn live(self: &Arc<Link>) -> Option<Live> {
        match &*self.state.borrow() {
            LinkState::Live(connected) => Some(self.on(connected)),
            _ => None,
        }
    }

    /// Returns the connection that has fallen silent, if its answers may only be late.
    pub(crate) fn silent(self: &Arc<Link>) -> Option<Live> {
        match &*self.state.borrow() {
            LinkState::Down(_, Some(connected)) => Some(self.on(connected)),
            _ => None,
        }
    }

    /// Returns `true` if it leads to a node that is no longer a master of the cluster.
    pub(crate) fn is_dismissed(&self) -> bool {
        matches!(&*self.state.borrow(), LinkState::Dismissed)
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(&*self.state.borrow(), LinkState::Live(_))
    }

    /// Makes the supervisor check the connection.
    pub(crate) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    /// Checks whether the server grants locks. Does not wait for a connection that is down: the server is then known
    /// not to.
    pub(crate) async fn health(self: &Arc<Link>, node: &str, deadline: Moment) -> NodeHealth {
        let there = self
            .state
            .borrow()
            .connected()
            .map(|connected| self.on(connected));
        let answer = match there {
            Ok(live) => self.can_lock(&live, deadline).await,
            Err(fault) => Err(fault),
        };
        let since = self.standing.note(answer.is_ok()).wall();
        NodeHealth::new(node, since, answer.map_err(|fault| fault.to_string()))
    }

    async fn can_lock(&self, live: &Live, deadline: Moment) -> Result<Duration, Fault> {
        let took = self.ping(live, deadline).await?;
        let connection = live.connection();
        let tried = self.check.can_lock(&connection);
        match tokio::time::timeout_at(deadline.tick(), tried).await {
            Ok(Ok(())) => Ok(took),
            Ok(Err(fault)) => {
                self.learn(&fault);
                Err(fault)
            }
            Err(_) => Err(self.unanswered()),
        }
    }

    /// Measures the time that the server takes to answer. A server that is loading its data, or may not write to its
    /// disk, answers with an error.
    async fn ping(&self, live: &Live, deadline: Moment) -> Result<Duration, Fault> {
        let (mut connection, asked_at) = (live.connection(), clock::now());
        let ping = redis::cmd("PING");
        let asked = scripting::send(&mut connection, &ping);
        match tokio::time::timeout_at(deadline.tick(), asked).await {
            Err(_) => Err(self.unanswered()),
            // A user need not have the right to PING, so its refusal is an answer, too.
            Ok(Err(error)) if !faults::is_no_right(&error) => {
                self.suspicion.notify_one();
                Err(faults::of_call(&error))
            }
            Ok(_) => {
                self.answers.fetch_add(1, Ordering::Relaxed);
                Ok(asked_at.elapsed())
            }
        }
    }

    pub(crate) fn round_trip(&self) -> Duration {
        self.round_trip.recent()
    }
}

fn dismissed() -> Fault {
    Fault::not_done("the node is no longer a master of the cluster")
}

impl Live {
    /// Runs a script, sent now, until `deadline`.
    pub(crate) async fn call<S: Script>(
        &self,
        script: &S,
        now: Moment,
        deadline: Moment,
    ) -> Result<S::Reply, Fault> {
        self.link.call(self, script, false, now, deadline).await
    }

    pub(super) fn group(&self) -> &ScriptGroup {
        &self.connected.group
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.link.check.opening.runtime
    }

    /// Returns one of the connection's permits to acquire and the current time, which is `now` if a permit was free at
    /// once. Returns `None` if the connection was given up before a permit was free.
    pub(crate) fn permit(
        &self,
        now: Moment,
        deadline: Moment,
    ) -> impl Future<Output = Result<Option<(OwnedSemaphorePermit, Moment)>, Fault>> + Send {
        self.connected.limit.get(now, deadline)
    }

    /// Publishes a message outside a script.
    pub(crate) async fn publish(
        mut self,
        verb: &str,
        channel: &str,
        payload: &str,
    ) -> Result<(), Fault> {
        let command = redis::cmd(verb).arg(channel).arg(payload).take();
        let published = scripting::send(&mut self.connected.connection, &command).await;
        published.map(drop).map_err(|error| faults::of_call(&error))
    }

    /// Returns `true` if requests on both are executed in the order in which they were queued.
    pub(crate) fn is_one_with(&self, other: &Live) -> bool {
        Arc::ptr_eq(&self.link, &other.link) && self.connected.is_one_with(&other.connected)
    }

    /// Resolves once requests go on another connection, or on none any more.
    pub(crate) async fn replaced(&self) {
        let mut state = self.link.state.clone();
        let other = state.wait_for(|state| match state {
            LinkState::Live(connected) | LinkState::Down(_, Some(connected)) => {
                !self.connected.is_one_with(connected)
            }
            LinkState::Down(_, None) => false,
            LinkState::Dismissed | LinkState::Closed => true,
        });
        // An error means that the runtime ends.
        _ = other.await;
    }

    /// Returns the id of the server's run, if the server shows it.
    pub(crate) fn run_id(&self) -> Option<&str> {
        self.connected.facts.run_id.as_deref()
    }

    /// Refuses a request of a holder whose id was drawn before the connection was opened.
    ///
    /// # Errors
    /// [`Fault::Outdated`].
    pub(crate) fn may_carry(&self, holder: HolderId) -> Result<(), Fault> {
        if holder.number() < self.connected.facts.ids_from {
            Err(Fault::Outdated)
        } else {
            Ok(())
        }
    }

    /// Returns the node, if sentinels named it.
    pub(crate) fn master(&self) -> Option<&Address> {
        self.connected.facts.master.as_ref()
    }

    /// Returns the node, if it is one of a cluster.
    pub(crate) fn address(&self) -> Option<&Address> {
        self.link.address.as_ref()
    }

    pub(crate) fn clock(&self) -> &ServerClock {
        &self.link.check.clock
    }

    /// Returns a recent round trip in µs.
    pub(crate) fn trip_us(&self) -> u64 {
        u64::try_from(self.link.round_trip().as_micros()).unwrap_or(u64::MAX)
    }

    pub(crate) fn connection(&self) -> Wire {
        self.connected.connection.clone()
    }
}
