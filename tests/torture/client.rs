//! A contending process. It takes locks, touches the resource under them, and says on its output what it did.
//!
//! `torture client TOPOLOGY TASKS URL RESOURCE_URL NUMBER SEED (checked|unchecked)`
//!
//! It ends on the line `stop`, or when its input closes. `log.rs` reads what it says.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use fastrand::Rng;
use lock_runtime::{LockError, LockManager, Replicas};
use tests::quorum::LONGEST_LEASE;
use tokio::task::JoinSet;

use crate::LEASE;
use crate::keys::Workload;
use crate::resource::RedisResource;
use crate::site::Topology;
use tests::judge::names::{PERMITS, client_name};
use tests::workload::{How, Task, WAIT, set_permits};

pub(crate) async fn run(
    workload: Workload,
    url: &str,
    resource: &str,
    number: usize,
    seed: u64,
    checked: bool,
) {
    let stop = Arc::new(AtomicBool::new(false));
    listen(stop.clone());
    let builder = LockManager::builder().lease(LEASE);
    let locks = match workload.topology {
        Topology::Quorum => {
            let nodes: Vec<&str> = url.split(' ').collect();
            builder.longest_lease(LONGEST_LEASE).quorum(nodes).await
        }
        Topology::Guarded => {
            let replicas = Replicas::majority().renewals(true);
            builder.replicas(replicas).connect(url).await
        }
        _ => builder.connect(url).await,
    };
    let locks = locks.expect("connect to the lock server");
    let resource = RedisResource::connect(resource, checked).await;
    let works = workload.tasks_of(number);
    for work in works.iter().filter(|work| work.how == How::Permits) {
        set_permits(&locks, work.keys[0]).await;
    }
    println!("ready");
    let mut tasks = JoinSet::new();
    for (task, work) in works.into_iter().enumerate() {
        let mut task = Task {
            work,
            locks: locks.clone(),
            resource: resource.clone(),
            rng: Rng::with_seed(seed.wrapping_add(task as u64)),
            holder: format!("{}.{task}", client_name(number)),
            previous: Vec::new(),
            stop: stop.clone(),
            said: String::new(),
            tries: false,
        };
        let stop = stop.clone();
        tasks.spawn(async move {
            for cycle in 0.. {
                if stop.load(SeqCst) {
                    return;
                }
                task.cycle(cycle).await;
                let mut out = std::io::stdout().lock();
                out.write_all(task.said.as_bytes())
                    .and_then(|()| out.flush())
                    .expect("the harness listens");
                task.said.clear();
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("a task of the client");
    }
    locks.shutdown().await;
    println!("stopped");
}

/// Takes all permits of a semaphore at once, and gives them back.
pub(crate) async fn take_all_permits(url: &str, key: &str) -> Result<(), LockError> {
    let locks = LockManager::builder().lease(LEASE).connect(url).await?;
    // The store may have forgotten their number.
    set_permits(&locks, key).await;
    let all = u32::try_from(PERMITS).unwrap_or(u32::MAX);
    let all = locks.semaphore(key).permits(all).wait(WAIT);
    all.acquire().await?.release().await?;
    locks.shutdown().await;
    Ok(())
}

fn listen(stop: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            stop.store(line == "stop", SeqCst);
        }
        std::process::exit(3);
    });
}
