//! What `LockManager::snapshot` tells of the process.

use std::time::Duration;

use lock_runtime::{LockKind, LockManager, LockName, StoreKind};

#[tokio::test(start_paused = true)]
async fn a_snapshot_tells_what_is_held_and_what_is_waited_for() {
    let locks = LockManager::in_memory();
    let empty = locks.snapshot();
    assert!(empty.holds.is_empty() && empty.waited_for.is_empty());
    assert_eq!((empty.store, &empty.id), (StoreKind::Memory, &locks.id()));

    let name = LockName::from("order:").with(&7).template("order:{id}");
    let order = locks.mutex(name).acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let report = locks.read("report").acquire().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(tokio::spawn(locks.mutex("order:7").acquire()));
    }
    waiting.push(tokio::spawn(locks.fair("queue").acquire()));
    waiting.push(tokio::spawn(locks.fair("queue").acquire()));
    tokio::time::sleep(Duration::from_millis(100)).await;

    let seen = locks.snapshot();
    let shown: Vec<_> = seen
        .holds
        .iter()
        .map(|hold| (&*hold.name, hold.label, hold.kind, hold.held_for.as_secs()))
        .collect();
    assert_eq!(
        shown,
        [
            ("order:7", "order:{id}", LockKind::Mutex, 2),
            ("report", "(unlabelled)", LockKind::Read, 0),
            ("queue", "(unlabelled)", LockKind::Fair, 0),
        ]
    );
    assert_eq!(seen.holds[0].fencing_token, order.fencing_token());
    assert_eq!(seen.holds[1].fencing_token, None);
    assert!(seen.holds[0].left > Duration::from_secs(15));
    let mut waited: Vec<_> = seen
        .waited_for
        .iter()
        .map(|lock| (&*lock.name, lock.kind, lock.callers))
        .collect();
    waited.sort_unstable();
    assert_eq!(
        waited,
        [
            ("order:7", LockKind::Mutex, 3),
            ("queue", LockKind::Fair, 1)
        ]
    );

    let shown = locks.inspect("order:7").await.unwrap().holder.unwrap();
    let expected = format!("{}@{} ({}…:", seen.app, seen.host, seen.id);
    assert!(
        shown.to_string().starts_with(&expected),
        "{shown} {expected}"
    );
    let json = serde_json::to_value(&seen).unwrap();
    assert_eq!(json["store"], "memory");
    assert_eq!(json["holds"][0]["name"], "order:7");
    for (lock, kind) in seen.holds.iter().zip(json["holds"].as_array().unwrap()) {
        assert_eq!(kind["kind"], lock.kind.to_string());
    }
    assert_eq!(
        json["holds"][0]["fencing_token"],
        order.fencing_token().unwrap().get()
    );
    for waiting in waiting {
        waiting.abort();
    }
    drop((order, report));
}

#[tokio::test(start_paused = true)]
async fn an_inspected_lock_can_be_shown_as_json_and_gives_no_id_away() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("k").acquire().await.unwrap();
    let json = serde_json::to_value(locks.inspect("k").await.unwrap()).unwrap();
    assert_eq!(json["mode"], "exclusive");
    assert_eq!(json["holder"]["manager_id"], locks.id());
    assert_eq!(json["holder"]["process_id"], std::process::id());
    assert!(json["holder"]["number"].is_null(), "{json}");
    guard.release().await.unwrap();
    let json = serde_json::to_value(locks.inspect("k").await.unwrap()).unwrap();
    assert!(json["holder"].is_null(), "{json}");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_many_holds_has_each_of_them_once() {
    let locks = LockManager::in_memory();
    let mut guards = Vec::new();
    for key in 0..3_000 {
        guards.push(locks.mutex(format!("{key:04}")).acquire().await.unwrap());
    }
    let names: Vec<_> = locks
        .snapshot()
        .holds
        .into_iter()
        .map(|hold| hold.name)
        .collect();
    assert_eq!(names.len(), 3_000);
    assert!(names.is_sorted_by(|a, b| a < b));
}

#[tokio::test(start_paused = true)]
async fn health_can_be_shown_as_json() {
    let locks = LockManager::in_memory();
    let json = serde_json::to_value(locks.health().await).unwrap();
    assert_eq!(json["store"], "memory");
    assert_eq!(json["state"], "ok");
    assert!(json["error"].is_null(), "{json}");
    locks.shutdown().await;
    let json = serde_json::to_value(locks.health().await).unwrap();
    assert_eq!(json["state"], "down");
    assert!(json["latency"].is_null(), "{json}");
}
