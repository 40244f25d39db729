//! Tests of what a caller is told whose time is over while the store is away. Time is paused.

use std::time::Duration;

use tokio::time::sleep;

use crate::backend::Fault;
use crate::backend::quorum::tests::flaky::{Mode, managers};
use crate::values::StoreError;
use crate::values::options::Options;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_last_question_with_no_time_for_its_answer_does_not_hide_what_the_store_said_before() {
    for (first, says) in [(Mode::Away, "away"), (Mode::Silent, "silent")] {
        let (locks, switch, ..) = managers(Options::default());
        switch.set(first);
        let waiting = tokio::spawn(locks.mutex("k").wait(5 * SECOND).acquire());
        sleep(4 * SECOND).await;
        switch.set(Mode::Silent);
        let error = waiting.await.unwrap().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_last_question_that_could_not_be_sent_does_not_hide_a_refusal() {
    let refused = || Some(Fault::Refused(StoreError::new("missing rights: +hset")));
    let not_sent = || Fault::not_done("no time was left");
    let (unknown, away) = (Fault::unknown("silent"), Some(Fault::not_done("away")));
    for (last, before, said) in [
        (not_sent(), refused(), "missing rights: +hset"),
        (unknown, refused(), "missing rights: +hset"),
        (not_sent(), away, "no time was left"),
        (Fault::denied("wrong password"), refused(), "wrong password"),
    ] {
        assert_eq!(last.at_the_end(before).to_string(), said);
    }
}
