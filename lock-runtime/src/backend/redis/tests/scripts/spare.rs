//! Tokens that are set aside for holders of the same process, and given back.

use super::listed::{ListedAcquire, ListedRelease, listed_acquire, listed_release};
use super::*;
use crate::values::SPARE_TOKENS;

pub(super) fn acquire_ahead(holder: &str) -> Acquire<'_> {
    Acquire {
        channel: Some(CHANNEL),
        spare: Some(SPARE_TOKENS),
        ..acquire(holder)
    }
}

pub(super) fn listed_acquire_ahead(holder: &str) -> ListedAcquire<'_> {
    ListedAcquire {
        spare: Some(SPARE_TOKENS),
        ..listed_acquire(holder)
    }
}

pub(super) fn release_after(holder: &str, used: u64, last: u64) -> Release<'_> {
    Release {
        fence: Some(FENCE.to_owned()),
        used: Some(used),
        last: Some(last),
        ..release(holder)
    }
}

pub(super) fn listed_release_after(holder: &str, used: u64, last: u64) -> ListedRelease<'_> {
    ListedRelease {
        fence: Some(FENCE.to_owned()),
        used: Some(used),
        last: Some(last),
        ..listed_release(holder)
    }
}

/// Requests on behalf of a process whose callers wait, alone and in a crowd.
impl Bench {
    /// Returns the token, and the last of those that were set aside.
    async fn ahead(&self, holder: &str, in_crowd: bool) -> (u64, u64) {
        let reply = if in_crowd {
            self.call(listed_acquire_ahead(holder)).await
        } else {
            self.call(acquire_ahead(holder)).await
        };
        match reply.unwrap() {
            AcquireReply::Granted { token, look, .. } => {
                let look = look.unwrap();
                assert_eq!(look.subscribers, Some(1));
                (token.unwrap().get(), look.last.unwrap().get())
            }
            other => panic!("{other:?}"),
        }
    }

    async fn gives_back_after(&self, holder: &str, in_crowd: bool, used: u64, last: u64) {
        let reply = if in_crowd {
            self.call(listed_release_after(holder, used, last)).await
        } else {
            self.call(release_after(holder, used, last)).await
        };
        reply.unwrap();
    }

    async fn fence(&self) -> u64 {
        let fence = self.text(&format!("GET {FENCE}")).await;
        fence.unwrap().parse().unwrap()
    }
}

#[tokio::test]
async fn a_request_for_several_sets_tokens_aside_and_a_release_gives_back_what_nobody_had() {
    let bench = Bench::new().await;
    let _listening = bench.server.listen(&[CHANNEL]).await;
    for in_crowd in [false, true] {
        let (token, last) = bench.ahead("a", in_crowd).await;
        assert_eq!(last, token + SPARE_TOKENS);
        assert_eq!(bench.fence().await, last);
        bench.gives_back_after("a", in_crowd, token + 3, last).await;
        assert_eq!(bench.fence().await, token + 3);
        assert_eq!(bench.integer("EXISTS lock:k").await, 0);
        assert!(bench.token("b").await > token + 3);
        bench.run("DEL lock:k").await;
    }
}

#[tokio::test]
async fn the_tokens_of_a_holder_that_came_while_the_fence_was_ahead_are_its_own_alone() {
    let bench = Bench::new().await;
    let _listening = bench.server.listen(&[CHANNEL]).await;
    for in_crowd in [false, true] {
        bench.run(&format!("SET {FENCE} 8000000000000000")).await;
        let (token, last) = bench.ahead("a", in_crowd).await;
        assert_eq!((token, last), (8_000_000_000_000_001, token));
        bench.run("DEL lock:k").await;
    }
}

#[tokio::test]
async fn a_fence_that_somebody_has_drawn_from_is_not_set_back() {
    let bench = Bench::new().await;
    let _listening = bench.server.listen(&[CHANNEL]).await;
    for in_crowd in [false, true] {
        let (token, last) = bench.ahead("a", in_crowd).await;
        // Another lock of the same slot, or a later holder of this one.
        bench.run(&format!("SET {FENCE} {}", last + 1)).await;
        bench.gives_back_after("a", in_crowd, token, last).await;
        assert_eq!(bench.fence().await, last + 1);

        // A second copy of a release, and one of somebody who has lost the lock.
        bench.run(&format!("SET {FENCE} {last}")).await;
        bench.gives_back_after("a", in_crowd, token, last).await;
        assert_eq!(bench.fence().await, last);
    }
}

#[tokio::test]
async fn without_rights_to_the_fence_the_lock_is_given_back_all_the_same() {
    let bench = Bench::new().await;
    let _listening = bench.server.listen(&[CHANNEL]).await;
    for rules in ["-get", "-set"] {
        let (token, last) = bench.ahead("a", false).await;
        let mut limited = bench.user(rules).await;
        let release = release_after("a", token, last);
        let reply = run(&mut limited, &release).await.unwrap();
        assert_eq!(reply, ReleaseReply::Heard, "{rules}");
        assert_eq!(bench.fence().await, last, "{rules}");
        bench.run(&format!("DEL {FENCE}")).await;
    }
}

#[tokio::test]
async fn so_many_tokens_that_the_clock_would_not_catch_up_are_refused() {
    let bench = Bench::new().await;
    let far = FAR.to_string();
    for spare in ["2001", "-1", "1.5", "nan", "x"] {
        let arguments = ["a", "30000", &*far, "0", CHANNEL, spare];
        let refused = bench.raw(Acquire::source(), &[LOCK, FENCE], &arguments);
        assert!(refused.await.is_err(), "{spare}");
        let arguments = ["a", "30000", &*far, "0", CHANNEL, "100", spare];
        let refused = bench.raw(ListedAcquire::source(), &[LOCK, WAITING, FENCE], &arguments);
        assert!(refused.await.is_err(), "{spare}");
    }
    assert_eq!(bench.integer("DBSIZE").await, 0);
}
