//! Tests of a Redis Cluster in which some slots have no node.

use std::time::{Duration, Instant};

use lock_runtime::LockError;
use tests::faults::{connected, use_once};
use tests::{RedisCluster, eventually, eventually_within};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);

/// The last of the slots that have no node: the first slots of the first node, from 0 on.
const LAST: u16 = 99;

async fn with_a_gap() -> RedisCluster {
    let builder = RedisCluster::builder().line("cluster-require-full-coverage no");
    let cluster = builder.start().await;
    eventually("nobody has the slots", async || {
        for node in 0..3 {
            let range = ["CLUSTER", "DELSLOTSRANGE", "0", &LAST.to_string()];
            // This fails if the node knows already that nobody has them.
            let _ = cluster.nodes[node].command(&range);
        }
        (0..3).all(|node| cluster.covered(node) == 16_384 - usize::from(LAST) - 1)
    })
    .await;
    cluster
}

/// Returns the name of a lock whose slot has no node.
fn in_the_gap(cluster: &RedisCluster) -> String {
    let mut names = (0..).map(|number| format!("gap{number}"));
    let is_there = |name: &String| cluster.slot_of(&format!("lock:{name}")) <= LAST;
    names.find(is_there).unwrap()
}

/// Returns how often the nodes were asked who has which slots.
fn asked(cluster: &RedisCluster) -> u64 {
    let calls = |node| {
        let stats: String = cluster.query(node, &["INFO", "commandstats"]);
        let slots = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_cluster|slots:calls="));
        let calls = slots.and_then(|rest| rest.split(',').next());
        calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
    };
    (0..3).map(calls).sum()
}

#[tokio::test]
async fn slots_that_stay_nobodys_are_asked_after_less_and_less() {
    let cluster = with_a_gap().await;
    let builder = tests::builder().call_timeout(1_000 * MS);
    let locks = connected(builder, &cluster.url()).await;
    let name = in_the_gap(&cluster);
    eventually("it is told that nobody has the slot", async || {
        let error = locks.mutex(&name).try_acquire().await.unwrap_err();
        assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
        // On a busy machine, the answers of the nodes may come too late.
        error.to_string().contains("slot")
    })
    .await;
    // Returns the time in which all three nodes are asked six times.
    let six_questions = async || {
        let (began, before) = (Instant::now(), asked(&cluster));
        let all_six = async || asked(&cluster) >= before + 6 * 3;
        eventually_within(LONG, "the nodes are asked", all_six).await;
        began.elapsed()
    };
    // Between them are five pauses, which grow to 1.1 s at least. If they did not, they would be of 0.45 s at most.
    let long = 5 * 1_100 * MS;
    let is_long = async || six_questions().await >= long;
    eventually_within(4 * LONG, "they are asked less and less", is_long).await;
    // Callers that want a lock there make the manager look sooner than that.
    let (caller, wanted) = (locks.clone(), name.clone());
    let calling = tokio::spawn(async move {
        loop {
            let _ = caller.mutex(&*wanted).wait(200 * MS).acquire().await;
        }
    });
    let is_short = async || six_questions().await < long;
    eventually_within(2 * LONG, "they are asked more often again", is_short).await;
    calling.abort();
    let range = ["CLUSTER", "ADDSLOTSRANGE", "0", &LAST.to_string()];
    cluster.nodes[0].command(&range).unwrap();
    use_once(locks.mutex(&*name).wait(LONG)).await;
}
