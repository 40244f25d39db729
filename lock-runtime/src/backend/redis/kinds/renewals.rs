//! Renewals: each batch becomes a script for each sort of holds in it.

use std::collections::HashMap;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::task::Poll;

use super::exclusive;
use super::permits::{self, RenewPermits};
use super::read_write::{self, ReadRenew};
use super::request::{mark, ttl};
use crate::backend::redis::connection::{Live, Wire};
use crate::backend::redis::router::{Nodes, Router};
use crate::backend::redis::scripting::exclusive::Renew;
use crate::backend::redis::scripting::{self, Manner, Script, faults};
use crate::backend::{Fault, Renewal, Renewed, Reply, Within};
use crate::values::{Key, Kind, Moment, clock, rare};

/// The time until which an answer usually arrives, and the time until which it is of use.
#[derive(Clone, Copy)]
struct RenewalTimes {
    usual: Moment,
    useful: Moment,
}

impl Router {
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
        let times = RenewalTimes {
            usual: asked_at + timeout,
            useful: asked_at + useful.max(timeout),
        };
        let before = self.nodes.live();
        let mut answers = self.renew_all(batch, asked_at, times).await?;
        let vouched_by = clock::now() + timeout;
        // A cluster's answers need no vouch: a node that has lost a slot redirects the request.
        if answers.contains(&Renewed::NotHeld) && self.vouch(before, vouched_by).await.is_err() {
            for answer in &mut answers {
                if *answer == Renewed::NotHeld {
                    *answer = Renewed::Unknown;
                }
            }
        }
        Ok(answers)
    }

    /// Renews by one script for each sort of holds in the batch, and for each slot where keys are in slots. All are sent
    /// at once.
    async fn renew_all(
        &self,
        batch: &[Renewal],
        now: Moment,
        times: RenewalTimes,
    ) -> Result<Vec<Renewed>, Fault> {
        let slots = self.nodes.keeps_to_slots();
        let parts = by_script(batch, |key| if slots { key.slot() } else { 0 });
        let renewals = parts.iter().map(|part| {
            let items = part.iter().filter_map(|&at| batch.get(at));
            self.renew_part(items.collect(), now, times)
        });
        let answered = all(renewals.collect()).await;
        if !slots && self.nodes.keeps_to_slots() {
            // These answers have shown that the server keeps to slots.
            return rare(self.renew_all(batch, clock::now(), times)).await;
        }
        // A script that failed says nothing about the holds of the other scripts.
        in_order(batch.len(), parts.iter().map(Vec::as_slice), answered)
    }

    fn renew_part<'a>(
        &'a self,
        items: Vec<&'a Renewal>,
        now: Moment,
        times: RenewalTimes,
    ) -> RenewalPart<'a> {
        Box::pin(async move { self.renew_routed(&items, now, times).await })
    }

    /// Renews the holds of one script at the node that has them. While their slot moves, its keys may be at two nodes. The
    /// holds are then renewed one by one, without a pause, because their leases may end.
    async fn renew_routed(
        &self,
        items: &[&Renewal],
        now: Moment,
        times: RenewalTimes,
    ) -> Result<Vec<Renewed>, Fault> {
        let Some(first) = items.first() else {
            return Ok(Vec::new());
        };
        let (mut live, mut now) = self.route(&first.key, now, times.usual).await?;
        loop {
            let answer = self.renew_on(&live, items, now, times).await;
            let (Nodes::Cluster(cluster), Some(redirect)) = (&self.nodes, self.redirect(&answer))
            else {
                return answer;
            };
            if redirect.may_split() && items.len() > 1 {
                let now = clock::now();
                let alone = items
                    .iter()
                    .map(|item| self.renew_part(vec![item], now, times));
                let answered = all(alone.collect()).await;
                let order: Vec<usize> = (0..items.len()).collect();
                return in_order(items.len(), order.chunks(1), answered);
            }
            // Unlike `Router::follow`, also for a read or a write in the middle of the move: a renewal names all keys that
            // it reads.
            let followed = cluster.follow(redirect, &live, first.key.slot(), times.usual);
            (live, now) = rare(followed).await?;
        }
    }

    /// Renews the holds of one script. If the script may have been refused because of one of them, it is sent again by
    /// halves, down to single holds, so that no hold is lost because of another hold's key.
    async fn renew_on(
        &self,
        live: &Live,
        batch: &[&Renewal],
        now: Moment,
        times: RenewalTimes,
    ) -> Result<Vec<Renewed>, Fault> {
        match self.ask_in_time(live, batch, now, times).await {
            Err(refused) if batch.len() > 1 && faults::may_be_of_one_key(&refused) => {
                rare(self.renew_by_halves(live, batch, times, refused)).await
            }
            answers => answers,
        }
    }

    /// Ends when each hold has an answer or was refused alone. Ends early if [`ALL_REFUSED`] parts were refused and
    /// none was executed: then the refusal is about all of them.
    async fn renew_by_halves(
        &self,
        live: &Live,
        batch: &[&Renewal],
        times: RenewalTimes,
        refused: Fault,
    ) -> Result<Vec<Renewed>, Fault> {
        let mut answers = vec![Renewed::Unknown; batch.len()];
        let mut again: Vec<Range<usize>> = std::iter::once(0..batch.len()).collect();
        let mut some_went = false;
        while !again.is_empty() {
            let halves = std::mem::take(&mut again).into_iter().flat_map(|part| {
                let middle = part.start + part.len() / 2;
                [part.start..middle, middle..part.end]
            });
            let parts: Vec<Range<usize>> = halves.collect();
            let now = clock::now();
            let ask = |part: &Range<usize>| -> RenewalPart<'_> {
                Box::pin(self.ask_in_time(live, &batch[part.clone()], now, times))
            };
            let answered = all(parts.iter().map(ask).collect()).await;
            for (part, answered) in parts.iter().zip(answered) {
                match answered {
                    Ok(renewed) => {
                        some_went = true;
                        let places = answers[part.clone()].iter_mut();
                        places
                            .zip(renewed)
                            .for_each(|(place, answer)| *place = answer);
                    }
                    Err(fault) if part.len() > 1 && faults::may_be_of_one_key(&fault) => {
                        again.push(part.clone());
                    }
                    Err(_) => {}
                }
            }
            if !some_went && parts.len() >= ALL_REFUSED {
                break;
            }
        }
        unless_all_failed(answers, Some(refused))
    }

    /// Sends the script on this connection. If the answer takes longer than usual, the supervisor checks the
    /// connection.
    async fn ask_in_time(
        &self,
        live: &Live,
        batch: &[&Renewal],
        now: Moment,
        times: RenewalTimes,
    ) -> Result<Vec<Renewed>, Fault> {
        let carrier = RenewalCarrier::Live(live, now, times.useful);
        let mut asked = pin!(carrier.renew(batch));
        match tokio::time::timeout_at(times.usual.tick(), &mut asked).await {
            Ok(answers) => answers,
            Err(_) => {
                live.link.suspect();
                asked.await
            }
        }
    }
}

/// The connection on which renewals are sent.
pub(crate) enum RenewalCarrier<'a> {
    /// It is now the first time, and answers count until the second one.
    Live(&'a Live, Moment, Moment),
    /// It waits for replicas: holds that are there are also written once more as they are.
    Waiting(&'a Wire),
}

impl RenewalCarrier<'_> {
    /// Sends the script for these holds, which are of one [`RenewalKind`].
    pub(crate) async fn renew(self, batch: &[&Renewal]) -> Result<Vec<Renewed>, Fault> {
        let marks = matches!(self, RenewalCarrier::Waiting(_));
        let ttl = if marks { mark } else { ttl };
        let items = batch.iter();
        match batch.first().map(|item| RenewalKind::of(item.key.kind())) {
            None => Ok(Vec::new()),
            Some(RenewalKind::Permits) => {
                let items = items.map(|item| {
                    // Permits are taken and returned together, so for a mark one permit represents all, unless the leases
                    // are extended.
                    let permits = match item.ttl {
                        None if marks => 1,
                        _ => item.permits,
                    };
                    permits::entry(item, permits, ttl(item))
                });
                let items: Vec<_> = items.collect();
                self.run(&RenewPermits { items: &items }).await
            }
            Some(RenewalKind::Reads) => {
                let items = items.map(|item| read_write::entry(item, ttl(item)));
                let items: Vec<_> = items.collect();
                self.run(&ReadRenew { items: &items }).await
            }
            Some(RenewalKind::Others) => {
                let items = items.map(|item| exclusive::entry(item, ttl(item)));
                let items: Vec<_> = items.collect();
                self.run(&Renew { items: &items }).await
            }
        }
    }

    async fn run<S: Script>(self, script: &S) -> Result<S::Reply, Fault> {
        match self {
            RenewalCarrier::Live(live, now, deadline) => live.call(script, now, deadline).await,
            RenewalCarrier::Waiting(wire) => {
                scripting::run(&mut wire.clone(), script, Manner::PLAIN).await
            }
        }
    }
}

/// Holds that are renewed by the same script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RenewalKind {
    Permits,
    Reads,
    Others,
}

impl RenewalKind {
    fn of(kind: Kind) -> RenewalKind {
        match kind {
            Kind::Semaphore => RenewalKind::Permits,
            Kind::Read => RenewalKind::Reads,
            Kind::Mutex | Kind::Fenced | Kind::Fair | Kind::Write => RenewalKind::Others,
        }
    }
}

/// If this number of parts of a batch is refused, the refusal is not about one key.
const ALL_REFUSED: usize = 8;

/// The most permits in one script. Each takes about 2 µs of the server's time.
const MOST_PERMITS: u64 = 512;

/// A script whose keys have this number of bytes gets no further hold, because some proxies refuse long requests.
const MOST_BYTES: usize = 32 * 1024;

/// Returns indices into the batch, for one script each. Keys with the same `slot` may be in one script.
pub(crate) fn by_script(batch: &[Renewal], slot: impl Fn(&Key) -> u16) -> Vec<Vec<usize>> {
    let mut parts: HashMap<(RenewalKind, u16), Vec<usize>> = HashMap::new();
    for (at, item) in batch.iter().enumerate() {
        let script = (RenewalKind::of(item.key.kind()), slot(&item.key));
        parts.entry(script).or_default().push(at);
    }
    let parts = parts.into_values();
    parts.flat_map(|part| cut(batch, part)).collect()
}

/// Cuts a part so that no script is long.
fn cut(batch: &[Renewal], part: Vec<usize>) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let (mut permits, mut bytes) = (u64::MAX, 0);
    for at in part {
        let Some(item) = batch.get(at) else { continue };
        permits = permits.saturating_add(u64::from(item.permits));
        bytes += item.key.raw().len();
        match parts.last_mut() {
            Some(part) if permits <= MOST_PERMITS && bytes <= MOST_BYTES => part.push(at),
            _ => {
                (permits, bytes) = (u64::from(item.permits), item.key.raw().len());
                parts.push(vec![at]);
            }
        }
    }
    parts
}

/// Returns the answers, in which the holds of a failed script are unknown. If all are unknown, returns the failure.
fn unless_all_failed(answers: Vec<Renewed>, failed: Option<Fault>) -> Result<Vec<Renewed>, Fault> {
    match failed {
        Some(fault) if answers.iter().all(|answer| *answer == Renewed::Unknown) => Err(fault),
        _ => Ok(answers),
    }
}

/// Puts the answers of several scripts, each about one of these `parts` of a batch, in the order of the batch.
fn in_order<'a>(
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
pub(crate) type RenewalPart<'a> = Reply<'a, Vec<Renewed>>;

/// Runs the parts side by side. The answers are in the order of the parts.
pub(crate) async fn all<T>(mut parts: Vec<Reply<'_, T>>) -> Vec<Result<T, Fault>> {
    let mut answers: Vec<Option<Result<T, Fault>>> = Vec::new();
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::values::holder::HolderIds;
    use crate::values::name::LockName;

    fn parts(name: &str, kind: Kind, permits: &[u32]) -> Vec<usize> {
        let ids = HolderIds::new();
        let key = Arc::new(Key::new("", &LockName::from(name), kind).unwrap());
        let renewal = |&permits| Renewal {
            key: key.clone(),
            holder: ids.fresh(),
            permits,
            ttl: None,
            waits: false,
        };
        let batch: Vec<_> = permits.iter().map(renewal).collect();
        let parts = by_script(&batch, |_| 0);
        parts.iter().map(Vec::len).collect()
    }

    #[test]
    fn a_renewal_is_cut_so_that_no_script_is_long() {
        assert_eq!(parts("k", Kind::Semaphore, &[]), [0; 0]);
        let single = parts("k", Kind::Semaphore, &[1; 128]);
        assert_eq!(
            single,
            [128],
            "a full batch of single permits is one script"
        );
        let sets = parts("k", Kind::Semaphore, &[256, 256, 1, 1_000, 1_000, 3]);
        assert_eq!(sets, [2, 1, 1, 1, 1]);
        // `lock:` and 507 bytes are 512.
        let long = parts(&"k".repeat(507), Kind::Mutex, &[1; 128]);
        assert_eq!(long, [64, 64]);
    }

    #[test]
    fn a_batch_is_cut_by_slot_and_by_script() {
        let ids = HolderIds::new();
        let renewal = |name: &str, kind| Renewal {
            key: Arc::new(Key::new("", &LockName::from(name), kind).unwrap()),
            holder: ids.fresh(),
            permits: 1,
            ttl: None,
            waits: false,
        };
        let batch = [
            renewal("{a}1", Kind::Mutex),
            renewal("{b}1", Kind::Mutex),
            renewal("{a}2", Kind::Write),
            renewal("{a}3", Kind::Read),
            renewal("{a}4", Kind::Semaphore),
            renewal("{a}5", Kind::Fair),
        ];
        let mut parts = by_script(&batch, Key::slot);
        parts.sort();
        assert_eq!(parts, [vec![0, 2, 5], vec![1], vec![3], vec![4]]);
    }

    #[test]
    fn one_failure_says_nothing_about_the_others() {
        let fault = || Err(Fault::not_done("x"));
        let parts = [vec![2, 0], vec![1]];
        let renewed = |first, second| {
            let answered = vec![first, second];
            in_order(3, parts.iter().map(Vec::as_slice), answered)
        };
        let some = renewed(Ok(vec![Renewed::Held, Renewed::NotHeld]), fault());
        let expected = [Renewed::NotHeld, Renewed::Unknown, Renewed::Held];
        assert_eq!(some.unwrap(), expected);
        assert!(renewed(fault(), fault()).is_err());
    }
}
