//! Redis behind Sentinels: finding the master of a service, and noticing when it moves.
//!
//! | file | concept |
//! |---|---|
//! | `url` | `redis-sentinel://` → sentinels, service, logins |
//! | `ask` | one question to one sentinel |
//! | `answers` | choosing one address to try from many answers |
//! | `watch` | `+switch-master`: one listener per sentinel |
//!
//! The client's own Sentinel support resolves the master once, when it connects. Here every attempt to connect asks all
//! sentinels anew, and the node that they name must itself say that it is a master. A connection to a node that is no
//! longer the newest master is replaced as soon as one sentinel reports that: after a manual failover, the old master
//! accepts writes for some seconds more.

mod answers;
mod ask;
mod url;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use redis::ConnectionInfo;
use tokio::sync::{Mutex, watch as channel};
use tokio::task::JoinSet;

pub(super) use self::url::parse;
pub(super) use self::watch::watch;

pub(super) use self::answers::NamedMaster;
use self::answers::{KnownMaster, NEWS};
use crate::backend::Fault;
use crate::backend::kit::hosts::Address;
use crate::backend::redis::connection::DialOptions;
use crate::values::{Moment, clock};

/// The time for which slower sentinels are awaited once one has named a master.
const GRACE: Duration = Duration::from_millis(200);

/// The sentinels of one service.
pub(crate) struct Sentinels {
    /// The addresses of the sentinels, with the login that they want, if any.
    pub(super) hosts: Vec<ConnectionInfo>,
    pub(super) service: String,
    /// The settings of every master but its address.
    pub(super) server: ConnectionInfo,
    /// Whether the servers speak TLS.
    pub(super) tls: bool,
    /// Whether the sentinels speak TLS.
    pub(super) own_tls: bool,
    /// The newest master that any sentinel has named. Written by every resolution and by the watchers.
    known: channel::Sender<Option<KnownMaster>>,
    /// The last question of [`master`](Sentinels::master).
    asked: Mutex<Option<AskedMaster>>,
}

/// A question to all sentinels, and its answer.
struct AskedMaster {
    at: Moment,
    /// The time that the sentinels had.
    time: Duration,
    answer: Result<Address, Fault>,
}

impl Sentinels {
    /// Returns the address of the master. After a failover, a thousand tasks may ask at once: each waits for its turn, and
    /// takes the answer to a question that was asked since it came. A question may take until `deadline`, and `least` in any
    /// case; one that had less time and got no answer says nothing to others. To be called in a task of its own: a caller
    /// that is not polled would keep the turn.
    pub(super) async fn master(
        self: Arc<Self>,
        options: Arc<DialOptions>,
        deadline: Moment,
        least: Duration,
    ) -> Result<Address, Fault> {
        let came_at = clock::now();
        let mut asked = self.asked.lock().await;
        let time = deadline.remaining().max(least);
        if let Some(last) = &*asked
            && last.at.has_reached(came_at)
            && (last.answer.is_ok() || last.time >= time)
        {
            return last.answer.clone();
        }
        let at = clock::now();
        let named = self.resolve(&options, time).await;
        let answer = named.map(|(named, _)| {
            // If the sentinels give the same master another name, its connections must have that name, too: an answer counts
            // only if it comes from the master that they name.
            let known = self.known.borrow().as_ref().and_then(|known| known.epoch);
            let is_known = named.epoch.is_some() && named.epoch == known;
            self.learn(named.address.clone(), named.epoch, is_known);
            named.address
        });
        *asked = Some(AskedMaster {
            at,
            time,
            answer: answer.clone(),
        });
        answer
    }

    /// Asks all sentinels at once for the master. When one has named it, waits only a little for slower ones. Returns the
    /// master to try, and the one to try if that fails, if there is one.
    pub(super) async fn resolve(
        self: &Arc<Self>,
        options: &Arc<DialOptions>,
        timeout: Duration,
    ) -> Result<(NamedMaster, Option<NamedMaster>), Fault> {
        // A silent sentinel must be recognised as silent, with the reason, before the time is over.
        let each = timeout.mul_f64(0.9);
        let mut questions = JoinSet::new();
        for info in self.hosts.clone() {
            let (sentinels, options) = (self.clone(), options.clone());
            questions.spawn(async move {
                let sentinel = info.addr().to_string();
                (sentinel, ask::once(&sentinels, info, &options, each).await)
            });
        }
        let mut answers = Vec::with_capacity(self.hosts.len());
        let mut until = clock::now() + timeout;
        while let Ok(Some(joined)) =
            tokio::time::timeout_at(until.tick(), questions.join_next()).await
        {
            let Ok(heard) = joined else {
                continue;
            };
            if matches!(heard, (_, Ok(Some(_)))) {
                until = until.earlier(clock::now() + GRACE);
            }
            answers.push(heard);
        }
        let (asked, known) = (self.hosts.len(), self.known.borrow().clone());
        let chosen = answers::choose(asked, &answers, &self.service, known.as_ref());
        let (named, instead) = chosen?;
        self.learn(named.address.clone(), named.epoch, false);
        Ok((named, instead))
    }

    /// Notes that the node itself said that it is a master. All connections have to use it.
    pub(super) fn confirmed(&self, named: &NamedMaster) {
        self.learn(named.address.clone(), named.epoch, true);
        self.note(|known| {
            if known.address == named.address {
                known.unserved_since = None;
            }
        });
    }

    /// Returns `true` while commands have had no connection to the known master for long.
    pub(super) fn is_away(&self) -> bool {
        self.known
            .borrow()
            .as_ref()
            .is_some_and(KnownMaster::is_away)
    }

    /// Notes that commands have no connection. Other connections do not count: to a server that takes no new ones, they may
    /// fail for long while commands are served.
    pub(super) fn unserved(&self) {
        self.note(|known| _ = known.unserved_since.get_or_insert_with(clock::now));
    }

    /// Notes something about the known master, which stays where it is.
    fn note(&self, change: impl FnOnce(&mut KnownMaster)) {
        self.known.send_if_modified(|known| {
            if let Some(known) = known {
                change(known);
            }
            false
        });
    }

    /// Notes a newer master. If the report is `certain`, it also counts if the sentinels report no epoch, or count from
    /// zero again. A connection that was begun before the last failover reports an older epoch with certainty, too. So
    /// an older epoch counts only after the known master has been known for [`NEWS`].
    fn learn(&self, address: Address, epoch: Option<u64>, certain: bool) {
        self.known.send_if_modified(|known| {
            let newer = match known {
                None => true,
                Some(known) => match (epoch, known.epoch) {
                    (Some(new), Some(old)) => {
                        new > old || (certain && (new == old || known.at.elapsed() >= NEWS))
                    }
                    _ => certain,
                },
            };
            let same = known
                .as_ref()
                .is_some_and(|known| known.address == address && known.epoch == epoch);
            // Ignore an answer that repeats the known master.
            if !newer || same {
                return false;
            }
            let moved = known.as_ref().is_none_or(|known| known.address != address);
            *known = Some(KnownMaster {
                address,
                epoch,
                at: clock::now(),
                unserved_since: None,
            });
            moved
        });
    }

    /// Resolves when another node than this one is known to be the master.
    pub(super) async fn superseded(&self, address: &str) {
        let mut known = self.known.subscribe();
        let other = |known: &Option<KnownMaster>| {
            known
                .as_ref()
                .is_some_and(|known| *known.address != *address)
        };
        // There is no error: the sender is in `self`.
        let _ = known.wait_for(other).await;
    }

    /// Sleeps for this time, or less if the master moves meanwhile.
    pub(super) async fn pause(&self, pause: Duration) {
        let mut known = self.known.subscribe();
        tokio::select! {
            () = clock::sleep(pause) => {}
            _ = known.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentinels() -> Sentinels {
        parse("host/s", false).unwrap()
    }

    fn known(sentinels: &Sentinels) -> String {
        let known = sentinels.known.borrow();
        known.as_ref().unwrap().address.to_string()
    }

    #[test]
    fn an_older_epoch_never_replaces_a_newer_master() {
        let sentinels = sentinels();
        sentinels.learn("a:1".into(), Some(4), true);
        sentinels.learn("b:1".into(), Some(5), false);
        assert_eq!(known(&sentinels), "b:1");
        sentinels.learn("a:1".into(), Some(4), true);
        sentinels.learn("c:1".into(), Some(5), false);
        assert_eq!(known(&sentinels), "b:1");
        sentinels.learn("c:1".into(), Some(5), true);
        assert_eq!(known(&sentinels), "c:1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_restarted_epoch_counts_once_the_known_one_is_old() {
        let sentinels = sentinels();
        sentinels.learn("a:1".into(), Some(5), true);
        tokio::time::advance(NEWS).await;
        sentinels.learn("b:1".into(), Some(1), false);
        assert_eq!(known(&sentinels), "a:1", "a report that is not certain");
        sentinels.learn("b:1".into(), Some(1), true);
        assert_eq!(known(&sentinels), "b:1");
        let moved = tokio::time::timeout(NEWS, sentinels.superseded("b:1"));
        assert!(moved.await.is_err(), "its connections stay");
        sentinels.learn("c:1".into(), Some(2), false);
        assert_eq!(known(&sentinels), "c:1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_master_is_away_from_the_first_failure_until_it_is_reached() {
        let sentinels = sentinels();
        let named = |address: &str, epoch| NamedMaster {
            address: address.into(),
            epoch: Some(epoch),
            by: String::new(),
        };
        let away_for = || {
            let known = sentinels.known.borrow();
            let since = known.as_ref().unwrap().unserved_since;
            since.map(Moment::elapsed)
        };
        sentinels.unserved();
        sentinels.confirmed(&named("a:1", 5));
        assert_eq!(away_for(), None);
        sentinels.unserved();
        tokio::time::advance(NEWS).await;
        sentinels.unserved();
        assert!(away_for().unwrap() >= NEWS, "the first failure counts");
        sentinels.confirmed(&named("a:1", 5));
        assert_eq!(away_for(), None);
        sentinels.unserved();
        tokio::time::advance(NEWS).await;
        sentinels.confirmed(&named("b:1", 0));
        assert_eq!((known(&sentinels), away_for()), ("b:1".to_owned(), None));
    }

    #[test]
    fn without_epochs_only_a_certain_report_counts() {
        let sentinels = sentinels();
        sentinels.learn("a:1".into(), None, false);
        sentinels.learn("b:1".into(), None, false);
        assert_eq!(known(&sentinels), "a:1");
        sentinels.learn("b:1".into(), None, true);
        assert_eq!(known(&sentinels), "b:1");
    }

    #[tokio::test(start_paused = true)]
    async fn connections_to_an_old_master_and_pauses_end_when_it_moves() {
        let sentinels = sentinels();
        sentinels.learn("a:1".into(), Some(1), true);
        let began = tokio::time::Instant::now();
        let moved = async {
            clock::sleep(Duration::from_millis(5)).await;
            sentinels.learn("b:1".into(), Some(2), false);
        };
        let pause = sentinels.pause(Duration::from_secs(60));
        tokio::join!(moved, pause, sentinels.superseded("a:1"));
        assert!(began.elapsed() < Duration::from_secs(1));
        let still = sentinels.superseded("b:1");
        assert!(
            tokio::time::timeout(Duration::from_secs(60), still)
                .await
                .is_err()
        );
    }
}
