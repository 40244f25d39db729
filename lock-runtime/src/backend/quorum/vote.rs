//! An acquisition: every node is asked at once; a majority grants it, or it is undone everywhere.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::QuorumBackend;
use super::node::LATE_VOTE_WAIT;
use crate::backend::quorum::broadcast::Round;
use crate::backend::quorum::majority::Votes;
use crate::backend::quorum::request::NodeRequest;
use crate::backend::{AcquireRequest, Acquired, AcquiredAll, Fault};
use crate::values::{Moment, clock};

/// The outcome of a vote.
#[derive(Clone, Copy, Debug)]
pub(super) enum Polled {
    /// `sent_at` is before the first of the requests that made the majority.
    Won { sent_at: Moment },
    Busy {
        left: Option<Duration>,
        /// Whether a node cannot take the locks of a set together.
        apart: bool,
    },
}

/// The state that the tasks of one acquisition, or of one hand-over, share with the caller that started it.
pub(super) struct Grants {
    pub(super) requests: Vec<NodeRequest>,
    ledger: watch::Sender<Ledger>,
}

#[derive(Default)]
struct Ledger {
    withdrawn: bool,
    granted: Vec<usize>,
}

impl Grants {
    pub(super) fn new(requests: Vec<NodeRequest>) -> Arc<Grants> {
        Arc::new(Grants {
            requests,
            ledger: watch::Sender::default(),
        })
    }

    /// Enters a node's grant. Returns `false` if it is not wanted any more. Then the task that got it gives it back.
    pub(super) fn keep(&self, node: usize) -> bool {
        let mut is_wanted = false;
        self.ledger.send_if_modified(|ledger| {
            is_wanted = !ledger.withdrawn;
            if is_wanted {
                ledger.granted.push(node);
            }
            // Only the withdrawal is waited for.
            false
        });
        is_wanted
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.ledger.borrow().withdrawn
    }

    /// The answer of a task whose request was withdrawn: nobody hears it.
    pub(super) fn withdrawn() -> Fault {
        Fault::not_done("the request was withdrawn")
    }

    /// Returns `true` if this node's grant was entered.
    pub(super) fn has(&self, node: usize) -> bool {
        self.ledger.borrow().granted.contains(&node)
    }

    /// Withdraws the requests: from now on no grant is entered. Returns the nodes whose grants were entered.
    pub(super) fn withdraw(&self) -> Vec<usize> {
        self.ledger.send_modify(|ledger| ledger.withdrawn = true);
        self.ledger.borrow().granted.clone()
    }

    async fn until_withdrawn(&self) {
        // The sender is in `self`, so there is no error.
        let mut ledger = self.ledger.subscribe();
        let _ = ledger.wait_for(|ledger| ledger.withdrawn).await;
    }
}

type Vote = Result<Polled, Fault>;

/// An acquisition under way. It is withdrawn when it is dropped.
struct Poll {
    round: Round<Polled>,
    grants: Arc<Grants>,
    votes: Votes,
    sent_at: Option<Moment>,
    apart: bool,
    decided: bool,
}

impl Poll {
    fn open(quorum: &Arc<QuorumBackend>, requests: Vec<NodeRequest>) -> Poll {
        let ends = requests.iter().map(|request| request.deadline);
        let until = ends.reduce(Moment::later).unwrap_or_else(clock::now);
        let grants = Grants::new(requests);
        let round = Round::ask(quorum, until.remaining(), |quorum, node| {
            // This counts from now on: a vote that is withdrawn while it is asked for is given back only by its task,
            // and a shutdown must not close the connections before that.
            let (grants, pending) = (grants.clone(), quorum.pending.enter());
            async move {
                let _pending = pending;
                vote(&quorum, &grants, node).await
            }
        });
        Poll {
            round,
            grants,
            votes: Votes::default(),
            sent_at: None,
            apart: false,
            decided: false,
        }
    }

    /// Counts one answer, or that none will come any more.
    async fn hear(&mut self) {
        match self.round.hear().await {
            Some(Polled::Won { sent_at }) => {
                self.votes.granted += 1;
                let first = self.sent_at.map_or(sent_at, |first| first.earlier(sent_at));
                self.sent_at = Some(first);
            }
            Some(Polled::Busy { left, apart }) => {
                self.votes.busy.push(left);
                self.apart |= apart;
            }
            None => self.votes.faults.append(&mut self.round.faults),
        }
    }

    /// Waits until the vote is decided. Returns `true` if a majority granted it.
    async fn is_won(&mut self) -> bool {
        loop {
            if let Some(is_won) = self.votes.verdict(self.round.quorum.nodes.len()) {
                return is_won;
            }
            self.hear().await;
        }
    }

    /// Waits for the nodes that are only a little slower, so that a hold has as many votes as it can. Still slower
    /// nodes go on by themselves, so that a node that has stopped answering does not delay every acquisition.
    async fn wait_for_the_others(&mut self, took: Duration) {
        const LEAST: Duration = Duration::from_millis(1);
        let others = async {
            while self.expects_more() {
                self.hear().await;
            }
        };
        let _ = tokio::time::timeout(took.clamp(LEAST, LATE_VOTE_WAIT), others).await;
    }

    fn expects_more(&self) -> bool {
        let Round { quorum, open, .. } = &self.round;
        open.iter().any(|node| !quorum.nodes[*node].is_silent())
    }

    /// Undoes what was granted and stops what is under way. The errands go on when their handles are dropped.
    fn withdraw(&mut self) -> Vec<JoinHandle<()>> {
        self.decided = true;
        let nodes = self.grants.withdraw();
        let requests = &self.grants.requests;
        nodes
            .into_iter()
            .flat_map(|node| requests.iter().map(move |request| (node, request)))
            .map(|(node, request)| self.round.quorum.errand(node, request.clone()))
            .collect()
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        if !self.decided {
            drop(self.withdraw());
        }
    }
}

pub(super) async fn acquire(
    quorum: &Arc<QuorumBackend>,
    requests: Vec<NodeRequest>,
) -> Result<Polled, Fault> {
    for request in &requests {
        quorum.check_term(request.ttl)?;
    }
    let nodes = quorum.nodes.len();
    // Several requests have one lease together, the shortest.
    let Some(shortest) = requests.iter().min_by_key(|request| request.ttl).cloned() else {
        return Err(Fault::not_done("nothing was asked for"));
    };
    let mut poll = Poll::open(quorum, requests);
    if poll.is_won().await {
        if !poll.round.open.is_empty() {
            let took = shortest.asked_at.elapsed();
            poll.wait_for_the_others(took).await;
        }
        if let Some(sent_at) = poll.sent_at
            && shortest.ttl.validity(sent_at.elapsed()).is_some()
        {
            quorum.splits.store(0, Ordering::Relaxed);
            if poll.votes.granted < nodes {
                for request in &poll.grants.requests {
                    quorum.goes_on(request.holder, &poll.grants, request.over());
                }
            }
            poll.decided = true;
            return Ok(Polled::Won { sent_at });
        }
        undone(poll.withdraw(), &shortest).await;
        return Err(Fault::not_done(
            "a majority of the quorum granted the lock when its lease was nearly over",
        ));
    }
    let (votes, apart) = (std::mem::take(&mut poll.votes), poll.apart);
    // Until it is undone, our own votes would be in the way of the next attempt.
    undone(poll.withdraw(), &shortest).await;
    if votes.granted == 0 {
        quorum.splits.store(0, Ordering::Relaxed);
    } else if shortest.waits.is_some() {
        let end = clock::now() + quorum.split_pause(&shortest.key);
        clock::sleep_until(end.earlier(shortest.deadline)).await;
    }
    let split = votes.granted > 0;
    // A split is over as soon as the others have given their votes back, too.
    let left = votes
        .conclusion(nodes)?
        .filter(|_| !split || shortest.waits.is_some());
    Ok(Polled::Busy { left, apart })
}

async fn undone(errands: Vec<JoinHandle<()>>, request: &NodeRequest) {
    for errand in errands {
        let patience = request.deadline.remaining().min(request.timeout);
        let _ = tokio::time::timeout(patience, errand).await;
    }
}

/// Asks one node.
async fn vote(quorum: &Arc<QuorumBackend>, grants: &Grants, index: usize) -> Vote {
    let node = &quorum.nodes[index];
    if grants.is_withdrawn() {
        return Err(Grants::withdrawn());
    }
    if let Some(fault) = node.is_down(quorum.longest) {
        return Err(fault);
    }
    let requests: Vec<AcquireRequest<'_>> =
        grants.requests.iter().map(NodeRequest::request).collect();
    let awaited = node.is_asked();
    let vote = tokio::select! {
        biased;
        vote = ask(node, &requests) => vote,
        // A node's own cancel safety undoes what it may have granted.
        () = grants.until_withdrawn() => return Err(Grants::withdrawn()),
    };
    if !matches!(&vote, Err(fault) if fault.is_passing()) {
        awaited.answered();
    }
    if !matches!(vote, Ok(Polled::Won { .. })) {
        return vote;
    }
    // The request may have waited for a connection, and found the node empty after that.
    let down = node.is_down(quorum.longest);
    if down.is_none() && grants.keep(index) {
        return vote;
    }
    for request in &grants.requests {
        quorum.errand(index, request.clone());
    }
    Err(down.unwrap_or_else(Grants::withdrawn))
}

async fn ask(node: &super::VotingNode, requests: &[AcquireRequest<'_>]) -> Vote {
    if let [request] = requests {
        return match node.backend.acquire(*request).await? {
            Acquired::Granted(granted, _) => Ok(Polled::Won {
                sent_at: granted.sent_at,
            }),
            Acquired::Busy { left, .. } => Ok(Polled::Busy { left, apart: false }),
        };
    }
    let busy = |apart| Ok(Polled::Busy { left: None, apart });
    match node.backend.acquire_all(requests).await? {
        AcquiredAll::Granted(granted) => {
            let first = granted.iter().map(|granted| granted.sent_at);
            let first = first.reduce(Moment::earlier);
            let sent_at = first.ok_or_else(|| Fault::not_done("nothing was asked for"))?;
            Ok(Polled::Won { sent_at })
        }
        AcquiredAll::Busy => busy(false),
        AcquiredAll::Apart => busy(true),
    }
}
