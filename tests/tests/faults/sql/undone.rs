//! Tests of requests whose answer nobody gets, or nobody waits for.

use lock_runtime::LockError;
use tests::faults::{at_each_poll, free_within, poll_times};
use tests::{Sql, Table, answered, eventually};

use super::{LONG, MS, SOON, block, end, scene, scene_with};

tests::on_each_database!(
    an_acquire_whose_answer_is_late_is_undone
    an_acquire_whose_connection_is_cut_is_undone
    an_acquire_is_undone_while_others_wait_for_a_locked_row
    a_request_that_is_dropped_at_any_poll_leaves_nothing_behind
    a_connection_too_late_for_its_request_serves_the_next_one
);

async fn an_acquire_whose_answer_is_late_is_undone<D: Sql>() {
    let (table, pipe, locks, other) = scene::<D>().await;
    free_within(&locks, "k", LONG).await;
    for name in ["k", "a name without a row"] {
        pipe.stall_replies(true);
        let refused = locks.mutex(name).try_acquire().await;
        assert!(
            matches!(refused, Err(LockError::Unavailable { .. })),
            "{refused:?}"
        );
        pipe.stall_replies(false);
        free_within(&other, name, SOON).await;
    }
    end(table, locks, other).await;
}

async fn an_acquire_whose_connection_is_cut_is_undone<D: Sql>() {
    // A call is not to end before the cut, however late the grant is seen.
    let (table, pipe, locks, other) = scene_with::<D>(LONG / 2).await;
    free_within(&locks, "k", LONG).await;
    let (mut cut, mut asked) = (0, 0);
    while cut < 5 {
        asked += 1;
        assert!(asked < 20, "{cut} requests have arrived");
        // The next request must not have a connection that was idle.
        eventually("the store answers", async || {
            locks.inspect("k").await.is_ok()
        })
        .await;
        pipe.stall_replies(true);
        let asking = tokio::spawn(locks.mutex("k").try_acquire());
        eventually("the server has granted a lock, or never will", async || {
            is_granted(&table) || asking.is_finished()
        })
        .await;
        // The connection may be one whose cut was not noticed yet: then the request has not arrived.
        cut += usize::from(is_granted(&table));
        pipe.cut();
        pipe.stall_replies(false);
        let refused = asking.await.unwrap();
        assert!(
            matches!(refused, Err(LockError::Unavailable { .. })),
            "{refused:?}"
        );
        free_within(&other, "k", SOON).await;
    }
    end(table, locks, other).await;
}

fn is_granted<D: Sql>(table: &Table<D>) -> bool {
    let held = "SELECT count(*) FROM";
    let held = format!("{held} {} WHERE holder IS NOT NULL", table.name());
    table.server().query(&held) == ["1"]
}

async fn an_acquire_is_undone_while_others_wait_for_a_locked_row<D: Sql>() {
    let (table, pipe, locks, other) = scene_with::<D>(LONG / 2).await;
    let reader = || locks.read("locked").lease(LONG).wait(LONG);
    reader().acquire().await.unwrap().release().await.unwrap();
    let blocker = block(&table, "lock:locked");
    for _ in 0..4 {
        let given_up = tokio::time::timeout(100 * MS, reader().acquire()).await;
        assert!(given_up.is_err(), "the row is locked");
    }
    let mut rounds = 0;
    loop {
        rounds += 1;
        assert!(rounds < 10, "no request has arrived");
        // This leaves an idle connection to the next request. If that is idle for long, it is looked at first, in vain.
        free_within(&locks, "k", LONG).await;
        pipe.stall_replies(true);
        let asking = tokio::spawn(locks.mutex("k").try_acquire());
        eventually("the server has granted a lock, or never will", async || {
            is_granted(&table) || asking.is_finished()
        })
        .await;
        let granted = is_granted(&table) && !asking.is_finished();
        asking.abort();
        pipe.stall_replies(false);
        if granted {
            assert!(asking.await.unwrap_err().is_cancelled());
            break;
        }
    }
    free_within(&other, "k", SOON).await;
    blocker.commit();
    end(table, locks, other).await;
}

async fn a_request_that_is_dropped_at_any_poll_leaves_nothing_behind<D: Sql>() {
    let (table, _pipe, locks, other) = scene::<D>().await;
    for key in ["mutex", "fair", "write", "read", "semaphore", "by request"] {
        if key == "semaphore" {
            locks.semaphore(key).try_set_permits(1).await.unwrap();
        }
        at_each_poll(async |polls, leave| {
            let request = match key {
                "mutex" => locks.mutex(key),
                "fair" => locks.fair(key),
                "write" => locks.write(key),
                "read" => locks.read(key),
                "semaphore" => locks.semaphore(key).permits(1),
                _ => locks.semaphore(key).in_all(1).permits(1),
            };
            let acquired = poll_times(request.wait(LONG).acquire(), polls, leave).await;
            acquired.is_some()
        })
        .await;
        eventually("nothing is held", async || {
            let info = other.inspect(key).await.unwrap();
            !info.held && info.waiters == 0
        })
        .await;
    }
    locks.semaphore("semaphore").delete().await.unwrap();
    // Its lease ends before it is given back.
    let over = answered(async || {
        let request = locks.semaphore("over").in_all(1).permits(1);
        // The time for a connection that has to be opened follows from the lease.
        request.lease(2_000 * MS).auto_renew(false).acquire().await
    });
    let over = over.await.unwrap();
    over.lost().wait().await;
    eventually("the lease is over", async || {
        !other.inspect("over").await.unwrap().held
    })
    .await;
    assert!(over.release().await.is_err());
    eventually("no number that a request has set is left", async || {
        let set = format!(
            "SELECT count(*) FROM {} WHERE permits IS NOT NULL",
            table.name()
        );
        table.server().query(&set) == ["0"]
    })
    .await;
    end(table, locks, other).await;
}

async fn a_connection_too_late_for_its_request_serves_the_next_one<D: Sql>() {
    let (table, pipe, locks, other) = scene::<D>().await;
    // In a longer time, others are opened, such as that of messages.
    let mut patience = [1, 4, 16, 64, 256]
        .map(|times| times * MS)
        .into_iter()
        .cycle();
    eventually("a connection serves the next request", async || {
        pipe.cut();
        pipe.stall_replies(true);
        let before = pipe.connections();
        eventually("a connection is being opened", async || {
            let asked = tokio::time::timeout(20 * MS, locks.inspect("k")).await;
            assert!(!matches!(asked, Ok(Ok(_))), "no reply arrives");
            pipe.connections() > before
        })
        .await;
        let opened = pipe.connections();
        pipe.stall_replies(false);
        // Nothing tells from outside when the connection is open.
        tokio::time::sleep(patience.next().unwrap()).await;
        let inspected = answered(async || locks.inspect("k").await).await;
        inspected.unwrap();
        pipe.connections() == opened
    })
    .await;
    end(table, locks, other).await;
}
