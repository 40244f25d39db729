//! The tests of a service without a server: with a store that does what the test says, and a clock that is paused.

use std::time::Duration;

use lock_runtime::test_util::{self, Answer};
use lock_runtime::{LockError, LockManager, LostReason, distributed_lock};
use tokio::time::sleep;

/// The service under test: sends the invoices of a month, which takes a minute.
struct Invoices {
    locks: LockManager,
}

#[derive(Debug, PartialEq)]
enum Sent {
    Now,
    ByAnother,
    TryLater,
    Interrupted(LostReason),
}

impl Invoices {
    async fn send(&self, month: u8) -> Result<Sent, LockError> {
        match self.send_all(month).await {
            Ok(()) => Ok(Sent::Now),
            Err(LockError::Busy { .. }) => Ok(Sent::ByAnother),
            Err(LockError::Lost { reason, .. }) => Ok(Sent::Interrupted(reason)),
            Err(error) if error.is_retryable() => Ok(Sent::TryLater),
            Err(error) => Err(error),
        }
    }

    #[distributed_lock(key = "invoices:{month}", wait = "1s", manager = self.locks)]
    async fn send_all(&self, month: u8) -> Result<(), LockError> {
        sleep(Duration::from_secs(60)).await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn invoices_are_sent_under_the_lock_of_their_month_and_free_it() {
    let (locks, control) = test_util::in_memory();
    let invoices = Invoices { locks };
    let (sent, ()) = tokio::join!(invoices.send(7), async {
        sleep(Duration::from_secs(30)).await; // takes no time, for the clock is paused
        control.assert_held("invoices:7").await;
    });
    assert_eq!(sent.unwrap(), Sent::Now);
    control.assert_free("invoices:7").await;
}

#[tokio::test(start_paused = true)]
async fn invoices_that_another_process_sends_are_left_to_it() {
    let (locks, control) = test_util::in_memory();
    control.next_acquire_of("invoices:7", Answer::Busy { retry_after: None });
    let invoices = Invoices { locks };
    assert_eq!(invoices.send(7).await.unwrap(), Sent::ByAnother);
    assert_eq!(control.answers_left(), 0); // the service did ask
}

#[tokio::test(start_paused = true)]
async fn an_outage_postpones_invoices_until_the_store_comes_back() {
    let (locks, control) = test_util::in_memory();
    let invoices = Invoices { locks };
    control.go_away();
    assert_eq!(invoices.send(7).await.unwrap(), Sent::TryLater);
    control.come_back();
    assert_eq!(invoices.send(7).await.unwrap(), Sent::Now);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_interrupts_the_sending() {
    let (locks, control) = test_util::in_memory();
    let invoices = Invoices { locks };
    let (sent, ()) = tokio::join!(invoices.send(7), async {
        sleep(Duration::from_secs(30)).await;
        control.lose("invoices:7", LostReason::Expired).await;
    });
    assert_eq!(sent.unwrap(), Sent::Interrupted(LostReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_no_retry_helps_is_an_error() {
    let (locks, control) = test_util::in_memory();
    control.next_acquire(Answer::Denied);
    let refused = Invoices { locks }.send(7).await;
    assert!(matches!(refused, Err(LockError::Denied { .. })));
}
