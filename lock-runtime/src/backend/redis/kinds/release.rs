//! Ends what a holder has at a key.

use std::time::Duration;

use super::request::Releasing;
use super::{exclusive, fair, listed, permits, read_write};
use crate::backend::redis::router::Router;
use crate::backend::redis::scripting::outcomes::{Announced, ReleaseReply};
use crate::backend::{Fault, HoldRef, Released, WithRelease};
use crate::values::{Kind, clock, rare};

/// Ends what a holder has. The answer that it has nothing is vouched for.
pub(crate) async fn release(
    router: &Router,
    hold_ref: HoldRef<'_>,
    with: WithRelease<'_>,
    timeout: Duration,
) -> Result<Released, Fault> {
    let asked_at = clock::now();
    let deadline = asked_at + timeout;
    // Before any wait: from here on, no message is a grant.
    listed::forget(&router.topics, hold_ref);
    let (mut live, mut now) = router.route(hold_ref.key, asked_at, deadline).await?;
    loop {
        let releasing = Releasing {
            router,
            live: &live,
            hold_ref,
            with,
            undoes: false,
            sent_at: now,
            deadline,
        };
        let answer = ask(&releasing).await;
        if let Some(redirect) = router.redirect(&answer) {
            (live, now) = rare(router.follow(redirect, &live, hold_ref.key, deadline)).await?;
            continue;
        }
        let released = answer?.released;
        if released == Released::NotHeld {
            rare(router.vouch(Some(live), deadline)).await?;
        }
        return Ok(released);
    }
}

/// Sends the request once. Publishes the messages that its script could not publish, and notes how many other processes wait
/// for the key, if the reply says that some do.
pub(crate) async fn ask(releasing: &Releasing<'_>) -> Result<ReleaseReply, Fault> {
    let (router, key) = (releasing.router, releasing.hold_ref.key);
    let answer = match key.kind() {
        Kind::Mutex | Kind::Fenced => exclusive::release(releasing).await,
        Kind::Semaphore => rare(permits::release(releasing)).await,
        Kind::Fair => rare(fair::release(releasing)).await,
        Kind::Read | Kind::Write => rare(read_write::release(releasing)).await,
    };
    let Announced { done, unpublished } = answer?;
    if done.receivers > 0 {
        router.note_others(key, done.receivers);
    }
    router.publish_all(unpublished);
    Ok(done)
}
