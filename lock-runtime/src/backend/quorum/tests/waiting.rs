//! Several contenders for a lock: split votes, wake-ups, hand-overs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::flaky::Mode;
use super::{MS, Rig};
use crate::api::manager::LockManager;

/// Has every task of every manager take the lock `rounds` times. No two tasks hold it at once.
async fn contend(rig: &Rig, managers: usize, tasks: usize, rounds: usize) {
    all_get_it(rig, managers, tasks, rounds).await;
    rig.becomes_clean().await;
}

async fn all_get_it(rig: &Rig, managers: usize, tasks: usize, rounds: usize) {
    let inside = Arc::new(AtomicUsize::new(0));
    let mut contenders = tokio::task::JoinSet::new();
    for _ in 0..managers {
        let locks = rig.manager();
        for _ in 0..tasks {
            let (locks, inside) = (locks.clone(), inside.clone());
            contenders.spawn(async move {
                for _ in 0..rounds {
                    let request = locks.mutex("k").wait(Duration::from_secs(600));
                    let guard = request.acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    tokio::time::sleep(MS).await;
                    assert!(guard.is_held());
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                    guard.release().await.unwrap();
                }
            });
        }
    }
    while let Some(contender) = contenders.join_next().await {
        contender.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn split_votes_resolve() {
    // Each of the contenders that ask at the same time gets the vote of the node that is nearest to it, and no other.
    let rig = Rig::new(3);
    for switch in &rig.switches {
        switch.set(Mode::Crossed(2 * MS));
    }
    let since = Instant::now();
    contend(&rig, 3, 1, 20).await;
    let each = since.elapsed() / (3 * 20);
    assert!(each < 100 * MS, "crossed: {each:?} for each");

    // Every attempt takes a few milliseconds to reach each node, so most attempts that start together collide.
    for nodes in [3, 5] {
        let rig = Rig::new(nodes);
        for switch in &rig.switches {
            switch.set(Mode::Jittery(3 * MS));
        }
        let since = Instant::now();
        contend(&rig, 8, 1, 20).await;
        let each = since.elapsed() / (8 * 20);
        assert!(each < 250 * MS, "{nodes} nodes: {each:?} for each");
    }
}

#[tokio::test(start_paused = true)]
async fn no_two_tasks_hold_the_lock_while_nodes_come_and_go() {
    let rig = Rig::new(5);
    let switches = rig.switches.clone();
    let faults = tokio::spawn(async move {
        loop {
            let (one, other) = (fastrand::usize(..5), fastrand::usize(..5));
            let modes = [
                Mode::Away,
                Mode::Silent,
                Mode::Slow(40 * MS),
                Mode::Jittery(5 * MS),
            ];
            for node in [one, other] {
                switches[node].set(modes[fastrand::usize(..modes.len())]);
            }
            tokio::time::sleep(300 * MS).await;
            switches[one].set(Mode::Up);
            switches[other].set(Mode::Up);
            tokio::time::sleep(50 * MS).await;
        }
    });
    all_get_it(&rig, 4, 3, 25).await;
    // What a node has is given back once it answers again.
    faults.abort();
    let _ = faults.await;
    for switch in rig.switches.iter() {
        switch.set(Mode::Up);
    }
    rig.becomes_clean().await;
}

#[tokio::test(start_paused = true)]
async fn local_waiters_are_handed_the_lock_at_every_node() {
    let rig = Rig::new(3);
    contend(&rig, 1, 10, 10).await;
    let acquires: usize = rig
        .switches
        .iter()
        .map(|switch| switch.acquires.load(Ordering::Relaxed))
        .sum();
    assert!(
        acquires < 3 * 100 / 2,
        "{acquires} acquires for 100 holds at 3 nodes"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_leaves_nothing_at_a_slow_silent_or_absent_node() {
    for mode in [
        Mode::Away,
        Mode::Silent,
        Mode::Slow(30 * MS),
        Mode::Slow(120 * MS),
    ] {
        let rig = Rig::new(3);
        let locks = rig.manager();
        let first = locks.mutex("k").acquire().await.unwrap();
        let successor = tokio::spawn(locks.mutex("k").acquire());
        tokio::time::sleep(5 * MS).await;
        rig.switches[1].set(mode);
        first.release().await.unwrap();
        let successor = successor.await.unwrap().unwrap();
        assert!(successor.is_held());
        // A release overtakes what is still on its way.
        rig.switches[1].set(Mode::Up);
        successor.release().await.unwrap();
        tokio::time::sleep(1_000 * MS).await;
        rig.becomes_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_to_a_shorter_lease_ends_the_longer_lease() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    let request = |lease: u32| locks.mutex("k").lease(lease * MS).acquire();
    let first = request(30_000).await.unwrap();
    let successor = tokio::spawn(request(1_000));
    tokio::time::sleep(5 * MS).await;
    rig.switches[1].set(Mode::Away);
    first.release().await.unwrap();
    let successor = successor.await.unwrap().unwrap();
    // The lease of the successor is over at a node that does not renew it.
    tokio::time::sleep(5_000 * MS).await;
    rig.switches[1].set(Mode::Up);
    successor.release().await.unwrap();
    rig.becomes_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_release_that_overtakes_its_hand_over_leaves_nothing() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    let first = locks.mutex("k").acquire().await.unwrap();
    let successor = tokio::spawn(locks.mutex("k").acquire());
    tokio::time::sleep(5 * MS).await;
    rig.switches[1].set(Mode::Late(100 * MS));
    first.release().await.unwrap();
    successor.await.unwrap().unwrap().release().await.unwrap();
    rig.becomes_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_without_a_majority_is_undone_and_the_heir_asks() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    let first = locks.mutex("k").acquire().await.unwrap();
    let successor = tokio::spawn(locks.mutex("k").wait(Duration::from_secs(20)).acquire());
    tokio::time::sleep(5 * MS).await;
    rig.switches[1].set(Mode::Silent);
    rig.switches[2].set(Mode::Silent);
    drop(first);
    tokio::time::sleep(4_000 * MS).await;
    rig.switches[1].set(Mode::Up);
    rig.switches[2].set(Mode::Up);
    let successor = successor.await.unwrap().unwrap();
    assert!(successor.is_held());
    successor.release().await.unwrap();
    rig.becomes_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_that_all_nodes_refuse_at_first_is_no_loss() {
    // The nodes are asked by the caller and by their errands, in an order that is drawn.
    for _ in 0..20 {
        let rig = Rig::new(3);
        let locks = rig.manager();
        let first = locks.mutex("k").acquire().await.unwrap();
        let successor = tokio::spawn(locks.mutex("k").wait(Duration::from_secs(20)).acquire());
        tokio::time::sleep(5 * MS).await;
        rig.switches
            .iter()
            .for_each(|switch| switch.set(Mode::Away));
        let released = tokio::spawn(first.release());
        tokio::time::sleep(500 * MS).await;
        rig.switches.iter().for_each(|switch| switch.set(Mode::Up));
        released.await.unwrap().unwrap();
        successor.await.unwrap().unwrap().release().await.unwrap();
        rig.becomes_clean().await;
    }
}

async fn woken_after(rig: &Rig, locks: LockManager, other: LockManager) -> Duration {
    let guard = locks.mutex("k").acquire().await.unwrap();
    let waiter = tokio::spawn(async move {
        let guard = other.mutex("k").acquire().await.unwrap();
        (Instant::now(), guard)
    });
    tokio::time::sleep(2_500 * MS).await;
    let since = Instant::now();
    guard.release().await.unwrap();
    let (woken, guard) = waiter.await.unwrap();
    guard.release().await.unwrap();
    rig.becomes_clean().await;
    woken - since
}

#[tokio::test(start_paused = true)]
async fn a_release_wakes_a_waiter_at_once() {
    let rig = Rig::new(3);
    let took = woken_after(&rig, rig.manager(), rig.manager()).await;
    assert!(took < 5 * MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn waiters_do_not_wake_each_other_while_a_hold_lasts() {
    let rig = Rig::new(3);
    let locks = rig.manager();
    rig.switches[2].set(Mode::Away);
    let guard = locks.mutex("k").acquire().await.unwrap();
    rig.switches[2].set(Mode::Up);
    // The third node is free: every attempt takes its vote and gives it back, which sends a message to every waiter.
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let other = rig.manager();
        waiters.spawn(async move {
            other
                .mutex("k")
                .wait(Duration::from_secs(30))
                .acquire()
                .await
        });
    }
    tokio::time::sleep(2_000 * MS).await;
    let before = rig.switches[2].acquires.load(Ordering::Relaxed);
    tokio::time::sleep(10_000 * MS).await;
    let asked = rig.switches[2].acquires.load(Ordering::Relaxed) - before;
    assert!(asked <= 4 * 10 * 3, "{asked} attempts of 4 waiters in 10 s");
    let since = Instant::now();
    guard.release().await.unwrap();
    let first = waiters.join_next().await.unwrap().unwrap().unwrap();
    assert!(since.elapsed() < 300 * MS, "{:?}", since.elapsed());
    drop(first);
}
