//! The time in which a lock that somebody waits for has no holder: from the release by one manager to the hold of the
//! other.

use std::sync::Arc;
use std::time::Duration;

use lock_runtime::{LockGuard, LockManager};
use tests::{Mariadb, Postgres, RedisServer, Server};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::database::Database;
use crate::session::Session;
use crate::{quick_or, server};

/// The length of a hold, which is long enough for the other one to be waiting again.
const HOLD: Duration = Duration::from_millis(5);
/// The longest wait, which is enough for a store whose waiters only ask now and then.
const PATIENCE: Duration = Duration::from_secs(300);

/// Measures all stores in one run.
pub(crate) async fn run() {
    let changes = quick_or(20, 300);
    println!(
        "from the release by one manager to the hold of the other, {changes} changes of hands"
    );
    on_database::<Postgres>(changes).await;
    on_database::<Mariadb>(changes).await;
    let redis = RedisServer::start();
    let redis = [manager(&redis.url()).await, manager(&redis.url()).await];
    print("Redis", "lock-runtime", race(redis, changes).await);
}

async fn on_database<D: Database>(changes: usize) {
    let server = server::<D>();
    let ours = async |query: &str| {
        let url = format!("{}{query}", server.url());
        race([manager(&url).await, manager(&url).await], changes).await
    };
    print(D::TITLE, "lock-runtime", ours("").await);
    if let Some(query) = D::WITHOUT_MESSAGES {
        print(
            D::TITLE,
            &format!("lock-runtime, {}", &query[1..]),
            ours(query).await,
        );
    }
    let theirs = [advisory(&server).await, advisory(&server).await];
    print(
        D::TITLE,
        "advisory lock, which waits",
        race(theirs, changes).await,
    );
}

fn print(store: &str, name: &str, mut gaps: Vec<Duration>) {
    gaps.sort();
    let at = |share: usize| gaps[gaps.len() * share / 100].as_secs_f64() * 1e3;
    println!(
        "  {store:11} {name:30} p50 {:8.2} ms  p99 {:8.2} ms",
        at(50),
        at(99)
    );
}

/// A manager or a session that takes the lock and gives it back, again and again.
enum Racer {
    Ours(LockManager, Option<LockGuard>),
    Theirs(Session, [&'static str; 2]),
}

async fn manager(url: &str) -> Racer {
    let builder = LockManager::builder();
    let builder = match url.starts_with("redis") {
        true => builder,
        false => builder.ensure_schema(true),
    };
    Racer::Ours(builder.connect(url).await.unwrap(), None)
}

async fn advisory<D: Database>(server: &Server<D>) -> Racer {
    Racer::Theirs(D::session(server).await, D::ADVISORY_WAIT)
}

impl Racer {
    async fn take(&mut self) {
        match self {
            Racer::Ours(locks, guard) => {
                let request = locks.mutex("hot").wait(PATIENCE);
                *guard = Some(request.acquire().await.unwrap());
            }
            Racer::Theirs(session, [take, _]) => {
                session.ask(take, &[]).await;
            }
        }
    }

    async fn give(&mut self) {
        match self {
            Racer::Ours(_, guard) => guard.take().unwrap().release().await.unwrap(),
            Racer::Theirs(session, [_, give]) => {
                session.ask(give, &[]).await;
            }
        }
    }
}

/// The racer that gave the lock back last, and when, and how long the lock had no holder at each change of hands.
type Last = Arc<Mutex<(Option<(usize, Instant)>, Vec<Duration>)>>;

/// Returns how long the lock had no holder, for each time that it changed hands.
async fn race(racers: [Racer; 2], changes: usize) -> Vec<Duration> {
    let last = Last::default();
    let mut tasks = Vec::new();
    for (number, mut racer) in racers.into_iter().enumerate() {
        let last = last.clone();
        tasks.push(tokio::spawn(async move {
            loop {
                racer.take().await;
                let goes_on = {
                    let (before, gaps) = &mut *last.lock().await;
                    if let Some((_, at)) = before.filter(|(from, _)| *from != number) {
                        gaps.push(at.elapsed());
                    }
                    gaps.len() < changes
                };
                tokio::time::sleep(HOLD).await;
                last.lock().await.0 = Some((number, Instant::now()));
                racer.give().await;
                if !goes_on {
                    return;
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    std::mem::take(&mut last.lock().await.1)
}
