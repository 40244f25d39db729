//! One call for a batch of renewals, and what its answers mean for the holds.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinError;

use super::Watch;
use super::schedule::Batch;
use crate::backend::{Backend, Fault, Renewal, Renewed, Within};
use crate::hold::Hold;
use crate::observe::{self, Cause};
use crate::values::{Moment, clock};

/// The outcome of one renewal call.
pub(super) struct Outcome {
    pub(super) place: usize,
    pub(super) holds: Vec<Arc<Hold>>,
    pub(super) batch: Vec<Renewal>,
    pub(super) answers: Result<Vec<Renewed>, Fault>,
    pub(super) sent_at: Moment,
}

/// Takes in what became of a call. One that panicked is as one without an answer: its holds are asked about again.
pub(super) fn take_in(watch: &Watch, done: Result<Outcome, JoinError>) {
    match done {
        Ok(outcome) => watch.answered(&outcome),
        Err(_) if watch.is_news(Cause::Panicked, 1) => observe::renewal_panicked(),
        Err(_) => {}
    }
}

pub(super) async fn renew(
    watch: Arc<Watch>,
    backend: Arc<dyn Backend>,
    Batch {
        place,
        waits,
        holds,
    }: Batch,
    timeout: Duration,
) -> Outcome {
    // Looked at again right before the request is sent: nothing is renewed that is being released.
    let sent_at = clock::now();
    let (holds, batch): (Vec<_>, Vec<_>) = holds
        .into_iter()
        .filter_map(|hold| match hold.holder().keeps() {
            true => watch.renewal_of_keeper(&hold, sent_at),
            false => {
                let renewal = hold.renewal_if_good(sent_at)?;
                Some((hold, renewal))
            }
        })
        .map(|(hold, mut renewal)| {
            renewal.waits = waits.is_some();
            (hold, renewal)
        })
        .unzip();
    let timeouts = holds.iter().map(|hold| hold.ttl().call_timeout(timeout));
    let timeout = timeouts.min().unwrap_or(timeout);
    let ends = holds.iter().map(|hold| hold.end_at() - sent_at);
    let useful = ends.max().unwrap_or(timeout);
    let answers = {
        let mut asked = backend.renew(&batch, Within { timeout, useful });
        match tokio::time::timeout(timeout, &mut asked).await {
            Ok(answers) => answers,
            Err(_) => {
                // A renewal that waits for others' writes says nothing about the store.
                if waits.is_none()
                    && let Some(holds) = watch.are_newly_in(Cause::Unanswered, &holds)
                {
                    observe::renewal_unanswered(holds, timeout);
                }
                asked.await
            }
        }
    };
    Outcome {
        place,
        holds,
        batch,
        answers,
        sent_at,
    }
}

impl Watch {
    /// Notes that the renewals of these holds are in trouble. Returns the number of those of which that is to be logged.
    /// One hold whose renewals go on failing is told of once.
    fn are_newly_in(&self, trouble: Cause, holds: &[Arc<Hold>]) -> Option<usize> {
        let more = self.schedule.lock().get_into(trouble, holds);
        (more > 0 && self.is_news(trouble, more)).then_some(more)
    }

    /// Takes in the answers to a batch.
    pub(super) fn answered(&self, outcome: &Outcome) {
        let Outcome {
            place,
            holds,
            batch,
            answers,
            sent_at,
        } = outcome;
        if let Err(fault) = answers
            && let Some(holds) = self.are_newly_in(Cause::Failed, holds)
        {
            observe::renewal_failed(holds, fault);
        }
        let mut good = Vec::with_capacity(holds.len());
        let (mut held, mut refused) = (0, 0);
        for (index, (hold, renewal)) in holds.iter().zip(batch).enumerate() {
            let answer = answers.as_ref().ok().and_then(|all| all.get(index));
            let answer = answer.copied().unwrap_or(Renewed::Unknown);
            held += usize::from(answer == Renewed::Held);
            refused += usize::from(answer == Renewed::NotHeld);
            // The holder may have gone on to another hold meanwhile, and may again.
            let current = match hold.holder().keeps() {
                true => self.answered_keeper(hold, renewal, answer, *sent_at),
                false => None,
            };
            let goes_on = current.is_some();
            let hold = current.as_ref().unwrap_or(hold);
            // Unlocked: a loss wakes waiters.
            hold.renewed(renewal, answer, *sent_at);
            // A hold that has ended in good order passes its holder's entry on.
            if !self.remove_if_over(hold) || goes_on && hold.is_ended() {
                good.push((hold.clone(), answer));
            }
        }
        if let Some(store) = holds.first().map(|hold| hold.label().store) {
            observe::renewals(store, [held, refused, holds.len() - held - refused]);
        }
        // Asked of each hold before the schedule is locked, for which others wait.
        let shortest = holds.iter().map(|hold| hold.ttl()).min();
        let now = clock::now();
        let mut schedule = self.schedule.lock();
        // How long others write a key says nothing about the store.
        let waited = batch.iter().any(|renewal| renewal.waits);
        if let (Ok(_), Some(ttl), false) = (answers, shortest, waited) {
            schedule.places.answers(*place, ttl, *sent_at, now);
        }
        for (hold, answer) in good {
            schedule.answered(&hold, *place, answer, *sent_at, now);
        }
    }
}
