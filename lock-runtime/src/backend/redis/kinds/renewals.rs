//! Renewals: each batch becomes a script for each sort of holds in it.

use std::collections::HashMap;
use std::pin::pin;

use super::counters::leases;
use super::exclusive::field;
use super::permits::{RenewPermits, ids};
use super::read_write::{ReadRenew, timeout_key};
use crate::backend::redis::cluster::Redirect;
use crate::backend::redis::connection::{Live, Wire};
use crate::backend::redis::router::{Nodes, Router};
use crate::backend::redis::scripting::exclusive::Renew;
use crate::backend::redis::scripting::{self, Manner, Script, faults};
use crate::backend::{Boxed, Fault, Renewal, Renewed, Reply, Within};
use crate::values::{Key, Kind, Moment, all, clock, rare};

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
        let mut answers = self.renew_all(batch, times).await?;
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
        times: RenewalTimes,
    ) -> Result<Vec<Renewed>, Fault> {
        let slots = self.nodes.keeps_to_slots();
        let parts = by_script(batch, |key| if slots { key.slot() } else { 0 });
        let asked = parts.into_iter().map(|part| -> Boxed<'_, _> {
            let ask = move |items| self.renew_part(items, times);
            Box::pin(in_parts(
                batch,
                vec![part],
                !self.is_alone(),
                ALL_REFUSED,
                ask,
            ))
        });
        let answered = all(asked.collect()).await;
        if !slots && self.nodes.keeps_to_slots() {
            // These answers have shown that the server keeps to slots.
            return rare(self.renew_all(batch, times)).await;
        }
        // A script that failed says nothing about the holds of the other scripts.
        in_order(batch.len(), answered)
    }

    /// Renews the holds of one script at the node that has them. If their slot moves and its keys may be at two nodes, returns
    /// the redirect, after which [`in_parts`] asks for each hold alone.
    fn renew_part<'a>(&'a self, items: Vec<&'a Renewal>, times: RenewalTimes) -> RenewalPart<'a> {
        Box::pin(async move {
            let Some(first) = items.first() else {
                return Ok(Vec::new());
            };
            let routed = self.route_renewal(&first.key, clock::now(), times.usual);
            let (mut live, mut now) = routed.await?;
            loop {
                let answer = tokio::select! {
                    biased;
                    answer = self.ask_in_time(&live, &items, now, times) => answer,
                    () = self.leads_elsewhere(&live, &first.key) => {
                        let elsewhere =
                            || Fault::unknown("another connection leads to the lock now");
                        // Once only: nodes that name each other must not pass it on without end.
                        if live.hops > 0 || times.usual.has_passed() {
                            return Err(elsewhere());
                        }
                        let routed = self.route_renewal(&first.key, clock::now(), times.usual);
                        (live, now) = rare(routed).await.map_err(|_| elsewhere())?;
                        live.hops = 1;
                        continue;
                    }
                };
                let (Nodes::Cluster(cluster), Some(redirect)) =
                    (&self.nodes, self.redirect(&answer))
                else {
                    return answer;
                };
                if redirect.may_split() && items.len() > 1 {
                    return answer;
                }
                // Unlike `Router::follow`, also for a read or a write in the middle of the move: a renewal names all keys
                // that it reads.
                let followed = cluster.follow(redirect, &live, first.key.slot(), times.usual);
                (live, now) = rare(followed).await?;
            }
        })
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

/// The answers about holds of a batch, each after the hold's index, and the first refusal that halves were sent for.
type HoldAnswers = (Vec<(usize, Result<Renewed, Fault>)>, Option<Fault>);

/// Asks about these `parts` of a batch, by a script for each. If a script may have been refused because of one of its holds,
/// it is sent again by halves, down to single holds, so that no hold is lost because of another hold's key. Ends early if
/// `all_refused` parts were refused and none was executed: then the refusal is about all of them.
///
/// With `clustered`, the keys of a slot that moves may be at two nodes. The holds are then asked about one by one, without a
/// pause, because their leases may end.
pub(crate) async fn in_parts<'a>(
    batch: &'a [Renewal],
    mut parts: Vec<Vec<usize>>,
    clustered: bool,
    all_refused: usize,
    ask: impl Fn(Vec<&'a Renewal>) -> RenewalPart<'a>,
) -> HoldAnswers {
    let (mut answers, mut refused) = (Vec::with_capacity(batch.len()), None);
    let mut some_went = false;
    while !parts.is_empty() {
        let items = |part: &Vec<usize>| part.iter().filter_map(|&at| batch.get(at)).collect();
        let answered = all(parts.iter().map(|part| ask(items(part))).collect()).await;
        some_went |= answered.iter().any(Result::is_ok);
        let halves = some_went || parts.len() < all_refused;
        for (part, answered) in std::mem::take(&mut parts).into_iter().zip(answered) {
            let splits = |fault: &Fault| Redirect::of(fault).is_some_and(|to| to.may_split());
            match answered {
                Ok(renewed) => answers.extend(part.into_iter().zip(renewed.into_iter().map(Ok))),
                Err(fault) if part.len() > 1 && clustered && splits(&fault) => {
                    parts.extend(part.into_iter().map(|at| vec![at]));
                }
                Err(fault) if part.len() > 1 && halves && faults::may_be_of_one_key(&fault) => {
                    let (first, rest) = part.split_at(part.len() / 2);
                    parts.extend([first.to_vec(), rest.to_vec()]);
                    refused.get_or_insert(fault);
                }
                Err(fault) => answers.extend(part.into_iter().map(|at| (at, Err(fault.clone())))),
            }
        }
    }
    (answers, refused)
}

/// Puts the answers in the order of the batch. A hold without an answer is unknown. If all are unknown, returns why.
fn in_order(batch: usize, answered: Vec<HoldAnswers>) -> Result<Vec<Renewed>, Fault> {
    let mut answers = vec![Renewed::Unknown; batch];
    let mut failed = None;
    for (answered, refused) in answered {
        for (at, answer) in answered {
            match answer {
                Ok(renewed) => answers[at] = renewed,
                Err(fault) => failed = Some(fault),
            }
        }
        // It names all that is missing, and the refusal of a half only its part.
        failed = refused.or(failed);
    }
    match failed {
        Some(fault) if answers.iter().all(|answer| *answer == Renewed::Unknown) => Err(fault),
        _ => Ok(answers),
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
    /// Sends the script for these holds. [`script_of`] is the same for all of them.
    pub(crate) async fn renew(self, batch: &[&Renewal]) -> Result<Vec<Renewed>, Fault> {
        let marks = matches!(self, RenewalCarrier::Waiting(_));
        // 0 only checks that the hold is there. A negative one marks it: writes it once more as it is, and extends its lease
        // unless it is -1.
        let ttl = |item: &Renewal| {
            let millis = item
                .ttl
                .map_or(0, |ttl| i64::try_from(ttl.millis()).unwrap_or(i64::MAX));
            if marks { (-millis).min(-1) } else { millis }
        };
        let items = batch.iter();
        match batch.first().map(|item| item.key.kind()) {
            None => Ok(Vec::new()),
            Some(Kind::Semaphore) => {
                let items = items.map(|item| {
                    // Permits are taken and returned together, so for a mark one permit represents all, unless the leases
                    // are extended.
                    let permits = match item.ttl {
                        None if marks => 1,
                        _ => item.permits,
                    };
                    (leases(&item.key), ids(item.holder, permits), ttl(item))
                });
                let items: Vec<_> = items.collect();
                self.run(&RenewPermits { items: &items }).await
            }
            Some(Kind::Read) => {
                let items = items.map(|item| {
                    let (key, timeout) = (item.key.raw(), timeout_key(&item.key, item.holder));
                    (key, timeout, item.holder.text(), ttl(item))
                });
                let items: Vec<_> = items.collect();
                self.run(&ReadRenew { items: &items }).await
            }
            Some(Kind::Mutex | Kind::Fenced | Kind::Fair | Kind::Write) => {
                let items =
                    items.map(|item| (item.key.raw(), field(&item.key, item.holder), ttl(item)));
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

/// Returns one of the kinds whose holds are renewed by the same script.
fn script_of(kind: Kind) -> Kind {
    match kind {
        Kind::Semaphore | Kind::Read => kind,
        Kind::Mutex | Kind::Fenced | Kind::Fair | Kind::Write => Kind::Mutex,
    }
}

/// If this number of parts of a batch is refused, the refusal is not about one key.
const ALL_REFUSED: usize = 8;

/// The most permits in one script. Each takes about 2 µs of the server's time.
const MOST_PERMITS: u64 = 512;

/// A script whose keys have this number of bytes gets no further hold, because some proxies refuse long requests.
const MOST_BYTES: usize = 32 * 1024;

/// Returns indices into the batch, for one script each. Keys with the same `slot` may be in one script. No script is long.
pub(crate) fn by_script(batch: &[Renewal], slot: impl Fn(&Key) -> u16) -> Vec<Vec<usize>> {
    // For each sort of script, its parts, and the permits and bytes of the last one.
    let mut scripts: HashMap<_, (Vec<Vec<usize>>, u64, usize)> = HashMap::new();
    for (at, item) in batch.iter().enumerate() {
        let script = (script_of(item.key.kind()), slot(&item.key));
        let (parts, permits, bytes) = scripts.entry(script).or_default();
        *permits += u64::from(item.permits);
        *bytes += item.key.raw().len();
        match parts.last_mut() {
            Some(part) if *permits <= MOST_PERMITS && *bytes <= MOST_BYTES => part.push(at),
            _ => {
                (*permits, *bytes) = (u64::from(item.permits), item.key.raw().len());
                parts.push(vec![at]);
            }
        }
    }
    scripts
        .into_values()
        .flat_map(|(parts, ..)| parts)
        .collect()
}

/// The answers of one script.
pub(crate) type RenewalPart<'a> = Reply<'a, Vec<Renewed>>;

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
        let renewed = |two, zero, one| {
            let first = (vec![(2, two), (0, zero)], None);
            in_order(3, vec![first, (vec![(1, one)], None)])
        };
        let some = renewed(Ok(Renewed::Held), Ok(Renewed::NotHeld), fault());
        let expected = [Renewed::NotHeld, Renewed::Unknown, Renewed::Held];
        assert_eq!(some.unwrap(), expected);
        assert!(renewed(fault(), fault(), fault()).is_err());
    }

    /// Asks about 16 holds. Returns the sizes of the scripts, and how many holds got an answer.
    async fn asked(
        fault: fn() -> Fault,
        is_refused: impl Fn(&[&Renewal]) -> bool,
    ) -> (Vec<usize>, usize) {
        let ids = HolderIds::new();
        let renewal = |at: usize| Renewal {
            key: Arc::new(Key::new("", &LockName::from(at.to_string()), Kind::Mutex).unwrap()),
            holder: ids.fresh(),
            permits: 1,
            ttl: None,
            waits: false,
        };
        let batch: Vec<_> = (0..16).map(renewal).collect();
        let sizes = std::sync::Mutex::new(Vec::new());
        let ask = |items: Vec<_>| -> RenewalPart<'_> {
            sizes.lock().unwrap().push(items.len());
            let answer = if is_refused(&items) {
                Err(fault())
            } else {
                Ok(vec![Renewed::Held; items.len()])
            };
            Box::pin(std::future::ready(answer))
        };
        let part = vec![(0..16).collect()];
        let (answers, _) = in_parts(&batch, part, true, ALL_REFUSED, ask).await;
        let mut holds: Vec<_> = answers.iter().map(|(at, _)| *at).collect();
        holds.sort_unstable();
        assert_eq!(holds, (0..16).collect::<Vec<_>>());
        let renewed = answers.iter().filter(|(_, answer)| answer.is_ok()).count();
        (sizes.into_inner().unwrap(), renewed)
    }

    #[tokio::test]
    async fn a_refused_script_is_sent_by_halves_unless_all_are_refused() {
        let key = || Fault::denied("NOPERM No permissions to access a key");
        let (sizes, renewed) = asked(key, |_| true).await;
        assert_eq!(sizes, [16, 8, 8, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2]);
        assert_eq!(renewed, 0);
        let of_one = |items: &[&Renewal]| items.iter().any(|item| item.key.name() == "5");
        let (sizes, renewed) = asked(key, of_one).await;
        assert_eq!(sizes, [16, 8, 8, 4, 4, 2, 2, 1, 1]);
        assert_eq!(renewed, 15);
        let moves = || Fault::not_done("TRYAGAIN Multiple keys request during rehashing of slot");
        let (sizes, renewed) = asked(moves, |items| items.len() > 1).await;
        assert_eq!(sizes[0], 16);
        assert_eq!(sizes[1..], [1; 16]);
        assert_eq!(renewed, 16);
    }
}
