//! The task that keeps a command connection alive.
//!
//! The client's own reconnection gives up after some tries, and does not notice a server that is frozen. Here attempts
//! are unlimited, and a call that timed out makes the supervisor ask the server for a sign of life.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::dial::{self, Dialed, STABLE};
use super::link::{Connected, LinkState};
use super::{Check, Link, Opened, Target};
use crate::backend::kit::hosts::Address;
use crate::backend::kit::{outage::Outage, round_trip::RoundTrip, standing::Standing};
use crate::backend::redis::scripting::faults;
use crate::backend::{Fault, Reply};
use crate::observe::metrics;
use crate::values::{StoreKind, clock};

/// The time in which a server has to show a sign of life after a call has timed out.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// The time for which that sign is awaited while attempts to open another connection go on.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

/// The task that keeps the connection alive.
pub(crate) struct Supervisor {
    target: Arc<Target>,
    link: Arc<Link>,
    /// The node that passed the check, or `None` inside if the URL names the server itself. `None` outside until a
    /// check has passed.
    checked: Option<Option<Address>>,
    closed: watch::Receiver<bool>,
    /// Only for a node of a cluster.
    member: Option<ClusterMember>,
}

/// The signals between a node's connection and its cluster.
pub(crate) struct ClusterMember {
    pub(crate) address: Address,
    /// Becomes true when the node is no longer a master.
    pub(crate) dismissed: watch::Receiver<bool>,
    /// Signalled when the node does not answer.
    pub(crate) alarm: Arc<Notify>,
}

impl Supervisor {
    /// Spawns the task. It ends when `closed` becomes true or its sender is gone.
    ///
    /// `first`: a connection that has passed its check, if there is one.
    pub(crate) fn start(
        target: Arc<Target>,
        check: Arc<Check>,
        closed: watch::Receiver<bool>,
        member: Option<ClusterMember>,
        first: Option<Opened>,
    ) -> Arc<Link> {
        let (state, seen) =
            watch::channel(LinkState::Down(Fault::not_done("not connected yet"), None));
        if let Some(first) = &first {
            LinkState::replace(&state, LinkState::Live(Connected::new(first)));
        }
        let link = Arc::new(Link {
            state: seen,
            suspicion: Notify::new(),
            round_trip: RoundTrip::default(),
            calls: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            standing: Standing::default(),
            check,
            address: member.as_ref().map(|node| node.address.clone()),
            keeps_to_slots: AtomicBool::new(false),
        });
        let supervisor = Supervisor {
            target,
            link: link.clone(),
            checked: first.as_ref().map(|opened| opened.dialed.master.clone()),
            closed,
            member,
        };
        link.check
            .opening
            .runtime
            .spawn(supervisor.run(state, first));
        link
    }

    async fn run(mut self, state: watch::Sender<LinkState>, first: Option<Opened>) {
        let mut closed = self.closed.clone();
        let mut dismissed = self.member.as_ref().map(|node| node.dismissed.clone());
        let dismissed = async {
            match &mut dismissed {
                // An error means that the cluster is gone, and the backend with it.
                Some(dismissed) => _ = dismissed.wait_for(|dismissed| *dismissed).await,
                None => std::future::pending().await,
            }
        };
        let end = tokio::select! {
            // An error means the same: the backend is gone.
            _ = closed.wait_for(|closed| *closed) => LinkState::Closed,
            () = dismissed => LinkState::Dismissed,
            () = self.keep_alive(&state, first) => LinkState::Closed,
        };
        LinkState::replace(&state, end);
    }

    /// Notes that the server does not answer. The alarm makes its cluster look for another node.
    fn is_down(
        &self,
        state: &watch::Sender<LinkState>,
        fault: Fault,
        silent: Option<&SilentConnection>,
    ) {
        // A quorum asks all its nodes in rounds. A further renewal without an answer would keep a round from its end, and
        // the nodes that are back from the next round.
        let silent = silent.filter(|_| self.link.check.opening.uptime.is_none());
        let silent = silent.map(|silent| Connected::new(&silent.opened));
        LinkState::replace(state, LinkState::Down(fault, silent));
        self.link.standing.note(false);
        if let Some(sentinels) = self.target.sentinels() {
            sentinels.unserved();
        }
        if let Some(node) = &self.member {
            node.alarm.notify_one();
        }
    }

    async fn keep_alive(&mut self, state: &watch::Sender<LinkState>, mut next: Option<Opened>) {
        let mut outage = Outage::new("the connection to the lock store");
        let mut pauses = dial::pauses();
        let mut silent = None;
        for times in 0.. {
            let (opened, again) = loop {
                let attempt = match next.take() {
                    Some(opened) => Ok((opened, false)),
                    None => tokio::select! {
                        biased;
                        opened = answers(&mut silent, state) => Ok((opened, false)),
                        attempt = self.attempt() => attempt.map(|opened| (opened, times > 0)),
                    },
                };
                match attempt {
                    Ok(opened) => break opened,
                    Err(fault) => {
                        outage.notice_failure(self.target.shown(), &fault);
                        self.is_down(state, fault, silent.as_ref());
                        tokio::select! {
                            biased;
                            opened = answers(&mut silent, state) => next = Some(opened),
                            () = dial::pause(&mut pauses, &self.target) => {}
                        }
                    }
                }
            };
            drop(silent.take());
            outage.notice_end(self.target.shown());
            let since = clock::now();
            LinkState::replace(state, LinkState::Live(Connected::new(&opened)));
            self.link.standing.note(true);
            let up = metrics::Connection::is_up(StoreKind::Redis, again);
            let fault;
            (fault, silent) = self.watch(opened).await;
            drop(up);
            outage.notice_loss(self.target.shown(), &fault);
            self.is_down(state, fault, silent.as_ref());
            // A server that accepts connections and cuts them at once must not be asked without a pause.
            if since.elapsed() > STABLE {
                pauses.reset();
            } else {
                dial::pause(&mut pauses, &self.target).await;
            }
        }
    }

    async fn attempt(&mut self) -> Result<Opened, Fault> {
        let is_first = self.checked.is_none() && self.member.is_none();
        // Sentinels may be being set up anew, and a name may lead to another server soon.
        let passing = |fault| match fault {
            Fault::Impossible(why) => Fault::not_done(why),
            fault => fault,
        };
        let check = &self.link.check;
        let opened = Opened::open(&self.target, check.timeout(), check).await;
        let opened = match opened {
            // The server was never usable, so the fault is the same as that of `connect`.
            Err(fault) if is_first => return Err(fault),
            opened => opened.map_err(passing)?,
        };
        let Dialed {
            connection, master, ..
        } = &opened.dialed;
        let looked = check.look_at_birth(connection).await;
        looked.map_err(passing)?;
        if self.checked.as_ref() != Some(master) {
            match check.run(connection).await {
                // A new master may be as full as the one before. It renews and releases all the same, and is checked when
                // it is connected to again.
                Err(fault) if !is_first && faults::is_full(&fault) => {}
                Err(fault) => return Err(fault.at(self.target.shown())),
                Ok(()) => self.checked = Some(master.clone()),
            }
        }
        Ok(opened)
    }

    /// Ends when the connection is of no use any more, or seems to be. In the second case, also returns the connection.
    ///
    /// An overloaded server answers the sign of life after all requests that were sent before it. As long as it answers
    /// calls, the connection stays: another one would only make the server do the same work again.
    async fn watch(&self, opened: Opened) -> (Fault, Option<SilentConnection>) {
        loop {
            tokio::select! {
                fault = opened.dialed.ended(&self.target) => return (fault, None),
                () = self.link.suspicion.notified() => {
                    let dialed = &opened.dialed;
                    let (mut connection, target) = (dialed.connection.clone(), self.target.clone());
                    let mut asked: Reply<_> = Box::pin(async move {
                        dial::sign_of_life(&mut connection, &target, LONGEST_SILENCE).await
                    });
                    tokio::select! {
                        answer = &mut asked => if let Err(fault) = answer { return (fault, None) },
                        () = silence(&self.link.answers) => {
                            // Behind sentinels, a node that is silent may be deposed meanwhile.
                            let may_return = self.target.sentinels().is_none();
                            let silent = SilentConnection { opened, sign: asked };
                            return (dial::silent(), may_return.then_some(silent));
                        }
                        () = self.target.superseded(&dialed.master) => return (dial::moved(), None),
                    }
                }
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

/// A connection that has given no sign of life yet. The sign may only be late: if every answer of a store is late, no new
/// connection would be opened in time either. So renewals go on this one meanwhile.
struct SilentConnection {
    opened: Opened,
    sign: Reply<'static, ()>,
}

/// Resolves with the silent connection, if there is one, once it answers after all. If it has failed, nobody uses it any more.
async fn answers(
    silent: &mut Option<SilentConnection>,
    state: &watch::Sender<LinkState>,
) -> Opened {
    if let Some(waiting) = silent
        && (&mut waiting.sign).await.is_ok()
        && let Some(waiting) = silent.take()
    {
        return waiting.opened;
    }
    if silent.take().is_some() {
        let mut gone = None;
        state.send_if_modified(|state| {
            if let LinkState::Down(_, silent) = state {
                gone = silent.take();
            }
            // To those that wait for a connection, this is no news.
            false
        });
        // The state is unlocked here: this may be the last part of the connection.
        drop(gone);
    }
    std::future::pending().await
}
