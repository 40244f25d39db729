//! One call for a batch of renewals, and what its answers mean for the tenures.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinError;

use super::Watch;
use super::schedule::Batch;
use crate::backend::{Backend, Fault, Renewal, Renewed, Within};
use crate::hold::Tenure;
use crate::observe::{self, Cause};
use crate::values::{Moment, clock};

const UNCONFIRMED: &str = "the store answered, but too few nodes or replicas confirmed it, or the request for this key failed";

/// The outcome of one renewal call.
pub(super) struct BatchOutcome {
    /// The store's name, for the metrics.
    pub(super) store: &'static str,
    pub(super) place: usize,
    pub(super) tenures: Vec<Arc<Tenure>>,
    pub(super) batch: Vec<Renewal>,
    pub(super) answers: Result<Vec<Renewed>, Fault>,
    pub(super) sent_at: Moment,
}

/// Takes in the outcome of a call. A call that panicked is as one without an answer: its holds are asked about again.
pub(super) fn take_in(watch: &Watch, done: Result<BatchOutcome, JoinError>) {
    match done {
        Ok(outcome) => watch.answered(&outcome),
        Err(_) if watch.is_news(Cause::Panicked, 1) => observe::renewal_panicked(),
        Err(_) => {}
    }
}

pub(super) async fn renew(
    watch: Arc<Watch>,
    backend: Arc<dyn Backend>,
    due: Batch,
    timeout: Duration,
) -> BatchOutcome {
    // Checked again right before the request is sent: no tenure is renewed that is being released.
    let sent_at = clock::now();
    let (tenures, batch): (Vec<_>, Vec<_>) = due
        .tenures
        .into_iter()
        .filter_map(|tenure| {
            let mut renewal = tenure.due_renewal(sent_at)?;
            renewal.waits = due.waits.is_some();
            Some((tenure, renewal))
        })
        .unzip();
    let timeouts = tenures
        .iter()
        .map(|tenure| tenure.ttl().call_timeout(timeout));
    let timeout = timeouts.min().unwrap_or(timeout);
    let ends = tenures.iter().filter_map(|tenure| tenure.end_if_live());
    let useful = ends.map(|end| end - sent_at).max().unwrap_or(timeout);
    let answers = {
        let mut asked = backend.renew(&batch, Within { timeout, useful });
        match tokio::time::timeout(timeout, &mut asked).await {
            Ok(answers) => answers,
            Err(_) => {
                // A renewal that waits for others' writes says nothing about the store.
                if due.waits.is_none()
                    && let Some(holds) = watch.are_newly_in(Cause::Unanswered, &tenures)
                {
                    observe::renewal_unanswered(holds, timeout);
                }
                asked.await
            }
        }
    };
    BatchOutcome {
        store: backend.store().name(),
        place: due.place,
        tenures,
        batch,
        answers,
        sent_at,
    }
}

impl Watch {
    /// Notes that the renewals of these holds are in trouble. Returns the number of holds to log, if there are any. A
    /// hold whose renewals go on failing is logged once.
    fn are_newly_in(&self, trouble: Cause, tenures: &[Arc<Tenure>]) -> Option<usize> {
        let more = self.schedule.lock().get_into(trouble, tenures);
        (more > 0 && self.is_news(trouble, more)).then_some(more)
    }

    /// Takes in the answers to a batch.
    pub(super) fn answered(&self, outcome: &BatchOutcome) {
        let BatchOutcome {
            store,
            place,
            tenures,
            batch,
            answers,
            sent_at,
        } = outcome;
        if let Err(fault) = answers
            && let Some(holds) = self.are_newly_in(Cause::Failed, tenures)
        {
            observe::renewal_failed(holds, fault);
        }
        let mut good = Vec::with_capacity(tenures.len());
        let mut unconfirmed = Vec::new();
        let mut counts = [0; 4];
        for (index, (tenure, renewal)) in tenures.iter().zip(batch).enumerate() {
            let answer = answers.as_ref().ok().and_then(|all| all.get(index));
            let answer = answer.copied().unwrap_or(Renewed::Unknown);
            if answer == Renewed::Unknown && answers.is_ok() {
                unconfirmed.push(tenure.clone());
            }
            let said = answer;
            // The schedule is unlocked here: a loss wakes waiters.
            let answer = tenure.answered(renewal, answer, *sent_at);
            counts[match answer {
                Renewed::Held => 0,
                Renewed::NotHeld => 1,
                _ if said == Renewed::Unknown => 2,
                _ => 3,
            }] += 1;
            if !self.remove_if_over(tenure, Duration::ZERO) {
                good.push((tenure, answer));
            }
        }
        // Others wait for the schedule, and nearly always all holds are confirmed.
        if !unconfirmed.is_empty()
            && let Some(holds) = self.are_newly_in(Cause::Failed, &unconfirmed)
        {
            observe::renewal_failed(holds, &Fault::unknown(UNCONFIRMED));
        }
        observe::renewals(store, counts);
        // Computed before the schedule is locked, because others wait for it.
        let shortest = tenures.iter().map(|tenure| tenure.ttl()).min();
        let now = clock::now();
        let mut schedule = self.schedule.lock();
        // How long others write a key says nothing about the store.
        let waited = batch.iter().any(|renewal| renewal.waits);
        if let (Ok(_), Some(ttl), false) = (answers, shortest, waited) {
            schedule.places.answers(*place, ttl, *sent_at, now);
        }
        for (tenure, answer) in good {
            schedule.answered(tenure, *place, answer, *sent_at, now);
        }
    }
}
