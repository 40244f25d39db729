//! The operations that all nodes are asked for and a majority answers: release, renew, force, inspect.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::{QuorumBackend, next_by};
use crate::backend::quorum::majority::{self, Confirmations, majority, no_majority};
use crate::backend::quorum::request::NodeRequest;
use crate::backend::{Fault, Released, Renewal, Renewed, Snapshot, Within};
use crate::sync::Mutex;
use crate::values::{Key, Moment, clock};

/// The answers to one request to all nodes, as they come.
pub(super) struct Round<T> {
    pub(super) quorum: Arc<QuorumBackend>,
    answers: mpsc::UnboundedReceiver<(usize, Result<T, Fault>)>,
    /// The nodes that have not answered.
    pub(super) open: Vec<usize>,
    /// The time by which all of them have answered, if their tasks are driven.
    until: Moment,
    /// The faults, by the names of the nodes.
    pub(super) faults: Vec<(String, Fault)>,
}

impl<T: Send + 'static> Round<T> {
    /// Asks every node, each in a task of its own that runs to its end. Each answers within `timeout`.
    pub(super) fn ask<F>(
        quorum: &Arc<QuorumBackend>,
        timeout: Duration,
        question: impl Fn(Arc<QuorumBackend>, usize) -> F,
    ) -> Round<T>
    where
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let (told, answers) = mpsc::unbounded_channel();
        let nodes = 0..quorum.nodes.len();
        for node in nodes.clone() {
            let told = told.clone();
            let answer = question(quorum.clone(), node);
            quorum.handle.spawn(async move {
                let _ = told.send((node, answer.await));
            });
        }
        Round {
            quorum: quorum.clone(),
            answers,
            open: nodes.collect(),
            until: clock::now() + timeout,
            faults: Vec::new(),
        }
    }

    /// Takes in the next answer. Returns `None` if it is a fault, or if no more answers will come: then the open nodes
    /// have that fault.
    pub(super) async fn hear(&mut self) -> Option<T> {
        let heard = Fault::if_driven(self.until.remaining(), self.answers.recv()).await;
        let heard = heard.and_then(|heard| heard.ok_or_else(Fault::runtime_ended));
        let (failed, fault) = match heard {
            Ok((node, answer)) => {
                self.open.retain(|open| *open != node);
                match answer {
                    Ok(answer) => return Some(answer),
                    Err(fault) => (vec![node], fault),
                }
            }
            Err(fault) => (std::mem::take(&mut self.open), fault),
        };
        let shown = |node: usize| (self.quorum.nodes[node].shown.clone(), fault.clone());
        self.faults.extend(failed.into_iter().map(shown));
        None
    }

    /// Returns the next answer that is not a fault; `None` when there are no more.
    pub(super) async fn next(&mut self) -> Option<T> {
        while !self.open.is_empty() {
            if let Some(answer) = self.hear().await {
                return Some(answer);
            }
        }
        None
    }

    /// Counts the answers that say yes and those that say no, until a majority says one of them or there are no more.
    pub(super) async fn count(&mut self, mut says_yes: impl FnMut(T) -> bool) -> (usize, usize) {
        let needed = majority(self.quorum.nodes.len());
        let (mut yes, mut no) = (0, 0);
        while yes < needed
            && no < needed
            && let Some(answer) = self.next().await
        {
            if says_yes(answer) {
                yes += 1;
            } else {
                no += 1;
            }
        }
        (yes, no)
    }

    pub(super) fn no_majority(&self) -> Fault {
        no_majority(self.quorum.nodes.len(), &self.faults)
    }
}

/// Releases a lock at all nodes. The lock is free when a majority answers that this holder does not hold it any more.
/// The release reaches the other nodes in the background.
pub(super) async fn release(
    quorum: &Arc<QuorumBackend>,
    request: NodeRequest,
) -> Result<Released, Fault> {
    let needed = majority(quorum.nodes.len());
    quorum.cut_off(request.holder);
    // The nodes that it has not reached; `None` once the others have decided it. Until then, the caller that asked for the
    // release asks all nodes again.
    let untold = Arc::new(Mutex::new(Some(Vec::new())));
    let mut round = Round::ask(quorum, request.timeout, |quorum, index| {
        let (request, untold) = (request.clone(), untold.clone());
        // This counts until this node has answered, too: a shutdown closes the connections after everything that is
        // pending.
        let pending = quorum.pending.enter();
        async move {
            let _pending = pending;
            let backend = &quorum.nodes[index].backend;
            let answer = backend.release(request.hold_ref(), request.timeout).await;
            if answer.as_ref().is_err_and(Fault::is_passing) {
                match &mut *untold.lock() {
                    Some(nodes) => nodes.push(index),
                    None => drop(quorum.errand(index, request)),
                }
            }
            answer
        }
    });
    let (done, not_held) = round.count(|answer| answer != Released::NotHeld).await;
    if done + not_held < needed {
        return Err(match round.no_majority() {
            // The node that has released the lock will answer next time that it is not held, which is no loss.
            Fault::NotDone(why) if done > 0 => Fault::Unknown(why),
            fault => fault,
        });
    }
    let untold = untold.lock().take();
    for index in untold.into_iter().flatten() {
        quorum.errand(index, request.clone());
    }
    Ok(if not_held >= needed {
        Released::NotHeld
    } else {
        Released::Done
    })
}

/// Renews holds at all nodes. Never creates a hold again: a node only extends what it has.
pub(super) async fn renew(
    quorum: &Arc<QuorumBackend>,
    batch: &[Renewal],
    mut within: Within,
) -> Result<Vec<Renewed>, Fault> {
    let nodes = quorum.nodes.len();
    let ttls = || batch.iter().filter_map(|item| item.ttl);
    for ttl in ttls() {
        quorum.check_term(ttl)?;
    }
    if let Some(shortest) = ttls().min() {
        within.timeout = shortest.node_timeout(within.timeout);
    }
    let batch: Arc<[Renewal]> = batch.into();
    let mut round = Round::ask(quorum, within.useful, |quorum, index| {
        let batch = batch.clone();
        async move {
            let backend = &quorum.nodes[index].backend;
            let mut answers = backend.renew(&batch, within).await?;
            quorum.doubt(index, &batch, &mut answers);
            Ok(answers)
        }
    });
    let mut items = vec![Confirmations::default(); batch.len()];
    let (mut answered, began) = (0, clock::now());
    let mut until: Option<Moment> = None;
    while items
        .iter()
        .any(|item| item.verdict(nodes) == Renewed::Unknown)
    {
        let Some(answers) = next_by(until, round.next()).await else {
            break;
        };
        answered += 1;
        if answered == majority(nodes) {
            // A silent node must not hold up what the others have confirmed, because of another hold on which they differ.
            // It has as long again as they took.
            until = Some(began + within.timeout.max(began.elapsed() * 2));
        }
        for (item, answer) in items.iter_mut().zip(answers) {
            item.add(answer);
        }
    }
    if answered < majority(nodes) && !batch.is_empty() {
        return Err(round.no_majority());
    }
    Ok(items.iter().map(|item| item.verdict(nodes)).collect())
}

/// Releases a lock by force at all nodes. Returns `true` if a majority had it, or may have had it.
pub(super) async fn force_release(
    quorum: &Arc<QuorumBackend>,
    key: &Key,
    timeout: Duration,
) -> Result<bool, Fault> {
    let needed = majority(quorum.nodes.len());
    let mut round = Round::ask(quorum, timeout, |quorum, index| {
        let key = key.clone();
        async move {
            quorum.nodes[index]
                .backend
                .force_release(&key, timeout)
                .await
        }
    });
    let (held, free) = round.count(|was_held| was_held).await;
    if held + free < needed {
        return Err(round.no_majority());
    }
    Ok(held > 0 && free < needed)
}

/// Returns the state of the lock as a majority of the nodes sees it.
pub(super) async fn inspect(
    quorum: &Arc<QuorumBackend>,
    key: &Key,
    timeout: Duration,
) -> Result<Option<Snapshot>, Fault> {
    let nodes = quorum.nodes.len();
    let mut round = Round::ask(quorum, timeout, |quorum, index| {
        let key = key.clone();
        async move { quorum.nodes[index].backend.inspect(&key, timeout).await }
    });
    let mut seen: Vec<Option<Snapshot>> = Vec::with_capacity(nodes);
    loop {
        let free = seen.iter().filter(|seen| seen.is_none()).count();
        // An answer that no silent node could change is final.
        if free >= majority(nodes) {
            return Ok(None);
        }
        if let Some(holder) = majority::holder(nodes, 0, &seen) {
            return Ok(Some(holder));
        }
        match round.next().await {
            Some(answer) => seen.push(answer),
            None if seen.len() < majority(nodes) => return Err(round.no_majority()),
            None => return Ok(majority::holder(nodes, nodes - seen.len(), &seen)),
        }
    }
}
