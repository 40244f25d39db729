//! Tests of what other managers see of a lock's holder and its waiters: their apps and hosts.

use std::time::{Duration, SystemTime};

use lock_runtime::{HolderInfo, LockManager};
use tests::faults::kept_in_order;
use tests::{Store, eventually};

const LONG: Duration = Duration::from_secs(60);

async fn named(store: &Store, app: &str) -> LockManager {
    store.connect(tests::builder().app(app)).await
}

/// Waits until the store has the holder's record, and returns the holder.
async fn holder(of: &str, seen_by: &LockManager) -> HolderInfo {
    let mut seen = None;
    eventually("the holder's record is there", async || {
        seen = seen_by.inspect(of).await.unwrap().holder;
        seen.as_ref().is_some_and(|holder| holder.app().is_some())
    })
    .await;
    seen.expect("a holder")
}

fn host() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

tests::suite! {
    async fn a_holder_is_shown_with_its_app_its_host_and_its_process(store: &mut Store) {
        let began = SystemTime::now() - Duration::from_secs(2);
        let (locks, other) = (named(store, "orders-api").await, named(store, "reports").await);
        let guard = locks.mutex("k").acquire().await.unwrap();
        for seen_by in [&locks, &other] {
            let holder = holder("k", seen_by).await;
            assert_eq!(holder.app(), Some("orders-api"));
            assert_eq!(holder.host(), Some(&*host()));
            assert_eq!(holder.process_id(), Some(std::process::id()));
            assert!(holder.version().is_some_and(|version| version.starts_with("0.")));
            let since = holder.since().unwrap();
            assert!(since >= began && since <= SystemTime::now(), "{since:?}");
            let shown = holder.to_string();
            let expected = format!("orders-api@{} ({}…:", host(), locks.id());
            assert!(shown.starts_with(&expected), "{shown} {expected}");
        }
        guard.release().await.unwrap();
    }

    async fn holders_of_every_kind_with_a_holder_are_shown(store: &mut Store) {
        let (locks, other) = (named(store, "orders-api").await, store.manager().await);
        let requests = [locks.mutex("a"), locks.fenced("b"), locks.fair("c"), locks.read("d"), locks.write("e")];
        for (request, name) in requests.into_iter().zip(["a", "b", "c", "d", "e"]) {
            let guard = request.acquire().await.unwrap();
            assert_eq!(holder(name, &other).await.app(), Some("orders-api"));
            guard.release().await.unwrap();
        }
    }

    async fn an_app_is_called_by_its_executable_unless_it_says_otherwise(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let guard = locks.mutex("k").acquire().await.unwrap();
        let holder = holder("k", &other).await;
        assert!(holder.app().unwrap().starts_with("behaviour"), "{holder}");
        guard.release().await.unwrap();
    }

    async fn waiters_of_a_fair_lock_are_shown_in_order_with_their_apps(store: &mut Store) {
        let holder = store.manager().await;
        let managers = [named(store, "first").await, named(store, "second").await, named(store, "third").await];
        kept_in_order(Duration::ZERO, async || {
            let guard = holder.fair("k").acquire().await.unwrap();
            let mut waiting = Vec::new();
            for locks in &managers {
                let request = locks.fair("k").wait(LONG);
                let before = waiting.len() as u64;
                waiting.push(tokio::spawn(async move { request.acquire().await.unwrap().release().await.unwrap() }));
                eventually("it has its place", async || {
                    holder.inspect("k").await.unwrap().waiters == before + 1
                }).await;
            }
            let mut apps = Vec::new();
            eventually("their records are there", async || {
                let info = holder.inspect("k").await.unwrap();
                let shown = info.first_waiters.iter();
                apps = shown.filter_map(|waiter| Some(waiter.app()?.to_owned())).collect();
                apps.len() == 3
            }).await;
            guard.release().await.unwrap();
            for waiting in waiting {
                waiting.await.unwrap();
            }
            apps == ["first", "second", "third"]
        }).await;
    }

    async fn of_many_waiters_the_first_ones_are_shown(store: &mut Store) {
        // What an aborted waiter has sent is waited for, twice as long as a call may take.
        let builder = tests::builder().call_timeout(Duration::from_secs(5));
        let locks = store.connect(builder).await;
        let guard = locks.fair("k").acquire().await.unwrap();
        let waiting: Vec<_> = (0..20).map(|_| tokio::spawn(locks.fair("k").wait(LONG).acquire())).collect();
        eventually("all have a place", async || locks.inspect("k").await.unwrap().waiters == 20).await;
        let info = locks.inspect("k").await.unwrap();
        assert_eq!(info.first_waiters.len(), 16);
        for waiting in waiting {
            waiting.abort();
        }
        guard.release().await.unwrap();
    }

    async fn a_free_lock_has_nobody_to_show(store: &mut Store) {
        let info = store.manager().await.inspect("k").await.unwrap();
        assert!(info.holder.is_none() && info.first_waiters.is_empty(), "{info:?}");
    }
}
