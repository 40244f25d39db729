//! The command connection: one multiplexed connection that a task of ours keeps alive.
//!
//! The client's own reconnection gives up after some tries, and it does not notice a server that is frozen. Here
//! attempts are unlimited, and a call that timed out makes the supervisor ask the server for a sign of life.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::PushKind;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};

use super::acquire_limit::AcquireLimit;
use super::check;
use super::dial::{self, Outage, STABLE};
use super::rights;
use super::target::Target;
use crate::backend::Fault;
use crate::backend::kit::server_clock::ServerClock;
use crate::backend::redis::scripting::faults;
use crate::backend::redis::scripting::{self, Manner, Script};
use crate::backend::redis::sentinel::Address;
use crate::backend::redis::{CLOSED, GONE};
use crate::values::channels::ClusterChannels;
use crate::values::clock::{self, Moment};
use crate::values::error::{LockError, StoreError};

/// How long a server may take to show a sign of life after a call has timed out.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// For how long its answer is waited for beside attempts to open another connection.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

/// One call in so many measures its round trip; the first one does.
const SAMPLED: u64 = 16;

/// The state of the connection as callers see it, and their word back to the supervisor.
pub(crate) struct Link {
    state: watch::Receiver<State>,
    /// Signalled by callers; the supervisor checks the connection.
    suspicion: Arc<Notify>,
    /// µs, an exponentially weighted average. Written by one answered call in [`SAMPLED`].
    round_trip: AtomicU64,
    calls: AtomicU64,
    /// How many of them were answered: a connection that answers is alive.
    answers: Arc<AtomicU64>,
    clock: Arc<ServerClock>,
    /// What the scripts publish by and count.
    channels: ClusterChannels,
    /// The node of a cluster that it leads to.
    address: Option<Address>,
}

/// A connection that answered when it was last asked. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Live {
    wire: Wire,
    link: Arc<Link>,
    /// Scripts go to a node that is only just being given their slot: each is preceded by ASKING.
    pub(crate) asking: bool,
    /// How many nodes have sent the request elsewhere.
    pub(crate) hops: u32,
}

/// What the supervisor says of its connection.
#[derive(Clone)]
struct Wire {
    connection: MultiplexedConnection,
    /// Requests on one generation are executed in the order in which they were queued.
    generation: u64,
    /// The node, where sentinels named it.
    master: Option<Address>,
    /// Closed once another state has taken the place of this one.
    limit: Arc<AcquireLimit>,
}

impl Wire {
    fn new(opened: &Opened, generation: u64) -> Wire {
        Wire {
            connection: opened.connection.clone(),
            generation,
            master: opened.master.clone(),
            limit: Arc::new(AcquireLimit::new()),
        }
    }
}

enum State {
    Down(Fault),
    Live(Wire),
    /// The node is none of the cluster's masters any more.
    Dismissed,
    Closed,
}

impl State {
    /// Those who wait for a permit of a connection that was given up look for another one.
    fn replace(state: &watch::Sender<State>, by: State) {
        if let State::Live(wire) = state.send_replace(by) {
            wire.limit.close();
        }
    }
}

impl Link {
    /// Spawns the supervisor. It ends when `closed` becomes true or its sender is gone.
    ///
    /// `first`: a connection that is already checked, or none yet.
    pub(crate) fn start(supervisor: Supervisor, first: Option<Opened>) -> Arc<Link> {
        let (state, seen) = watch::channel(State::Down(Fault::NotDone(StoreError::new(
            "not connected yet",
        ))));
        let link = Arc::new(Link {
            state: seen,
            suspicion: supervisor.suspicion.clone(),
            round_trip: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            answers: supervisor.answers.clone(),
            clock: supervisor.clock.clone(),
            channels: supervisor.check.channels,
            address: supervisor.member.as_ref().map(|node| node.address.clone()),
        });
        let handle = supervisor.check.handle.clone();
        if let Some(first) = &first {
            State::replace(&state, State::Live(Wire::new(first, 0)));
        }
        handle.spawn(supervisor.run(state, first));
        link
    }

    /// The live connection, waiting for one until `deadline`, and what time it is then: `now`, if there was one.
    pub(crate) async fn get(
        self: &Arc<Link>,
        now: Moment,
        deadline: Moment,
    ) -> Result<(Live, Moment), Fault> {
        match self.live() {
            Some(live) => Ok((live, now)),
            None => Ok((self.wait(deadline).await?, clock::now())),
        }
    }

    async fn wait(self: &Arc<Link>, deadline: Moment) -> Result<Live, Fault> {
        let mut state = self.state.clone();
        let settled = state
            .wait_for(|state| !matches!(state, State::Down(Fault::NotDone(_) | Fault::Unknown(_))));
        let waited = tokio::time::timeout_at(deadline.tick(), settled).await;
        match waited {
            Ok(Ok(state)) => match &*state {
                State::Live(wire) => Ok(self.on(wire)),
                State::Down(fault) => Err(fault.clone()),
                State::Dismissed => Err(dismissed()),
                State::Closed => Err(Fault::Closed(CLOSED)),
            },
            Ok(Err(_)) => Err(self.ended()),
            Err(_) => Err(match &*self.state.borrow() {
                State::Down(fault) => {
                    Fault::NotDone(StoreError::new(format!("not connected: {fault}")))
                }
                _ => Fault::NotDone(StoreError::new("not connected in time")),
            }),
        }
    }

    fn on(self: &Arc<Link>, wire: &Wire) -> Live {
        Live {
            wire: wire.clone(),
            link: self.clone(),
            asking: false,
            hops: 0,
        }
    }

    async fn call<S: Script>(
        &self,
        live: &Live,
        script: &S,
        now: Moment,
        deadline: Moment,
    ) -> Result<S::Reply, Fault> {
        if now.has_reached(deadline) {
            return Err(Fault::NotDone(StoreError::new(
                "no time was left to send the request",
            )));
        }
        // Every so often is enough for an average.
        let sampled = self
            .calls
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(SAMPLED);
        let mut connection = live.wire.connection.clone();
        let manner = Manner {
            channels: self.channels,
            asking: live.asking,
        };
        // Pinned here: by value, its kilobyte and a half would be moved into the timeout.
        let call = pin!(rights::run(&mut connection, script, manner));
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
                if answer.as_ref().is_err_and(faults::is_demotion) {
                    self.suspicion.notify_one();
                }
                if sampled {
                    self.learn_round_trip(now.elapsed());
                }
                answer
            }
            Err(_) => {
                self.suspicion.notify_one();
                Err(Fault::Unknown(StoreError::new(
                    "no answer within the call timeout",
                )))
            }
        }
    }

    /// Why there is no supervisor any more.
    fn ended(&self) -> Fault {
        match &*self.state.borrow() {
            State::Closed => Fault::Closed(CLOSED),
            State::Dismissed => dismissed(),
            _ => Fault::Closed(GONE),
        }
    }

    /// The live connection, if there is one at this moment.
    pub(crate) fn live(self: &Arc<Link>) -> Option<Live> {
        match &*self.state.borrow() {
            State::Live(wire) => Some(self.on(wire)),
            _ => None,
        }
    }

    /// True if it leads to a node that is none of the cluster's masters any more.
    pub(crate) fn is_dismissed(&self) -> bool {
        matches!(&*self.state.borrow(), State::Dismissed)
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(&*self.state.borrow(), State::Live(_))
    }

    /// Makes the supervisor look whether the connection is still good.
    pub(crate) fn suspect(&self) {
        self.suspicion.notify_one();
    }

    #[cfg(test)]
    pub(crate) fn clock(&self) -> &ServerClock {
        &self.clock
    }

    pub(crate) fn round_trip(&self) -> Duration {
        Duration::from_micros(self.round_trip.load(Ordering::Relaxed))
    }

    /// Two writers at once may lose one of two samples: it is an estimate.
    fn learn_round_trip(&self, sample: Duration) {
        let sample = u64::try_from(sample.as_micros()).unwrap_or(u64::MAX);
        let average = match self.round_trip.load(Ordering::Relaxed) {
            0 => sample,
            average => average - average / 8 + sample / 8,
        };
        self.round_trip.store(average.max(1), Ordering::Relaxed);
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.state.borrow() {
            State::Down(_) => "Down",
            State::Live(_) => "Live",
            State::Dismissed => "Dismissed",
            State::Closed => "Closed",
        })
    }
}

fn dismissed() -> Fault {
    Fault::NotDone(StoreError::new(
        "the node is no master of the cluster any more",
    ))
}

impl Live {
    /// Runs a script, sent now, until `deadline`.
    pub(crate) async fn call<S: Script>(
        &self,
        script: &S,
        now: Moment,
        deadline: Moment,
    ) -> Result<S::Reply, Fault> {
        self.link.call(self, script, now, deadline).await
    }

    /// One of the connection's permits to acquire, and what time it is then: `now`, if one was free. `None` if the
    /// connection was given up before there was one.
    pub(crate) async fn permit(
        &self,
        now: Moment,
        deadline: Moment,
    ) -> Result<Option<(OwnedSemaphorePermit, Moment)>, Fault> {
        self.wire.limit.get(now, deadline).await
    }

    /// Makes the supervisor look whether the connection is still good.
    pub(crate) fn suspect(&self) {
        self.link.suspect();
    }

    /// Publishes outside a script.
    pub(crate) async fn publish(
        mut self,
        verb: &str,
        channel: &str,
        payload: &str,
    ) -> Result<(), Fault> {
        let command = redis::cmd(verb).arg(channel).arg(payload).take();
        match scripting::send(&mut self.wire.connection, &command).await {
            Ok(_) => Ok(()),
            Err(error) => Err(faults::of_call(&error)),
        }
    }

    /// Whether requests on both are executed in the order in which they were queued.
    pub(crate) fn is_one_with(&self, other: &Live) -> bool {
        Arc::ptr_eq(&self.link, &other.link) && self.wire.generation == other.wire.generation
    }

    /// The node, where sentinels named it.
    pub(crate) fn master(&self) -> Option<&Address> {
        self.wire.master.as_ref()
    }

    /// The node of a cluster.
    pub(crate) fn address(&self) -> Option<&Address> {
        self.link.address.as_ref()
    }

    pub(crate) fn clock(&self) -> &ServerClock {
        &self.link.clock
    }

    pub(crate) fn connection(&self) -> MultiplexedConnection {
        self.wire.connection.clone()
    }
}

/// A fresh connection and the signal that it was cut.
pub(crate) struct Opened {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) cut: Arc<Notify>,
    pub(crate) master: Option<Address>,
}

impl Opened {
    /// The first connection to a server, which is checked before anything else is asked of it.
    pub(crate) async fn checked(
        target: &Target,
        check: &check::Check,
        clock: &ServerClock,
    ) -> Result<Opened, LockError> {
        let looked = async {
            let opened = Opened::open(target, check.timeout, clock).await?;
            check.look_at_birth(&opened.connection).await?;
            Ok(opened)
        };
        let refused = |refusal: check::Refusal| refusal.into_error(target.shown());
        let opened = looked
            .await
            .map_err(|fault| refused(check::Refusal::Fault(fault)))?;
        check
            .run(&opened.connection, clock)
            .await
            .map_err(refused)?;
        Ok(opened)
    }

    /// Connects and reads the server's clock.
    pub(crate) async fn open(
        target: &Target,
        timeout: Duration,
        clock: &ServerClock,
    ) -> Result<Opened, Fault> {
        let cut = Arc::new(Notify::new());
        let signal = cut.clone();
        let dialed = dial::open(target, timeout, move |push| {
            if push.kind == PushKind::Disconnection {
                signal.notify_one();
            }
        })
        .await?;
        let (mut connection, master) = (dialed.connection, dialed.master);
        let sent_at = clock::now();
        let time = redis::cmd("TIME");
        let asked = tokio::time::timeout(timeout, scripting::send(&mut connection, &time)).await;
        let micros = match asked {
            Ok(Ok(reply)) => check::micros(&reply).ok_or_else(|| faults::malformed("TIME")),
            Ok(Err(error)) => Err(faults::of_connecting(&error, target.is_tls())),
            Err(_) => Err(Fault::NotDone(StoreError::new(format!(
                "no answer within {timeout:?}"
            )))),
        }?;
        clock.saw(micros, sent_at);
        Ok(Opened {
            connection,
            cut,
            master,
        })
    }
}

/// What the task needs that keeps the connection alive.
pub(crate) struct Supervisor {
    pub(crate) target: Arc<Target>,
    pub(crate) check: check::Check,
    /// The node that passed the check; the empty one, where the URL names the server itself. `None` until then.
    pub(crate) checked: Option<Option<Address>>,
    pub(crate) clock: Arc<ServerClock>,
    pub(crate) suspicion: Arc<Notify>,
    /// Calls that were answered.
    pub(crate) answers: Arc<AtomicU64>,
    pub(crate) closed: watch::Receiver<bool>,
    /// Of a cluster.
    pub(crate) member: Option<Member>,
}

/// What a connection to a node of a cluster has to do with that.
pub(crate) struct Member {
    pub(crate) address: Address,
    /// Becomes true when the node is none of the masters any more.
    pub(crate) dismissed: watch::Receiver<bool>,
    /// Signalled when the node goes away.
    pub(crate) alarm: Arc<Notify>,
}

impl Member {
    async fn dismissed(member: &mut Option<watch::Receiver<bool>>) {
        match member {
            // An error means that the cluster is gone, and the backend with it.
            Some(dismissed) => _ = dismissed.wait_for(|dismissed| *dismissed).await,
            None => std::future::pending().await,
        }
    }
}

impl Supervisor {
    async fn run(mut self, state: watch::Sender<State>, first: Option<Opened>) {
        let mut closed = self.closed.clone();
        let mut dismissed = self.member.as_ref().map(|node| node.dismissed.clone());
        let end = tokio::select! {
            // An error means that the backend is gone: the same.
            _ = closed.wait_for(|closed| *closed) => State::Closed,
            () = Member::dismissed(&mut dismissed) => State::Dismissed,
            () = self.keep_alive(&state, first) => State::Closed,
        };
        State::replace(&state, end);
    }

    /// What a cluster does about a node that is away, it has to be asked.
    fn is_down(&self, state: &watch::Sender<State>, fault: Fault) {
        State::replace(state, State::Down(fault));
        if let Some(node) = &self.member {
            node.alarm.notify_one();
        }
    }

    async fn keep_alive(&mut self, state: &watch::Sender<State>, mut next: Option<Opened>) {
        let mut outage = Outage::new("the connection to the lock store is");
        let mut pauses = dial::pauses();
        let mut silent = None;
        for generation in 0.. {
            let opened = loop {
                let attempt = match next.take() {
                    Some(opened) => Ok(opened),
                    None => tokio::select! {
                        biased;
                        opened = Silent::answers(&mut silent) => Ok(opened),
                        attempt = self.attempt() => attempt,
                    },
                };
                match attempt {
                    Ok(opened) => break opened,
                    Err(fault) => {
                        outage.is_on(&self.target, &fault);
                        self.is_down(state, fault);
                        tokio::select! {
                            biased;
                            opened = Silent::answers(&mut silent) => next = Some(opened),
                            () = dial::pause(&mut pauses, &self.target) => {}
                        }
                    }
                }
            };
            drop(silent.take());
            outage.is_over(&self.target);
            let since = clock::now();
            State::replace(state, State::Live(Wire::new(&opened, generation)));
            let fault;
            (fault, silent) = self.watch(opened).await;
            outage.is_on(&self.target, &fault);
            self.is_down(state, fault);
            // A server that accepts and cuts at once is not to be asked without a pause.
            if since.elapsed() > STABLE {
                pauses.reset();
            } else {
                dial::pause(&mut pauses, &self.target).await;
            }
        }
    }

    async fn attempt(&mut self) -> Result<Opened, Fault> {
        let opened = async {
            let opened = Opened::open(&self.target, self.check.timeout, &self.clock).await?;
            self.check.look_at_birth(&opened.connection).await?;
            Ok(opened)
        };
        let opened = opened.await.map_err(|fault| match fault {
            // The sentinels may be being set up anew, a name may lead to another server soon.
            Fault::Impossible(why) => Fault::NotDone(StoreError::new(why)),
            fault => fault,
        })?;
        if self.checked.as_ref() != Some(&opened.master) {
            self.check
                .run(&opened.connection, &self.clock)
                .await
                .map_err(check::Refusal::into_fault)?;
            self.checked = Some(opened.master.clone());
        }
        Ok(opened)
    }

    /// Ends when the connection is of no use any more, or seems to be: then it is returned as well.
    ///
    /// A server with more to do than it can answers the sign of life after all that was sent before: as long as it
    /// answers calls, another connection would only have it do the same again.
    async fn watch(&self, opened: Opened) -> (Fault, Option<Silent>) {
        loop {
            tokio::select! {
                () = opened.cut.notified() => {
                    return (Fault::Unknown(StoreError::new("the connection was cut")), None);
                }
                () = self.suspicion.notified() => {
                    let (mut connection, target) = (opened.connection.clone(), self.target.clone());
                    let mut asked: Asked = Box::pin(async move {
                        dial::sign_of_life(&mut connection, &target, LONGEST_SILENCE).await
                    });
                    tokio::select! {
                        answer = &mut asked => if let Err(fault) = answer { return (fault, None) },
                        () = silence(&self.answers) => {
                            // Behind sentinels, a node that is silent may be deposed meanwhile.
                            let may_return = self.target.sentinels().is_none();
                            return (dial::silent(), may_return.then_some(Silent { opened, asked }));
                        }
                        () = self.target.superseded(&opened.master) => return (moved(), None),
                    }
                }
                () = self.target.superseded(&opened.master) => return (moved(), None),
            }
        }
    }
}

/// Resolves once no call was answered for as long as a sign of life may take.
async fn silence(answers: &AtomicU64) {
    let mut heard = answers.load(Ordering::Relaxed);
    loop {
        clock::sleep(SIGN_OF_LIFE).await;
        let before = std::mem::replace(&mut heard, answers.load(Ordering::Relaxed));
        if heard == before {
            return;
        }
    }
}

/// Whether a connection is still good.
type Asked = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

/// A connection that has given no sign of life yet. It may be late: of a store whose every answer is, no new connection
/// would be opened in time either.
struct Silent {
    opened: Opened,
    asked: Asked,
}

impl Silent {
    /// The connection once it answers after all; never, if there is none or it has failed.
    async fn answers(silent: &mut Option<Silent>) -> Opened {
        if let Some(waiting) = silent {
            let answer = waiting.asked.as_mut().await;
            if let Some(Silent { opened, .. }) = silent.take()
                && answer.is_ok()
            {
                return opened;
            }
        }
        std::future::pending().await
    }
}

/// Calls under way go on, and their answers count; what comes next goes to the new master.
fn moved() -> Fault {
    Fault::Unknown(StoreError::new("the master has moved"))
}
