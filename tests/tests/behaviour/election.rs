//! Tests of leader election: one candidate leads at a time, others follow, observers see it, and a shutdown costs no
//! time.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use lock_runtime::{Election, Leader, LockError, LockManager, LostReason};
use rustix::process::Signal;
use tests::stops::{STOP, STOP_OF_A_GRANT, in_one_of_a_few_rounds, shut_down};
use tests::{History, RedisServer, Store, Worker, left_of};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);
/// The limit for what only a hang takes.
const SOON: Duration = Duration::from_secs(120);

/// Starts a task that leads for ever and sends its name at the beginning of each of its terms.
fn candidate(
    locks: &LockManager,
    name: &'static str,
    elected: &mpsc::UnboundedSender<&'static str>,
) -> JoinHandle<Result<(), LockError>> {
    let (election, elected) = (locks.elect("scheduler"), elected.clone());
    tokio::spawn(async move {
        let body = async |_| {
            elected.send(name).unwrap();
            pending::<()>().await
        };
        election.lead(body).await
    })
}

/// Gives up the lead. What a message gives lasts for a second at first, and a busy machine may stop the process for longer.
async fn resigns(leader: Leader) {
    let resigned = leader.resign().await;
    let expected = matches!(resigned, Ok(()) | Err(LockError::Lost { .. }));
    assert!(expected, "{resigned:?}");
}

tests::suite! {
    also on a quorum:
    async fn candidates_of_several_processes_lead_one_at_a_time(store: &mut Store) {
        // What a message gives lasts for a second at first, and a busy machine may stop the process for longer. A body whose
        // lock is lost is dropped.
        in_one_of_a_few_rounds(STOP_OF_A_GRANT, "more than two of 15 terms are lost", async || {
            let history = Arc::new(History::new());
            let mut candidates = JoinSet::new();
            for candidate in 0..3 {
                let (locks, history) = (store.manager().await, history.clone());
                candidates.spawn(async move {
                    let election = locks.elect("scheduler");
                    let mut lost = 0;
                    for _ in 0..5 {
                        let term = election.lead(async |lease| {
                            let token = lease.fencing_token().map(|token| token.get());
                            let mut hold = history.begin("scheduler", format_args!("{candidate}"), token);
                            tokio::task::yield_now().await;
                            hold.seen(|| lease.is_held());
                            hold.end_as_seen();
                        });
                        match term.await {
                            Ok(()) => {}
                            Err(LockError::Lost { .. }) => lost += 1,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    lost
                });
            }
            let lost: usize = candidates.join_all().await.into_iter().sum();
            assert!(history.len() + lost >= 3 * 5, "{} and {lost} that were lost", history.len());
            history.assert_exclusive();
            lost <= 2
        }).await;
    }

    async fn the_next_candidate_leads_as_soon_as_the_leader_resigns(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.told().await);
        let leader = locks.elect("scheduler").label("scheduler").campaign().await.unwrap();
        assert_eq!((leader.name(), leader.is_leader()), ("scheduler", true));
        let token = leader.fencing_token();
        let mut next = tokio::spawn(other.elect("scheduler").campaign());
        // The other candidate asks and learns that somebody leads. Then it sleeps until it is told.
        assert!(timeout(SECOND * 3 / 2, &mut next).await.is_err());
        let resigned = Instant::now();
        leader.resign().await.unwrap();
        let next = next.await.unwrap().unwrap();
        assert!(resigned.elapsed() < store.within(SECOND), "{:?}", resigned.elapsed());
        // What a message gives lasts for a second at first, and a busy machine may stop the process for longer.
        assert!(next.is_leader() || resigned.elapsed() >= SECOND * 9 / 10, "{:?}", resigned.elapsed());
        assert_eq!(next.fencing_token().is_none(), store.is_quorum());
        assert!(store.is_quorum() || next.fencing_token() > token);
        drop(next);
    }

    async fn a_deposed_leader_is_told_and_leads_again_after_the_next_one(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        let operator = store.manager().await;
        let leader = locks.elect("scheduler").campaign().await.unwrap();
        let (elected, mut terms) = mpsc::unbounded_channel();
        let ada = candidate(&other, "ada", &elected);
        assert!(operator.force_release("scheduler").await.unwrap());
        assert_eq!(leader.lost().wait().await, LostReason::ForceReleased);
        assert!(!leader.is_leader());
        assert_eq!(timeout(SOON, terms.recv()).await.unwrap(), Some("ada"));
        assert!(matches!(leader.resign().await, Err(LockError::Lost { .. })));

        let bob = candidate(&locks, "bob", &elected);
        assert!(timeout(SECOND, terms.recv()).await.is_err());
        let mut leads = "ada";
        // Ada pauses after her loss, so Bob, who waits, comes first, unless his task is not run for that long.
        while leads != "bob" {
            assert!(operator.force_release("scheduler").await.unwrap());
            leads = timeout(SOON, terms.recv()).await.unwrap().unwrap();
        }
        bob.abort();
        assert_eq!(timeout(SOON, terms.recv()).await.unwrap(), Some("ada"));
        ada.abort();
    }

    async fn an_observer_sees_every_leader_that_stays(store: &mut Store) {
        let (locks, other) = (store.manager().await, store.manager().await);
        // PostgreSQL tells only those who wait for the lock.
        let watching = match store {
            Store::Postgres(_) => store.manager().await,
            _ => store.told().await,
        };
        let mut observer = watching.elect("scheduler").observe();
        assert_eq!(observer.changed().await.unwrap(), None);
        for locks in [&locks, &other, &locks] {
            let leader = locks.elect("scheduler").campaign().await.unwrap();
            let seen = timeout(SOON, observer.changed()).await.unwrap().unwrap();
            assert_eq!(seen.unwrap().manager_id(), locks.id());
            assert!(timeout(SECOND / 2, observer.changed()).await.is_err());
            let resigned = Instant::now();
            leader.resign().await.unwrap();
            let seen = timeout(SOON, observer.changed()).await.unwrap();
            assert_eq!(seen.unwrap(), None);
            assert!(resigned.elapsed() < store.within(2 * SECOND), "{:?}", resigned.elapsed());
        }
        let lease = store.renewing(3 * SECOND);
        let leader = locks.elect("scheduler").lease(lease).campaign().await.unwrap();
        let seen = timeout(SOON, observer.changed()).await.unwrap().unwrap();
        assert_eq!(seen.unwrap().manager_id(), locks.id());
        let left = async || left_of(&other, "scheduler").await;
        tokio::select! {
            change = observer.changed() => panic!("a renewal is not a change: {change:?}"),
            () = store.until_renewed(lease, left) => {}
        }
        leader.resign().await.unwrap();
    }

    async fn a_leader_that_ends_on_closing_costs_a_shutdown_no_time(store: &mut Store) {
        let other = store.told().await;
        // A shutdown waits for a release for two seconds at most, and a machine that stands still may need longer.
        in_one_of_a_few_rounds(Duration::ZERO, "it is given back", async || {
            let locks = store.connect(tests::builder().shutdown_grace(SOON)).await;
            let (elected, mut terms) = mpsc::unbounded_channel();
            let election = locks.elect("scheduler");
            let leading = tokio::spawn(async move {
                let body = async |lease: lock_runtime::Lease| {
                    elected.send(()).unwrap();
                    lease.closing().await;
                    lease.is_held()
                };
                election.lead(body).await
            });
            terms.recv().await.unwrap();
            let next = tokio::spawn(other.elect("scheduler").campaign());
            let began = Instant::now();
            let in_time = shut_down(&locks).await;
            let led = leading.await.unwrap();
            if !in_time {
                next.abort();
                other.force_release("scheduler").await.unwrap();
                return false;
            }
            let next = timeout(SOON, next).await.unwrap().unwrap().unwrap();
            assert!(began.elapsed() < store.within(SECOND), "{:?}", began.elapsed());
            assert!(led.unwrap(), "it led to its end");
            resigns(next).await;
            true
        }).await;
    }
}

const HOLDER: &str = env!("CARGO_BIN_EXE_holder");

/// Starts a process that leads, and returns it with the election as another process sees it, which has to be told of
/// its end.
async fn leading_process(server: &RedisServer, lease: &str) -> (Worker, Election) {
    let worker = Worker::start(HOLDER, &["lead", &server.url(), "scheduler", lease]);
    worker.expect_line("leads");
    let told = tests::builder().longest_nap(SOON * 60);
    let locks = told.connect(&server.url()).await.unwrap();
    (worker, locks.elect("scheduler"))
}

#[tokio::test]
async fn sigterm_ends_a_leading_process_at_once_and_the_next_leads() {
    // A shutdown waits for a release for two seconds at most, and a machine that stands still may need longer.
    in_one_of_a_few_rounds(STOP, "it ends in good order", async || {
        let server = RedisServer::start();
        // Nobody is elected because this lease is over, and nothing ends because the grace of a shutdown is.
        let (mut worker, election) = leading_process(&server, "600000").await;
        let next = tokio::spawn(election.campaign());
        worker.signal(Signal::TERM);
        let ended = worker.line();
        if ended.as_deref() != Some("ended Ok(\"in good order\")") {
            println!("{ended:?}");
            next.abort();
            return false;
        }
        assert_eq!(worker.line(), None);
        resigns(timeout(SOON, next).await.unwrap().unwrap().unwrap()).await;
        tests::eventually("it has ended", async || worker.has_ended()).await;
        true
    })
    .await;
}

#[tokio::test]
async fn another_process_leads_after_the_lease_of_a_killed_leader() {
    let server = RedisServer::start();
    let (mut worker, election) = leading_process(&server, "15000").await;
    let mut observer = election.observe();
    let seen = observer.changed().await.unwrap();
    assert!(seen.is_some());
    worker.kill9();
    let killed = Instant::now();
    let left = Duration::from_millis(server.pttl("lock:scheduler").try_into().unwrap());
    assert!(left <= 15 * SECOND, "{left:?}");
    assert_eq!(
        timeout(SOON, observer.changed()).await.unwrap().unwrap(),
        None
    );
    let took = killed.elapsed();
    assert!(took >= left, "{took:?} {left:?}");
    let next = timeout(SOON, election.campaign()).await.unwrap();
    next.unwrap().resign().await.unwrap();
}
