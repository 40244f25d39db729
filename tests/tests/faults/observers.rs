//! Observers of an election whose store is slow.

use std::time::Duration;

use tests::faults::behind_a_proxy;
use tests::{Direction, RedisServer, eventually};
use tokio::time::timeout;

const MS: Duration = Duration::from_millis(1);

#[tokio::test]
async fn an_observer_finds_the_leader_although_each_call_is_dropped() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, tests::builder()).await;
    let leader = tests::connected(&server.url()).await;
    let led = leader.elect("scheduler").campaign().await.unwrap();
    let mut observer = locks.elect("scheduler").observe();
    // A look takes two round trips.
    proxy.delay(Direction::Replies, 100 * MS);
    eventually("it learns who leads", async || {
        let seen = timeout(10 * MS, observer.changed()).await;
        seen.is_ok_and(|seen| {
            seen.unwrap()
                .is_some_and(|seen| seen.manager_id() == leader.id())
        })
    })
    .await;
    led.resign().await.unwrap();
}
