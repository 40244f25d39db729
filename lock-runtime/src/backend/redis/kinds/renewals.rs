//! Renewals: a batch → a script for each sort of holds in it.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use super::{exclusive, permits, read_write};
use crate::backend::redis::Inner;
use crate::backend::redis::connection::Live;
use crate::backend::redis::router::Nodes;
use crate::backend::{Fault, Renewal, Renewed, Reply, Within};
use crate::values::{Key, Kind, Moment, clock};

/// The time until which an answer usually comes, and the time until which it is of use.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) usual: Moment,
    pub(crate) useful: Moment,
}

/// In the place of a ttl: only looks whether the hold is there.
pub(crate) const LOOK: i64 = 0;
/// In the place of a ttl: writes a hold that is there once more as it is.
pub(crate) const MARK: i64 = -1;

/// Like [`MARK`], and also extends the lease if the renewal extends it.
pub(crate) fn mark(item: &Renewal) -> i64 {
    MARK.min(-ttl(item))
}

/// Returns the ttl argument of a renewal, or [`LOOK`] if it only checks the hold.
pub(crate) fn ttl(item: &Renewal) -> i64 {
    let millis = item.ttl.map(|ttl| i64::try_from(ttl.millis()));
    millis.map_or(LOOK, |millis| millis.unwrap_or(i64::MAX))
}

impl Inner {
    pub(crate) async fn renew(
        &self,
        batch: &[Renewal],
        within: Within,
    ) -> Result<Vec<Renewed>, Fault> {
        let Within { timeout, useful } = within;
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let asked_at = clock::now();
        let times = Times {
            usual: asked_at + timeout,
            useful: asked_at + useful.max(timeout),
        };
        let link = match &self.nodes {
            Nodes::One(link) => link,
            // A cluster's answers need no vouching: a node that has lost a slot says so.
            Nodes::Cluster(cluster) => {
                return Box::pin(cluster.renew(self, batch, times)).await;
            }
        };
        let before = link.live();
        let (live, now) = link.get(asked_at, times.usual).await?;
        let items: Vec<&Renewal> = batch.iter().collect();
        let mut answers = self.renew_all_on(&live, &items, now, times).await?;
        let vouched_by = clock::now() + timeout;
        if answers.contains(&Renewed::NotHeld) && self.vouch(before, vouched_by).await.is_err() {
            for answer in &mut answers {
                if *answer == Renewed::NotHeld {
                    *answer = Renewed::Unknown;
                }
            }
        }
        Ok(answers)
    }

    /// The watchdog groups by kind; a writer that has just become a reader may be among others of its old kind.
    pub(crate) async fn renew_all_on(
        &self,
        live: &Live,
        batch: &[&Renewal],
        now: Moment,
        times: Times,
    ) -> Result<Vec<Renewed>, Fault> {
        let is_read = |item: &&&Renewal| item.key.kind() == Kind::Read;
        let reads = batch.iter().filter(is_read).count();
        if reads == 0 || reads == batch.len() {
            return self.renew_on(live, batch, now, times).await;
        }
        let (reads, others): (Vec<_>, Vec<_>) =
            batch.iter().copied().partition(|item| is_read(&item));
        let (of_reads, of_others) = tokio::join!(
            self.renew_on(live, &reads, now, times),
            self.renew_on(live, &others, now, times),
        );
        if let (Err(fault), Err(_)) = (&of_reads, &of_others) {
            return Err(fault.clone());
        }
        // One script that failed says nothing about the holds of the other.
        let answers = |answers: Result<Vec<Renewed>, Fault>| {
            let answers = answers.unwrap_or_default().into_iter();
            answers.chain(std::iter::repeat(Renewed::Unknown))
        };
        let (mut of_reads, mut of_others) = (answers(of_reads), answers(of_others));
        let answer = |item: &&Renewal| match item.key.kind() {
            Kind::Read => of_reads.next(),
            _ => of_others.next(),
        };
        let answers: Option<Vec<_>> = batch.iter().map(answer).collect();
        Ok(answers.unwrap_or_default())
    }

    /// Those of one script, on that connection, which is looked at if the answer takes longer than usual.
    pub(crate) async fn renew_on(
        &self,
        live: &Live,
        batch: &[&Renewal],
        now: Moment,
        times: Times,
    ) -> Result<Vec<Renewed>, Fault> {
        let mut asked = pin!(self.ask_on(live, batch, now, times.useful));
        match tokio::time::timeout_at(times.usual.tick(), &mut asked).await {
            Ok(answers) => answers,
            Err(_) => {
                live.suspect();
                asked.await
            }
        }
    }

    async fn ask_on(
        &self,
        live: &Live,
        batch: &[&Renewal],
        now: Moment,
        deadline: Moment,
    ) -> Result<Vec<Renewed>, Fault> {
        match batch.first().map(|item| RenewalKind::of(item.key.kind())) {
            None => Ok(Vec::new()),
            Some(RenewalKind::Permits) => permits::renew(live, batch, now, deadline).await,
            Some(RenewalKind::Reads) => read_write::renew(live, batch, now, deadline).await,
            Some(RenewalKind::Others) => exclusive::renew(live, batch, now, deadline).await,
        }
    }
}

/// Holds that are renewed by the same script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RenewalKind {
    Permits,
    Reads,
    Others,
}

impl RenewalKind {
    pub(crate) fn of(kind: Kind) -> RenewalKind {
        match kind {
            Kind::Semaphore => RenewalKind::Permits,
            Kind::Read => RenewalKind::Reads,
            Kind::Mutex | Kind::Fenced | Kind::Fair | Kind::Write => RenewalKind::Others,
        }
    }
}

/// Indices into the batch: for one script each, with keys of one slot as `slot` tells them apart.
pub(crate) fn by_script(batch: &[Renewal], slot: impl Fn(&Key) -> u16) -> Vec<Vec<usize>> {
    let mut parts: HashMap<(RenewalKind, u16), Vec<usize>> = HashMap::new();
    for (at, item) in batch.iter().enumerate() {
        let script = (RenewalKind::of(item.key.kind()), slot(&item.key));
        parts.entry(script).or_default().push(at);
    }
    parts.into_values().collect()
}

/// Returns the answers, in which the holds of a script that failed are unknown. If all are unknown, returns the
/// failure.
pub(super) fn unless_all_failed(
    answers: Vec<Renewed>,
    failed: Option<Fault>,
) -> Result<Vec<Renewed>, Fault> {
    match failed {
        Some(fault) if answers.iter().all(|answer| *answer == Renewed::Unknown) => Err(fault),
        _ => Ok(answers),
    }
}

/// Puts the answers of several scripts, each about these `parts` of a batch, in the order of the batch.
pub(crate) fn in_order<'a>(
    batch: usize,
    parts: impl Iterator<Item = &'a [usize]>,
    answered: Vec<Result<Vec<Renewed>, Fault>>,
) -> Result<Vec<Renewed>, Fault> {
    let mut answers = vec![Renewed::Unknown; batch];
    let mut failed = None;
    for (part, answered) in parts.zip(answered) {
        match answered {
            Ok(renewed) => {
                for (&at, renewed) in part.iter().zip(renewed) {
                    answers[at] = renewed;
                }
            }
            Err(fault) => failed = Some(fault),
        }
    }
    unless_all_failed(answers, failed)
}

/// The answers of one script.
pub(crate) type Part<'a> = Reply<'a, Vec<Renewed>>;

/// Drives them side by side; the answers are in their order.
pub(crate) async fn all(mut parts: Vec<Part<'_>>) -> Vec<Result<Vec<Renewed>, Fault>> {
    let mut answers: Vec<Option<Result<Vec<Renewed>, Fault>>> = Vec::new();
    answers.resize_with(parts.len(), || None);
    poll_fn(|cx| {
        let mut pending = false;
        for (part, answer) in parts.iter_mut().zip(&mut answers) {
            if answer.is_none() {
                match part.as_mut().poll(cx) {
                    Poll::Ready(done) => *answer = Some(done),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
    answers.into_iter().flatten().collect()
}
