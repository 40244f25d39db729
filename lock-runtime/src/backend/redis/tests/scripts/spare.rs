//! Tests of reserved tokens, and of their return.

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
        used: Some(used),
        last: Some(last),
        ..listed_release(holder)
    }
}

/// Requests of a process whose callers wait, without and with the waiting list.
impl ScriptBench {
    /// Returns the token, and the last reserved token.
    async fn ahead(&self, holder: &str, is_listed: bool) -> (u64, u64) {
        let reply = if is_listed {
            self.call(listed_acquire_ahead(holder)).await
        } else {
            self.call(acquire_ahead(holder)).await
        };
        match reply.unwrap() {
            AcquireReply::Granted { token, tenure, .. } => {
                let tenure = tenure.unwrap();
                assert_eq!(tenure.subscribers, Some(1));
                (token.unwrap().get(), tenure.last.unwrap().get())
            }
            other => panic!("{other:?}"),
        }
    }

    async fn gives_back_after(&self, holder: &str, is_listed: bool, used: u64, last: u64) {
        if is_listed {
            let release = listed_release_after(holder, used, last);
            self.call(release).await.unwrap();
        } else {
            let release = release_after(holder, used, last);
            self.call(release).await.unwrap();
        }
    }

    async fn fence(&self) -> u64 {
        let fence = self.text(&format!("GET {FENCE}")).await;
        fence.unwrap().parse().unwrap()
    }
}

#[tokio::test]
async fn an_acquire_reserves_tokens_and_a_release_returns_unused_ones() {
    let bench = ScriptBench::new().await;
    let _listening = bench.server.listen(&[CHANNEL]).await;
    for is_listed in [false, true] {
        let (token, last) = bench.ahead("a", is_listed).await;
        assert_eq!(last, token + SPARE_TOKENS);
        assert_eq!(bench.fence().await, last);
        bench
            .gives_back_after("a", is_listed, token + 3, last)
            .await;
        assert_eq!(bench.fence().await, token + 3);
        assert_eq!(bench.integer("EXISTS lock:k").await, 0);
        assert!(bench.token("b").await > token + 3);
        bench.run("DEL lock:k").await;
    }
}

#[tokio::test]
async fn a_fence_ahead_of_the_clock_reserves_no_tokens() {
    let bench = ScriptBench::new().await;
    let _listening = bench.server.listen(&[CHANNEL]).await;
    for is_listed in [false, true] {
        bench.run(&format!("SET {FENCE} 8000000000000000")).await;
        let (token, last) = bench.ahead("a", is_listed).await;
        assert_eq!((token, last), (8_000_000_000_000_001, token));
        bench.run("DEL lock:k").await;
    }
}

#[tokio::test]
async fn a_fence_with_a_later_token_is_not_set_back() {
    let bench = ScriptBench::new().await;
    let _listening = bench.server.listen(&[CHANNEL]).await;
    for is_listed in [false, true] {
        let (token, last) = bench.ahead("a", is_listed).await;
        // The later token belongs to another lock of the same slot, or to a later holder of this one.
        bench.run(&format!("SET {FENCE} {}", last + 1)).await;
        bench.gives_back_after("a", is_listed, token, last).await;
        assert_eq!(bench.fence().await, last + 1);

        // This is a second copy of a release, or the release of a holder that has lost the lock.
        bench.run(&format!("SET {FENCE} {last}")).await;
        bench.gives_back_after("a", is_listed, token, last).await;
        assert_eq!(bench.fence().await, last);
    }
}

#[tokio::test]
async fn a_release_without_rights_to_the_fence_still_releases() {
    let bench = ScriptBench::new().await;
    let _listening = bench.server.listen(&[CHANNEL]).await;
    for rules in ["-get", "-set"] {
        let (token, last) = bench.ahead("a", false).await;
        let mut limited = bench.user(rules).await;
        let release = release_after("a", token, last);
        let reply = run(&mut limited, &release).await.unwrap();
        assert_eq!(reply, received_by(1), "{rules}");
        assert_eq!(bench.fence().await, last, "{rules}");
        bench.run(&format!("DEL {FENCE}")).await;
    }
}

#[tokio::test]
async fn too_many_reserved_tokens_are_refused() {
    let bench = ScriptBench::new().await;
    let far = FAR.to_string();
    for spare in ["2001", "-1", "1.5", "nan", "x"] {
        let arguments = ["a", "30000", &*far, "0", CHANNEL, spare];
        let refused = bench.raw(Acquire::source(), &[LOCK, FENCE], &arguments);
        assert!(refused.await.is_err(), "{spare}");
        let arguments = ["a", "30000", &*far, "0", CHANNEL, spare];
        let refused = bench.raw(ListedAcquire::source(), &[LOCK, WAITING, FENCE], &arguments);
        assert!(refused.await.is_err(), "{spare}");
    }
    assert_eq!(bench.integer("DBSIZE").await, 0);
}
