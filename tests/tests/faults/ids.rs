//! Tests of ids while servers lose their data, fail over, answer late or never, and while their clocks are set.

use std::collections::HashSet;
use std::time::Duration;

use lock_runtime::{Ids, Replicas};
use tests::faults::{behind_a_proxy, connected};
use tests::sentinel::replicated;
use tests::{
    CommandStats, Direction, Mariadb, Postgres, RedisServer, SentinelGroup, Sql, Table, Then,
    answered, builder, eventually,
};
use tokio::task::JoinSet;

const MS: Duration = Duration::from_millis(1);
const DAY: i64 = 24 * 60 * 60;

/// Draws `calls` ids in each of `tasks` tasks.
async fn at_once(ids: &Ids, tasks: usize, calls: usize) -> Vec<i64> {
    let mut set = JoinSet::new();
    for _ in 0..tasks {
        let ids = ids.clone();
        set.spawn(async move {
            let mut got = Vec::new();
            for _ in 0..calls {
                got.push(ids.next().await.unwrap());
            }
            assert!(got.is_sorted_by(|one, next| one < next));
            got
        });
    }
    set.join_all().await.concat()
}

fn assert_unique(ids: &[i64]) {
    let unique: HashSet<_> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len());
}

#[tokio::test]
async fn many_callers_cost_a_request_for_many_ids() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, builder()).await;
    let ids = locks.ids("order");
    ids.next().await.unwrap();
    // So late an answer finds all tasks waiting, however busy the machine is.
    proxy.delay(Direction::Replies, 5 * MS);
    let before = CommandStats::of(&server);
    let got = at_once(&ids, 200, 250).await;
    let scripts = CommandStats::of(&server).since(&before).scripts();
    assert_unique(&got);
    assert!(scripts <= 50_000 / 100, "{scripts} requests for 50,000 ids");
}

#[tokio::test]
async fn one_caller_asks_for_each_id_by_one_script() {
    let server = RedisServer::start();
    let locks = builder().connect(&server.url()).await.unwrap();
    let ids = locks.ids("order");
    ids.next().await.unwrap();
    let before = CommandStats::of(&server);
    for _ in 0..20 {
        ids.next().await.unwrap();
    }
    ids.take(10_000).await.unwrap();
    let done = CommandStats::of(&server).since(&before);
    assert_eq!(
        (done.scripts(), done.calls("get"), done.calls("set")),
        (21, 21, 21)
    );
}

#[tokio::test]
async fn a_source_ends_a_day_after_its_last_id() {
    let server = RedisServer::start();
    let locks = builder().connect(&server.url()).await.unwrap();
    locks.ids("order").next().await.unwrap();
    let left = server.pttl("lock:order");
    assert!(
        (DAY * 1_000 - 60_000..=DAY * 1_000).contains(&left),
        "{left}"
    );
    let _: i64 = server.query(&["DEL", "lock:order"]);
}

#[tokio::test]
async fn ids_go_on_from_the_last_one_after_the_clock_was_set_back() {
    let server = RedisServer::start();
    let locks = builder().connect(&server.url()).await.unwrap();
    let ids = locks.ids("order");
    let now = ids.next().await.unwrap() >> 32;
    // As if the clock had been a year ahead.
    let ahead = now + 365 * DAY;
    server.query::<()>(&["SET", "lock:order", &format!("{ahead}-4294967290")]);
    let got = ids.take(10).await.unwrap();
    let first = (ahead << 32) + 4_294_967_291;
    assert_eq!(got, (first..first + 10).collect::<Vec<_>>());
    let left = server.pttl("lock:order") / 1_000;
    assert!((365 * DAY..=366 * DAY + 1).contains(&left), "{left}");
    let _: i64 = server.query(&["DEL", "lock:order"]);
}

#[tokio::test]
async fn a_promoted_replica_without_the_last_ids_repeats_none() {
    let servers = replicated(RedisServer::builder, 1).await;
    let [master, replica] = &servers[..] else {
        unreachable!()
    };
    // A confirmation is not waited for: ids need none.
    let confirmed = builder().replicas(Replicas::at_least(1));
    let locks = confirmed.connect(&master.url()).await.unwrap();
    let plain = at_once(&locks.ids("order"), 4, 50).await;
    let shuffled = locks.ids("invoice").shuffled().take(1_000).await.unwrap();
    eventually("the replica has the sources", async || {
        replica.exists("lock:order") && replica.exists("lock:invoice")
    })
    .await;
    // From here on, the replica is told of nothing more.
    let _: String = replica.query(&["REPLICAOF", "NO", "ONE"]);
    let unknown = at_once(&locks.ids("order"), 4, 50).await;
    let unknown_shuffled = locks.ids("invoice").shuffled().take(1_000).await.unwrap();
    drop(locks);
    let after = builder().connect(&replica.url()).await.unwrap();
    let last = unknown.iter().max().unwrap();
    let promoted = at_once(&after.ids("order"), 4, 50).await;
    assert!(promoted.iter().all(|id| id > last));
    assert_unique(&[plain, unknown, promoted].concat());
    let promoted = after.ids("invoice").shuffled().take(1_000).await.unwrap();
    assert_unique(&[shuffled, unknown_shuffled, promoted].concat());
}

#[tokio::test]
async fn ids_go_on_through_a_failover() {
    let group = SentinelGroup::builder(1, 1).steady().start().await;
    let locks = connected(builder(), &group.url()).await;
    let ids = locks.ids("order");
    let mut got = at_once(&ids, 8, 50).await;
    group.failover().await;
    got.push(answered(async || ids.next().await).await.unwrap());
    assert!(got.iter().max() == got.last());
    got.extend(at_once(&ids, 8, 50).await);
    assert_unique(&got);
}

#[tokio::test]
async fn an_answer_that_is_lost_costs_ids_and_no_error() {
    let server = RedisServer::start();
    let (proxy, locks) = behind_a_proxy(&server, builder()).await;
    let ids = locks.ids("order");
    let mut got = vec![ids.next().await.unwrap()];
    for _ in 0..3 {
        proxy.lose_reply_to(|args| args[0] == b"EVALSHA", Then::Cut);
        let next = answered(async || ids.next().await).await.unwrap();
        assert!(proxy.trap_sprung() && next > *got.last().unwrap());
        got.push(next);
    }
    let _: i64 = server.query(&["DEL", "lock:order"]);
}

#[tokio::test]
async fn a_right_that_ids_need_is_named_when_it_is_missing() {
    for right in ["get", "set", "time"] {
        let rules = format!("on >secret ~* &* +@all -{right}");
        let server = RedisServer::builder().user("limited", &rules).start();
        let lazy = builder().lazy(true);
        let url = server.url_with("limited", "secret");
        let locks = lazy.connect(&url).await.unwrap();
        let error = locks.ids("order").next().await.unwrap_err();
        assert!(error.to_string().contains(right), "{right}: {error}");
    }
}

/// Draws ids on a table whose source seems to be a year ahead. Its row ends after that.
async fn goes_on_in_a_table<D: Sql>(is_a_year_ahead: &str) {
    let table = Table::<D>::new();
    let locks = connected(builder().ensure_schema(true), &table.url()).await;
    let ids = locks.ids("order");
    let before = ids.next().await.unwrap();
    let ahead = before + ((365 * DAY) << 32);
    let (server, name) = (table.server(), table.name());
    server.query(&format!(
        "UPDATE {name} SET token = {ahead} WHERE kind = 'ids'"
    ));
    assert_eq!(
        ids.take(3).await.unwrap(),
        [ahead + 1, ahead + 2, ahead + 3]
    );
    let said = server.query(&format!("SELECT {is_a_year_ahead} FROM {name}"));
    assert!(["t", "1"].contains(&said[0].as_str()), "{said:?}");
}

#[tokio::test]
async fn ids_go_on_from_the_last_one_on_postgres() {
    goes_on_in_a_table::<Postgres>("expires_at > now() + interval '365 days'").await;
}

#[tokio::test]
async fn ids_go_on_from_the_last_one_on_mysql() {
    goes_on_in_a_table::<Mariadb>("expires_at > (UNIX_TIMESTAMP() + 365 * 86400) * 1000000").await;
}
