//! One of the contending processes: takes locks, touches the resource under them, and says on its output what it did.
//!
//! `torture client TOPOLOGY URL RESOURCE_URL NAME SEED (checked|unchecked)`; ends on the line `stop`, or when its input closes.
//! What it says is read by `log.rs`.

use std::fmt::Write as _;
use std::io::{BufRead, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use fastrand::Rng;
use lock_runtime::{LockError, LockGuard, LockManager};
use tests::faults::{LEAVES, poll_times};
use tests::history::{History, now_ns};
use tests::quorum::LONGEST_LEASE;
use tokio::task::JoinSet;

use crate::resource::Resource;
use crate::site::Topology;
use crate::{LEASE, keys};

const MS: Duration = Duration::from_millis(1);
const WAIT: Duration = Duration::from_secs(2);

pub(crate) async fn run(
    topology: Topology,
    url: &str,
    resource: &str,
    name: &str,
    seed: u64,
    checked: bool,
) {
    let stop = Arc::new(AtomicBool::new(false));
    listen(stop.clone());
    let builder = LockManager::builder().lease(LEASE);
    let locks = match topology {
        Topology::Quorum => {
            let nodes: Vec<&str> = url.split(' ').collect();
            builder.longest_lease(LONGEST_LEASE).quorum(nodes).await
        }
        Topology::Single | Topology::Sentinel => builder.connect(url).await,
    };
    let locks = locks.expect("connect to the lock server");
    let resource = Resource::connect(resource, checked).await;
    println!("ready");
    let mut tasks = JoinSet::new();
    for (number, key) in keys::of_tasks(topology).into_iter().enumerate() {
        let mut task = Task {
            locks: locks.clone(),
            resource: resource.clone(),
            rng: Rng::with_seed(seed.wrapping_add(number as u64)),
            holder: format!("{name}.{number}"),
            previous: None,
            stop: stop.clone(),
            said: String::new(),
        };
        let stop = stop.clone();
        tasks.spawn(async move {
            for cycle in 0.. {
                if stop.load(SeqCst) {
                    return;
                }
                task.cycle(key, cycle).await;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("a task of the client");
    }
    locks.shutdown().await;
    println!("stopped");
}

fn listen(stop: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            stop.store(line == "stop", SeqCst);
        }
        std::process::exit(3);
    });
}

struct Task {
    locks: LockManager,
    resource: Resource,
    rng: Rng,
    holder: String,
    /// Holder and token of this task's hold before: its writes come too late now.
    previous: Option<(String, u64)>,
    said: String,
    stop: Arc<AtomicBool>,
}

impl Task {
    async fn cycle(&mut self, key: &'static str, cycle: u64) {
        let holder = format!("{}.{cycle}", self.holder);
        match self.acquire(key).await {
            None => self.say(format_args!("none dropped")),
            Some(Err(error)) => {
                self.say(format_args!("none {}", kind(&error)));
                // A refusal can be immediate: no busy loop then.
                tokio::time::sleep(5 * MS).await;
            }
            Some(Ok(guard)) => self.hold(key, &holder, guard).await,
        }
        let mut out = std::io::stdout().lock();
        out.write_all(self.said.as_bytes())
            .and_then(|()| out.flush())
            .expect("the harness listens");
        self.said.clear();
    }

    fn say(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.said, "{line}");
    }

    async fn acquire(&mut self, key: &str) -> Option<Result<LockGuard, LockError>> {
        let request = match keys::is_fair(key) {
            true => self.locks.fair(key),
            false => self.locks.mutex(key),
        };
        let acquiring = request.wait(WAIT).acquire();
        if self.rng.u8(..20) > 0 {
            return Some(acquiring.await);
        }
        let leave = LEAVES[self.rng.usize(..2)];
        poll_times(acquiring, self.rng.usize(..6), leave).await
    }

    async fn hold(&mut self, key: &str, holder: &str, guard: LockGuard) {
        let history = History::new();
        let token = guard.fencing_token().map(|token| token.get());
        let mut hold = history.begin(key, holder, token);
        let token = token.unwrap_or(0);
        let entered = self.enter(key, holder, token, || guard.is_held()).await;
        if let (Some(_), Some((holder, token))) = (entered, self.previous.take()) {
            self.enter(key, &holder, token, || false).await;
        }
        self.previous = (token > 0).then(|| (holder.to_owned(), token));
        let mut held = self.work(key, || hold.seen(|| guard.is_held())).await;
        if let (true, Some(value)) = (held, entered) {
            self.resource.set(key, value + 1).await;
            held = hold.seen(|| guard.is_held());
            if !held {
                // It may have been written after the lease: nobody can say what the counter is worth now.
                self.say(format_args!("doubt {key}"));
            }
        }
        hold.end_as_seen();
        for hold in history.holds() {
            self.say(format_args!("{hold}"));
        }
        let lost = match self.leave(guard).await {
            Err(error @ LockError::Lost { .. }) => {
                self.say(format_args!("end {}", kind(&error)));
                true
            }
            Err(error) => {
                self.say(format_args!("end {}", kind(&error)));
                !held
            }
            Ok(()) => {
                self.say(format_args!("end ok"));
                !held
            }
        };
        if lost {
            self.say(format_args!("loss {key} {holder} {}", now_ns()));
        }
    }

    /// Holds the lock for a while; whether it was certain to the end.
    async fn work(&mut self, key: &str, mut is_held: impl FnMut() -> bool) -> bool {
        if !keys::is_long(key) {
            for _ in 0..self.rng.u8(..4) {
                tokio::task::yield_now().await;
            }
            return is_held();
        }
        // Beyond one lease now and then, so that only renewals keep it.
        for _ in 0..self.rng.u32(20..300) {
            tokio::time::sleep(5 * MS).await;
            if !is_held() {
                return false;
            }
            if self.stop.load(SeqCst) {
                break;
            }
        }
        true
    }

    /// Shows the register the token; the counter's value if it was accepted.
    async fn enter(
        &mut self,
        key: &str,
        holder: &str,
        token: u64,
        is_held: impl Fn() -> bool,
    ) -> Option<u64> {
        let entered = self.resource.enter(key, token).await;
        let sure = u8::from(is_held());
        let (number, accepted) = (entered.number, u8::from(entered.accepted));
        self.say(format_args!(
            "write {key} {holder} {token} {number} {accepted} {sure}"
        ));
        entered.accepted.then_some(entered.value)
    }

    /// Gives the lock back in one of the ways there are.
    async fn leave(&mut self, guard: LockGuard) -> Result<(), LockError> {
        match self.rng.u8(..8) {
            0 => {
                drop(guard);
                Ok(())
            }
            1 => poll_times(guard.release(), 1, LEAVES[self.rng.usize(..2)])
                .await
                .unwrap_or(Ok(())),
            _ => guard.release().await,
        }
    }
}

fn kind(error: &LockError) -> String {
    match error {
        LockError::Busy { .. } => "busy".to_owned(),
        LockError::Unavailable { .. } => "unavailable".to_owned(),
        LockError::Lost { .. } => "lost".to_owned(),
        LockError::Denied { .. } => "denied".to_owned(),
        other => format!("{other:?}"),
    }
}
