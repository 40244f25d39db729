//! One run: tasks that acquire and release until the time is over, or that all wait for it to be over.

use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::peers::{Lock, Peer};
use crate::recorder::Recorder;
use crate::register::Register;
use crate::report::{self, cpu_time};

/// The time for which the same load runs before anything is counted.
const WARM_UP: Duration = Duration::from_secs(1);

/// The time for which the lock is kept in `Wait` after the program has said that the time is over, so that the runner
/// can look at the server. The lock is taken before the tasks want it.
const LOOK: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each task has a key of its own.
    Own,
    /// All tasks want one key.
    Hot,
    /// A holder has the key until the time is over. All tasks wait, and have it once each.
    Wait,
}

pub(crate) struct Session {
    pub(crate) kind: Kind,
    pub(crate) tasks: usize,
    pub(crate) length: Duration,
    /// The time for which each holder keeps the lock.
    pub(crate) hold: Duration,
    pub(crate) register: Option<String>,
}

/// The state that all tasks share.
struct Shared {
    start: Instant,
    end: Instant,
    hold: Duration,
    register: Option<Register>,
    waits: Mutex<Recorder>,
    gaps: Mutex<Recorder>,
}

/// The counts of one task.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) pairs: u64,
    pub(crate) all_pairs: u64,
    pub(crate) overlaps: u64,
    /// The number of counted holds that came after one of another process.
    pub(crate) changes: u64,
}

pub(crate) async fn run<P: Peer>(peer: P, session: Session) -> String {
    let locks: Vec<P::Lock> = (0..session.tasks)
        .map(|task| match session.kind {
            Kind::Own => peer.lock(&format!("bench:own:{task}")),
            Kind::Hot | Kind::Wait => peer.lock("bench:hot"),
        })
        .collect();
    wait_for_the_others().await;

    let mut holder = match session.kind {
        Kind::Wait => {
            let mut lock = peer.lock("bench:hot");
            let guard = lock.acquire().await;
            Some((lock, guard))
        }
        Kind::Own | Kind::Hot => None,
    };
    let start = Instant::now() + WARM_UP;
    let shared = Arc::new(Shared {
        start,
        end: start + session.length,
        hold: session.hold,
        register: session.register.as_deref().map(Register::open),
        waits: Mutex::default(),
        gaps: Mutex::default(),
    });
    let tasks: Vec<_> = locks
        .into_iter()
        .map(|lock| {
            let shared = shared.clone();
            match session.kind {
                Kind::Wait => tokio::spawn(once(lock, shared)),
                Kind::Own | Kind::Hot => tokio::spawn(cycle(lock, shared)),
            }
        })
        .collect();
    tokio::time::sleep_until(shared.start.into()).await;
    let before = cpu_time();
    if holder.is_some() {
        eprintln!("begun");
    }
    tokio::time::sleep_until(shared.end.into()).await;
    let cpu = cpu_time() - before;
    if let Some((mut lock, guard)) = holder.take() {
        eprintln!("over");
        tokio::time::sleep(LOOK).await;
        lock.release(guard).await;
    }
    let mut tallies = Vec::new();
    for task in tasks {
        tallies.push(task.await.expect("a task that does not panic"));
    }
    peer.end().await;
    let (waits, gaps) = (shared.waits.lock().unwrap(), shared.gaps.lock().unwrap());
    report::line(session.length, cpu, &tallies, &waits, &gaps)
}

/// Says that the program is ready, and waits for the next line of the standard input, or its end.
async fn wait_for_the_others() {
    eprintln!("ready");
    let line = tokio::task::spawn_blocking(|| {
        let mut byte = [0];
        while std::io::stdin().read(&mut byte).is_ok_and(|read| read == 1) && byte != *b"\n" {}
    });
    line.await.expect("a line");
}

async fn cycle<L: Lock>(mut lock: L, shared: Arc<Shared>) -> Tally {
    let mut tally = Tally::default();
    loop {
        let asked = Instant::now();
        if asked >= shared.end {
            return tally;
        }
        let guard = lock.acquire().await;
        let acquired = Instant::now();
        let counts = acquired >= shared.start;
        if let Some(register) = &shared.register {
            let (overlap, gap) = register.enter();
            tally.overlaps += u64::from(overlap);
            if let (Some(gap), true) = (gap, counts) {
                shared.gaps.lock().unwrap().add(gap);
                tally.changes += 1;
            }
        }
        if !shared.hold.is_zero() {
            tokio::time::sleep(shared.hold).await;
        }
        if let Some(register) = &shared.register {
            tally.overlaps += u64::from(register.leave());
        }
        lock.release(guard).await;
        let released = Instant::now();
        tally.all_pairs += 1;
        tally.pairs += u64::from(released >= shared.start && released < shared.end);
        if counts {
            shared.waits.lock().unwrap().add(acquired - asked);
        }
    }
}

/// Waits for the holder of the lock, has the lock once, and records how long after the holder's release this was done.
async fn once<L: Lock>(mut lock: L, shared: Arc<Shared>) -> Tally {
    let guard = lock.acquire().await;
    lock.release(guard).await;
    let released = shared.end + LOOK;
    let waited = Instant::now().saturating_duration_since(released);
    shared.waits.lock().unwrap().add(waited);
    Tally {
        pairs: 1,
        all_pairs: 1,
        ..Tally::default()
    }
}
