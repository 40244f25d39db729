//! Locks that replicas know of before they are handed out: a Redis backend around another, which does the rest.
//!
//! | file | concept |
//! |---|---|
//! | `routes` | whose replicas are asked about a key |
//! | `lanes` | a few connections of their own for `WAIT` to each server, and whose questions go together |
//! | `lane` | one of them: one `WAIT` at a time |
//! | `mark` | holds that are written once more where they are |
//! | `give_back` | what becomes of a lock that too few know of |
//!
//! `WAIT` blocks its connection, and vouches only for writes that went before it on that connection. But replication is
//! one ordered stream: when the replicas have a write that was made *after* the acquire was answered, they have the
//! acquire. So a lane marks the hold, which is to write it once more as it is, and waits for that.
//!
//! That proves something only at the server that granted the lock, with nothing forgotten in between. Addresses, run
//! ids and generations of connections each miss a case (a name that moved to another node, a master that was demoted
//! and came back), so the mark is made only where the hold is, in one script: a server that has it, and whose replicas
//! have what was written there later, is the right one. It needs no key of its own, which would be missing in a slot
//! that is being moved, and unlike what is published it is replicated by a node of a cluster, too.
//!
//! Of a renewal it proves too little: after a failover the new master has the hold, too, with the lease that it had
//! before the old one renewed it. So the mark of a renewal extends the lease as well.

mod give_back;
mod lane;
mod lanes;
mod mark;
mod routes;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use self::give_back::GiveBack;
pub(super) use self::lane::Common;
pub(super) use self::lanes::Lanes;
use self::routes::Routes;
use super::{RedisBackend, Settings, Target};
use crate::backend::{
    Acquired, AcquiredAll, Backend, Claim, Counters, EventSink, Fault, HandedOver, Listen,
    Released, Renewal, Renewed, Reply, Seen, Stake, Tally,
};
use crate::clock::{self, Moment};
use crate::error::{LockError, StoreError};
use crate::holder::HolderId;
use crate::key::Key;
use crate::replicas::Replicas;
use crate::term::Term;

/// A wait that is nearly over leaves the replicas this much all the same.
const LEAST: Duration = Duration::from_millis(10);

/// Locks in a Redis master or several, and known to replicas of it.
pub(crate) struct Replicated {
    backend: Arc<RedisBackend>,
    routes: Routes,
    replicas: Replicas,
}

impl Replicated {
    /// As [`RedisBackend::connect`]. Tries `WAIT`, unless `settings.lazy`.
    pub(crate) async fn connect(
        target: Target,
        settings: Settings,
        replicas: Replicas,
        handle: Handle,
        events: EventSink,
    ) -> Result<Arc<Replicated>, LockError> {
        let lazy = settings.lazy;
        let backend = RedisBackend::connect(target, settings, handle, events).await?;
        let routes = Routes::of(&backend.inner, replicas);
        if !lazy {
            let shown = backend.inner.target.shown();
            let tried = routes.try_all().await;
            tried.map_err(|fault| fault.into_error(shown))?;
        }
        Ok(Arc::new(Replicated {
            backend,
            routes,
            replicas,
        }))
    }

    /// Until when the replicas may confirm what was just granted.
    fn deadline(&self, claim: &Claim<'_>) -> Moment {
        let now = clock::now();
        let deadline = now + claim.term.call_timeout(self.replicas.timeout());
        match claim.waits {
            Some(rest) => deadline.earlier((claim.asked_at + rest).later(now + LEAST)),
            None => deadline,
        }
    }

    /// Waits for the replicas to have what was just granted; gives it back if too few have it in time, or if the
    /// caller leaves.
    async fn confirm(&self, claims: &[Claim<'_>]) -> Result<(), Fault> {
        let held = GiveBack::unless_kept(&self.backend.inner, claims);
        let deadlines = claims.iter().map(|claim| self.deadline(claim));
        let (Some(first), Some(deadline)) = (claims.first(), deadlines.reduce(Moment::earlier))
        else {
            held.keep();
            return Ok(());
        };
        // Several that were granted together are of one server.
        let holds = claims.iter().map(|claim| hold(claim.stake)).collect();
        let confirmed = match self.routes.ask(first.stake.key, holds, deadline) {
            Ok(asked) => asked.answer().await,
            Err(fault) => Err(fault),
        };
        match confirmed {
            Ok(()) => {
                held.keep();
                Ok(())
            }
            Err(fault) => {
                tracing::debug!(reason = %fault, "a lock that was granted is given back");
                held.now().await;
                Err(match fault {
                    // Whatever kept the answer away: this was granted, and is no more.
                    Fault::NotDone(source) | Fault::Unknown(source) => Fault::TooFew(source),
                    fault => fault,
                })
            }
        }
    }

    async fn acquire(&self, claim: Claim<'_>) -> Result<Acquired, Fault> {
        let acquired = self.backend.acquire(claim).await?;
        // No await in between: whoever drops this future does so before the grant is known here, or while it is
        // guarded.
        if matches!(acquired, Acquired::Granted(_)) {
            self.confirm(&[claim]).await?;
        }
        Ok(acquired)
    }

    async fn acquire_all(&self, claims: &[Claim<'_>]) -> Result<AcquiredAll, Fault> {
        let acquired = self.backend.acquire_all(claims).await?;
        if matches!(acquired, AcquiredAll::Granted(_)) {
            self.confirm(claims).await?;
        }
        Ok(acquired)
    }

    async fn hand_over(&self, from: HolderId, to: Claim<'_>) -> Result<HandedOver, Fault> {
        let handed_over = self.backend.hand_over(from, to).await?;
        if matches!(handed_over, HandedOver::Done { .. }) {
            // The old holder waits for this: it is told in time that it has released, whatever the replicas do.
            let half = to.timeout / 2;
            let waits = Some(to.waits.map_or(half, |rest| rest.min(half)));
            let confirmed = self.confirm(&[Claim { waits, ..to }]).await;
            confirmed.map_err(|fault| match fault {
                // Done and undone: the old holder has released, and the new one has nothing.
                Fault::TooFew(_) => fault,
                fault => Fault::Unknown(StoreError::new(fault.to_string())),
            })?;
        }
        Ok(handed_over)
    }

    async fn renew(
        &self,
        batch: &[Renewal],
        timeout: Duration,
        useful: Duration,
    ) -> Result<Vec<Renewed>, Fault> {
        let mut answers = self.backend.renew(batch, timeout, useful).await?;
        if !self.replicas.with_renewals() {
            return Ok(answers);
        }
        // The watchdog cut the timeout to the shortest lease.
        let deadline = clock::now() + self.replicas.timeout().min(timeout);
        // Each by itself, all at once: one that is held no more says nothing about the others.
        let asked = batch.iter().zip(&answers).map(|(renewal, answer)| {
            let is_held = *answer == Renewed::Held;
            let ask = || {
                self.routes
                    .ask(&renewal.key, vec![renewal.clone()], deadline)
            };
            is_held.then(ask)
        });
        let asked: Vec<_> = asked.collect();
        let (mut unconfirmed, mut why) = (0, None);
        for (answer, asked) in answers.iter_mut().zip(asked) {
            let confirmed = match asked {
                None => continue,
                Some(Ok(asked)) => asked.answer().await,
                Some(Err(fault)) => Err(fault),
            };
            if let Err(fault) = confirmed {
                *answer = Renewed::Unknown;
                unconfirmed += 1;
                why = Some(fault);
            }
        }
        if let Some(fault) = why {
            tracing::warn!(reason = %fault, unconfirmed, "renewals are not known to enough replicas; they are repeated");
        }
        Ok(answers)
    }
}

/// What a lane asks for.
fn hold(stake: Stake<'_>) -> Renewal {
    Renewal {
        key: Arc::new(stake.key.clone()),
        holder: stake.holder,
        permits: stake.permits,
        term: None,
    }
}

impl Backend for Replicated {
    fn acquire<'a>(&'a self, claim: Claim<'a>) -> Reply<'a, Acquired> {
        Box::pin(self.acquire(claim))
    }

    fn acquire_all<'a>(&'a self, claims: &'a [Claim<'a>]) -> Reply<'a, AcquiredAll> {
        Box::pin(self.acquire_all(claims))
    }

    fn release<'a>(&'a self, stake: Stake<'a>, timeout: Duration) -> Reply<'a, Released> {
        self.backend.release(stake, timeout)
    }

    fn hand_over<'a>(&'a self, from: HolderId, to: Claim<'a>) -> Reply<'a, HandedOver> {
        Box::pin(self.hand_over(from, to))
    }

    /// Not confirmed: a replica that knows of the write alone keeps more people out, not fewer.
    fn downgrade<'a>(
        &'a self,
        stake: Stake<'a>,
        term: Term,
        timeout: Duration,
    ) -> Reply<'a, Released> {
        self.backend.downgrade(stake, term, timeout)
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        timeout: Duration,
        useful: Duration,
    ) -> Reply<'a, Vec<Renewed>> {
        Box::pin(self.renew(batch, timeout, useful))
    }

    fn force_release<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, bool> {
        self.backend.force_release(key, timeout)
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, Option<Seen>> {
        self.backend.inspect(key, timeout)
    }

    fn listen(&self, key: &Arc<Key>) -> Box<dyn Listen> {
        self.backend.listen(key)
    }

    fn listen_alone(&self, key: &Arc<Key>, holder: HolderId) -> Box<dyn Listen> {
        self.backend.listen_alone(key, holder)
    }

    fn renew_batch(&self) -> usize {
        self.backend.renew_batch()
    }

    fn place(&self, key: &Key) -> usize {
        self.backend.place(key)
    }

    fn round_trip(&self, key: &Key) -> Duration {
        self.backend.round_trip(key)
    }

    fn drained(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.backend.drained()
    }

    fn close(&self) {
        self.backend.close();
    }
}

/// Counters name no holder: nothing of theirs could be given back.
impl Counters for Replicated {
    fn set<'a>(&'a self, tally: Tally<'a>, value: u64, timeout: Duration) -> Reply<'a, bool> {
        self.backend.set(tally, value, timeout)
    }

    fn limit<'a>(&'a self, key: &'a Key, permits: u64, timeout: Duration) -> Reply<'a, ()> {
        self.backend.limit(key, permits, timeout)
    }

    fn read<'a>(&'a self, tally: Tally<'a>, timeout: Duration) -> Reply<'a, Option<i64>> {
        self.backend.read(tally, timeout)
    }

    fn add<'a>(&'a self, key: &'a Key, permits: i64, timeout: Duration) -> Reply<'a, ()> {
        self.backend.add(key, permits, timeout)
    }

    fn take<'a>(&'a self, key: &'a Key, permits: u32, timeout: Duration) -> Reply<'a, bool> {
        self.backend.take(key, permits, timeout)
    }

    fn count_down<'a>(&'a self, key: &'a Key, timeout: Duration) -> Reply<'a, u64> {
        self.backend.count_down(key, timeout)
    }

    fn delete<'a>(&'a self, tally: Tally<'a>, timeout: Duration) -> Reply<'a, bool> {
        self.backend.delete(tally, timeout)
    }

    fn listen_to(&self, tally: Tally<'_>) -> Box<dyn Listen> {
        self.backend.listen_to(tally)
    }
}

impl fmt::Debug for Replicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicated")
            .field("backend", &self.backend)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}
