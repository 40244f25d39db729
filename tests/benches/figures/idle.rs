//! The costs of holding and of waiting.

use std::time::Duration;

use lock_runtime::LockManager;
use tests::{CommandStats, RedisServer};

use crate::stats::resident;

const MANY: usize = 10_000;
const LEASE: Duration = Duration::from_secs(12);

pub(crate) fn run() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let locks = LockManager::connect(&server.url()).await.unwrap();
        held(&server, &locks).await;
        leased(&server, &locks).await;
        waiting(&server, &locks).await;
    });
}

async fn held(server: &RedisServer, locks: &LockManager) {
    let before = resident();
    let mut guards = Vec::with_capacity(MANY);
    for number in 0..MANY {
        let name = format!("held:{number}");
        guards.push(locks.mutex(name).lease(LEASE).acquire().await.unwrap());
    }
    let bytes = (resident() - before) / MANY;
    // One cadence passes so that renewals settle; then three are measured.
    let cadence = LEASE / 3;
    tokio::time::sleep(cadence).await;
    let stats = CommandStats::of(server);
    tokio::time::sleep(cadence * 3).await;
    let calls = CommandStats::of(server).since(&stats).scripts() as f64 / 3.0;
    assert!(guards.iter().all(|guard| guard.is_held()));
    println!("{MANY} held locks");
    println!("  memory           {bytes:7} bytes per held lock");
    println!(
        "  renewal          {calls:7.1} script calls per cadence, {:.0} holds each",
        MANY as f64 / calls
    );
    for guard in guards {
        guard.release().await.unwrap();
    }
}

async fn leased(server: &RedisServer, locks: &LockManager) {
    let semaphore = locks.semaphore("leased");
    semaphore.try_set_permits(MANY as u64).await.unwrap();
    let before = resident();
    let mut guards = Vec::with_capacity(MANY);
    for _ in 0..MANY {
        guards.push(semaphore.permits(1).lease(LEASE).acquire().await.unwrap());
    }
    let bytes = resident().saturating_sub(before) / MANY;
    let cadence = LEASE / 3;
    tokio::time::sleep(cadence).await;
    let stats = CommandStats::of(server);
    tokio::time::sleep(cadence * 3).await;
    let calls = CommandStats::of(server).since(&stats).scripts() as f64 / 3.0;
    assert!(guards.iter().all(|guard| guard.is_held()));
    println!("{MANY} leased permits of one semaphore");
    println!("  memory           {bytes:7} bytes per leased permit");
    println!(
        "  renewal          {calls:7.1} script calls per cadence, {:.0} permits each",
        MANY as f64 / calls
    );
    for guard in guards {
        guard.release().await.unwrap();
    }
    semaphore.delete().await.unwrap();
}

async fn waiting(server: &RedisServer, locks: &LockManager) {
    let other = LockManager::connect(&server.url()).await.unwrap();
    let guard = other.mutex("wanted").acquire().await.unwrap();
    let before = resident();
    let waiters: Vec<_> = (0..MANY)
        .map(|_| tokio::spawn(locks.mutex("wanted").wait_forever().acquire()))
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let bytes = (resident() - before) / MANY;
    let stats = CommandStats::of(server);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let stats = CommandStats::of(server).since(&stats);
    // These are the commands that clients sent: the statistics also count what runs inside the scripts.
    let sent = stats.scripts() + stats.calls("ping") + stats.calls("subscribe");
    println!("{MANY} waiters of one process for a key that another holds");
    println!("  memory           {bytes:7} bytes per waiter");
    println!(
        "  commands         {:7.1} /s in all, the other's renewals included",
        sent as f64 / 10.0
    );
    for waiter in waiters {
        waiter.abort();
    }
    guard.release().await.unwrap();
}
