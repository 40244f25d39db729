//! Tests of the documentation's ACLs for sentinels and clusters: they are enough, and a right that is missing is named
//! or costs what the page says.

use std::time::Duration;

use redis::Value;
use tests::{Events, RedisCluster, SentinelGroup, answered, documented_rights, eventually};
use tracing::Level;

use crate::acl::is_of_a_busy_machine;

const WAIT: Duration = Duration::from_secs(20);

/// Returns whether one of the texts names the right.
fn names(said: &[String], right: &str) -> bool {
    let name = right.trim_start_matches(['+', '&']).replace('|', " ");
    said.iter()
        .any(|text| text.to_lowercase().replace('|', " ").contains(&name))
}

/// Returns what is said when a lock is waited for, handed on and moved in a cluster whose nodes give these rights.
async fn said_in(cluster: &RedisCluster, user: &str, rights: &[&str]) -> Vec<String> {
    for node in 0..cluster.nodes.len() {
        let mut command = vec!["ACL", "SETUSER", user, "reset", "on", ">secret"];
        command.extend(rights);
        let _: Value = cluster.query(node, &command);
    }
    let events = Events::default();
    let _guard = tracing::subscriber::set_default(events.clone());
    let mut said = Vec::new();
    let url = cluster.url_with(&format!("{user}:secret@"), "");
    // No connection is given up because the machine is busy.
    let builder = tests::builder().call_timeout(WAIT);
    let connect = async || answered(async || builder.clone().connect(&url).await).await;
    let (locks, other) = match (connect().await, connect().await) {
        (Ok(locks), Ok(other)) => (locks, other),
        (Err(error), _) | (_, Err(error)) => return vec![error.to_string()],
    };
    let slot = cluster.slot_of("lock:{m}");
    let to = (cluster.owner_of(slot) + 1) % 3;
    match locks.mutex("{m}").acquire().await {
        Ok(guard) => {
            let waiting = tokio::spawn(other.mutex("{m}").wait(WAIT).acquire());
            eventually("it listens, or may not", async || {
                let heard =
                    |channel: &String| channel.contains("{m}") || channel.contains("lock:m");
                let warned = events.of(Level::WARN);
                waiting.is_finished()
                    || !warned.iter().all(|text| is_of_a_busy_machine(text))
                    || cluster
                        .nodes
                        .iter()
                        .any(|node| node.channels().iter().any(heard))
            })
            .await;
            said.extend(guard.release().await.err().map(|error| error.to_string()));
            match waiting.await.expect("no panic") {
                Ok(guard) => drop(guard.release().await),
                Err(error) => said.push(error.to_string()),
            }
        }
        Err(error) => said.push(error.to_string()),
    }
    if !rights.contains(&"+sunsubscribe") {
        // Before the slot moves: a server ends the subscriptions of a slot that it gives away by itself.
        let about = |text: &String| text.contains("sunsubscribe");
        let given_up = async || events.of(Level::WARN).iter().any(about);
        eventually("a channel is given up", given_up).await;
    }
    // While its slot moves, a free lock is asked for at the node that the slot goes to.
    cluster.begin_move(slot, to);
    match locks.mutex("{m}").wait(WAIT).acquire().await {
        Ok(guard) => drop(guard.release().await),
        Err(error) => said.push(error.to_string()),
    }
    cluster.finish_move(slot, to).await;
    let mut warned = events.of(Level::WARN);
    warned.retain(|text| !is_of_a_busy_machine(text));
    said.extend(warned);
    said
}

#[tokio::test]
async fn every_documented_right_in_a_cluster_is_needed_and_named() {
    let cluster = RedisCluster::start().await;
    let usual = documented_rights("ACL SETUSER locks on >PASSWORD");
    let more = documented_rights("ACL SETUSER locks in a cluster:");
    let all = [&usual[..], &more].concat();
    let said = said_in(&cluster, "all", &all).await;
    assert!(said.is_empty(), "{said:#?}");
    for (at, right) in more.iter().enumerate() {
        let fewer: Vec<_> = all
            .iter()
            .filter(|other| *other != right)
            .copied()
            .collect();
        let said = said_in(&cluster, &format!("but{at}"), &fewer).await;
        assert!(names(&said, right), "{right}: {said:#?}");
    }
}

#[tokio::test]
async fn documented_sentinel_rights_suffice_and_a_needed_one_is_named() {
    let group = SentinelGroup::builder(1, 1).steady().start().await;
    let all = documented_rights("ACL SETUSER locks at a sentinel:");
    let connect = async |user: &str, rights: &[&str]| {
        for sentinel in &group.sentinels {
            let mut command = vec!["ACL", "SETUSER", user, "reset", "on", ">secret", "-@all"];
            command.extend(rights);
            sentinel.command(&command).unwrap();
        }
        let login = format!("?sentinel_user={user}&sentinel_pass=secret");
        let url = group.url_with("", &login);
        answered(async || tests::builder().connect(&url).await).await
    };
    let locks = connect("all", &all).await.unwrap();
    locks
        .mutex("k")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    eventually("it listens for failovers", async || {
        let clients = group.sentinels[0].command(&["CLIENT", "LIST"]).unwrap();
        format!("{clients:?}").contains("user=all")
    })
    .await;
    for (at, right) in all.iter().enumerate() {
        let fewer: Vec<_> = all
            .iter()
            .filter(|other| *other != right)
            .copied()
            .collect();
        let connected = connect(&format!("but{at}"), &fewer).await;
        if right.contains("get-master-addr-by-name") {
            let error = connected.unwrap_err().to_string();
            assert!(names(std::slice::from_ref(&error), right), "{error}");
        } else {
            let locks = connected.unwrap_or_else(|error| panic!("{right}: {error}"));
            locks
                .mutex("k")
                .acquire()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        }
    }
}
