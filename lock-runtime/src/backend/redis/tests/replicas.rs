//! Tests of a wait connection by itself, and of the server whose replicas count.

use std::sync::atomic::{AtomicBool, AtomicU32};

use super::super::replicas::wait_connection::WaitCommon;
use super::super::replicas::wait_queue::WaitQueue;
use super::*;
use crate::backend::{Backend, Fault, Renewal};
use crate::values::holder::HolderIds;
use crate::values::replicas::Replicas;

struct ReplicaScene {
    master: TestServer,
    _replica: TestServer,
    backend: Arc<RedisBackend>,
    wait_queue: Arc<WaitQueue>,
    closed: tokio::sync::watch::Sender<bool>,
}

async fn scene() -> ReplicaScene {
    let master = TestServer::start_with(&["--repl-diskless-sync-delay", "0"]).await;
    let port = master.port().to_string();
    let replica = TestServer::start_with(&["--replicaof", "127.0.0.1", &port]).await;
    until("the replica follows", async || {
        master.run("SET probe 1").await;
        master.integer("WAIT 1 100").await == 1 && replica.integer("EXISTS probe").await == 1
    })
    .await;
    let backend = connect(&master).await;
    let target = Arc::new(Target::parse(&master.url()).unwrap());
    let common = Arc::new(WaitCommon {
        replicas: Replicas::majority(),
        timeout: CALL,
        clustered: false,
        connected: AtomicU32::new(0),
        warned: AtomicBool::new(false),
    });
    let closed = tokio::sync::watch::Sender::new(false);
    let wait_queue = WaitQueue::start(target, &common, &Handle::current(), &closed.subscribe());
    ReplicaScene {
        master,
        _replica: replica,
        backend,
        wait_queue,
        closed,
    }
}

impl ReplicaScene {
    async fn confirmed(&self, holds: &[Renewal]) -> Result<(), String> {
        let deadline = clock::now() + CALL;
        match self.wait_queue.ask(holds.to_vec(), deadline).await {
            Ok(()) => Ok(()),
            Err(Fault::TooFew(why)) => Err(why.to_string()),
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn renewal(name: &str, holder: HolderId) -> Renewal {
    Renewal {
        key: key(name),
        holder,
        permits: 1,
        ttl: None,
        waits: false,
    }
}

#[tokio::test]
async fn replicas_of_a_server_without_the_lock_prove_nothing() {
    let scene = scene().await;
    let elsewhere = TestServer::start().await;
    let other = connect(&elsewhere).await;
    let ids = HolderIds::new();
    let (here, there) = (ids.fresh(), ids.fresh());
    granted(
        scene
            .backend
            .acquire(request(&key("here"), here, 5_000))
            .await
            .unwrap(),
    );
    granted(
        other
            .acquire(request(&key("there"), there, 5_000))
            .await
            .unwrap(),
    );
    let (here, there) = (renewal("here", here), renewal("there", there));
    scene.confirmed(std::slice::from_ref(&here)).await.unwrap();
    let why = scene
        .confirmed(std::slice::from_ref(&there))
        .await
        .unwrap_err();
    assert!(why.contains("not at the server"), "{why}");
    // Requests that are made together are answered one by one.
    let mixed = [here.clone(), there.clone()];
    let (good, bad, both) = tokio::join!(
        scene.confirmed(std::slice::from_ref(&here)),
        scene.confirmed(std::slice::from_ref(&there)),
        scene.confirmed(&mixed),
    );
    assert!(good.is_ok() && bad.is_err() && both.is_err());
}

#[tokio::test]
async fn a_cut_wait_connection_is_reopened_unnoticed() {
    let scene = scene().await;
    let holder = HolderIds::new().fresh();
    granted(
        scene
            .backend
            .acquire(request(&key("k"), holder, 60_000))
            .await
            .unwrap(),
    );
    for _ in 0..20 {
        scene.confirmed(&[renewal("k", holder)]).await.unwrap();
        scene.master.run("CLIENT KILL TYPE normal").await;
    }
    scene.closed.send_replace(true);
    until("a closed one says so", async || {
        let confirmed = scene
            .wait_queue
            .ask(vec![renewal("k", holder)], clock::now() + CALL);
        matches!(confirmed.await, Err(Fault::Closed(_)))
    })
    .await;
}
