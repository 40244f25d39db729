//! One request to a counter, for a caller who cannot repeat it blindly.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::coop;

use crate::backend::{Fault, Listen, Reply, Sort, Tally};
use crate::clock;
use crate::core::Core;
use crate::error::{LockError, StoreError};
use crate::gate::{self, Entry, Place, Turn};
use crate::key::Key;
use crate::kind::Kind;
use crate::name::LockName;
use crate::options::Overrides;
use crate::order::{Order, Patience};
use crate::wait::{CAP, gave_up, pauses_after_faults, queue};

/// Notes what the store said, for those who queue behind.
fn note<T>(place: &Place, answer: &Result<T, Fault>) {
    match answer {
        Ok(_) => place.heard_from_store(None),
        Err(Fault::NotDone(source) | Fault::Unknown(source)) => {
            place.heard_from_store(Some(source))
        }
        Err(_) => {}
    }
}

/// A counter by its checked name.
#[derive(Debug)]
pub(crate) struct Counter<'a> {
    pub(crate) core: &'a Core,
    pub(crate) key: Arc<Key>,
    sort: Sort,
}

impl Counter<'_> {
    /// Each request to a counter begins here, so all of them take part in tokio's cooperative budget.
    ///
    /// # Errors
    /// [`LockError::InvalidName`]; [`LockError::InvalidConfig`] outside a tokio runtime.
    pub(crate) async fn new<'a>(
        core: &'a Core,
        name: &LockName,
        sort: Sort,
    ) -> Result<Counter<'a>, LockError> {
        coop::consume_budget().await;
        let key = core.options.key(name, Kind::Permits)?;
        core.start_here()?;
        let key = Arc::new(key);
        Ok(Counter { core, key, sort })
    }

    /// Refuses those who begin something once the manager closes. Who ends something is let through for longer:
    /// what a body does not give back because of a shutdown, nobody ever will.
    pub(crate) fn admitted(self) -> Result<Self, LockError> {
        self.core.life.admit(&self.key)?;
        Ok(self)
    }

    pub(crate) fn order(&self, wait: Option<Duration>) -> Result<Order, LockError> {
        Ok(Order {
            key: self.key.clone(),
            terms: Overrides::default().terms(self.key.name(), &self.core.options)?,
            wait,
            reentrant: false,
        })
    }

    /// Waits behind the others of this process who want something of the counter.
    pub(crate) async fn turn(&self, order: &Order, patience: &Patience) -> Result<Turn, LockError> {
        let ticket = match self.core.gates.enter(&order.key, order.terms)? {
            Entry::Head(place) => return Ok(Turn::Head(place)),
            Entry::Queued(ticket) => ticket,
        };
        let turn = queue(ticket, order, patience, self.core.options.call_timeout).await?;
        match &turn {
            // Whoever comes to the head when its time is over makes no call any more.
            Turn::Head(place) if patience.is_over() && order.wait != Some(Duration::ZERO) => {
                Err(gave_up(place.fault(), order, patience))
            }
            _ => Ok(turn),
        }
    }

    pub(crate) fn tally(&self) -> Tally<'_> {
        Tally {
            key: &self.key,
            sort: self.sort,
        }
    }

    /// Sends a request within the call timeout, again only after an answer that says that nothing was done. A shutdown
    /// waits for it.
    pub(crate) async fn once<'b, T>(
        &'b self,
        ask: impl Fn(&'b Core, Tally<'b>, Duration) -> Reply<'b, T>,
    ) -> Result<T, LockError> {
        // Counted before the look: a shutdown that does not see it has stopped the manager before.
        let _under_way = self.core.life.background.enter();
        self.core.life.admit_last(&self.key)?;
        let deadline = clock::now() + self.core.options.call_timeout;
        let mut pauses = pauses_after_faults();
        loop {
            let fault = match ask(self.core, self.tally(), deadline.remaining()).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            let pause = pauses.pause();
            if !matches!(fault, Fault::NotDone(_)) || deadline.remaining() <= pause {
                return Err(self.error(fault));
            }
            clock::sleep(pause).await;
        }
    }

    /// Asks until the answer is yes: again when there may be news, once per [`CAP`] at the latest, and after a store
    /// that failed if `again` says so. Busy when the patience is over. `place`: the turn of a caller who asks for the
    /// others of this process, too.
    pub(crate) async fn until<'b>(
        &'b self,
        patience: Patience,
        place: Option<&Place>,
        mut ask: impl FnMut(Duration) -> Reply<'b, bool>,
        again: impl Fn(&Fault) -> bool,
    ) -> Result<(), LockError> {
        let mut listener: Option<Box<dyn Listen>> = None;
        let mut pauses = pauses_after_faults();
        loop {
            let timeout = patience.cut(self.core.options.call_timeout, clock::now());
            let answer = ask(timeout).await;
            if let Some(place) = place {
                note(place, &answer);
            }
            let fault = match answer {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    pauses.reset();
                    None
                }
                Err(fault) if again(&fault) => Some(fault),
                Err(fault) => return Err(self.error(fault)),
            };
            if patience.is_over() {
                return Err(self.over(patience, fault));
            }
            place.map_or(Ok(()), Place::waits)?;
            let waiting = async {
                match (&fault, &mut listener) {
                    (Some(_), _) => patience.pause(pauses.pause()).await,
                    (None, None) => {
                        // News between the answer and the subscription would be missed: ask again after it.
                        let listener = listener.insert(self.core.backend.listen_to(self.tally()));
                        tokio::select! {
                            () = listener.ready() => {}
                            () = patience.pause(CAP) => {}
                        }
                    }
                    (None, Some(listener)) => tokio::select! {
                        () = listener.heard() => {}
                        () = patience.pause(CAP.mul_f64(0.8 + fastrand::f64() * 0.4)) => {}
                    },
                }
            };
            tokio::select! {
                () = waiting => {}
                () = self.core.life.closing() => return Err(gate::closed(&self.key)),
            }
            // No further call: its answer would come too late. What was known last is the answer.
            if patience.is_over() {
                return Err(self.over(patience, fault));
            }
        }
    }

    /// What a caller is told in the end: what was known last.
    fn over(&self, patience: Patience, fault: Option<Fault>) -> LockError {
        match fault {
            Some(fault) => self.error(fault),
            None => LockError::Busy {
                name: self.key.name().to_owned(),
                waited: patience.since.elapsed(),
                retry_after: None,
            },
        }
    }

    /// The fault as the caller's error; one whose outcome is unknown says so.
    pub(crate) fn error(&self, fault: Fault) -> LockError {
        let fault = match fault {
            Fault::Unknown(source) => Fault::Unknown(StoreError::new(format!(
                "unknown whether it was done: {source}"
            ))),
            fault => fault,
        };
        fault.into_error(self.key.name())
    }
}
