//! What the site proves: each piece on three connections of their own, as three processes would use it, and at the end
//! the whole, in several processes.

mod processes;
mod sales;
mod shop_cache;
mod sign_in;
mod structures;

use std::sync::Arc;
use std::time::{Duration, Instant};

use examples::Failure;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::error::Error;
use crate::site::{Home, Site};

/// The longest wait for a condition. Only what goes wrong takes it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sites that share nothing but their Redis and their database.
type Sites = [Site; 3];

pub(crate) async fn all(home: &Home, processes: usize) -> Result<(), Failure> {
    let open = async || Site::open(&home.store, &home.database).await;
    let sites: Sites = [open().await?, open().await?, open().await?];
    let outcome = pieces(home, &sites).await;
    for site in &sites {
        site.locks.shutdown().await;
    }
    outcome?;
    processes::prove_all(home, processes).await
}

async fn pieces(home: &Home, sites: &Sites) -> Result<(), Failure> {
    println!("\n1. Sign-in (sign_in.rs).");
    sign_in::prove_all(sites).await?;
    println!("\n2. Pages of shops from the cache (shop_cache.rs, bloom.rs).");
    shop_cache::prove_all(sites).await?;
    println!("\n3. Ids (ids.rs).");
    structures::ids(sites).await?;
    println!("\n4. The flash sale, three ways (sale_locked.rs, sale_fenced.rs, sale_stream.rs).");
    sales::prove_all(home, sites).await?;
    println!(
        "\n5. What needs no lock (likes.rs, follows.rs, feed.rs, nearby.rs, check_ins.rs, visitors.rs)."
    );
    structures::prove_all(sites).await
}

/// Waits for a condition.
async fn until(
    what: &str,
    mut condition: impl AsyncFnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let started = Instant::now();
    while !condition().await? {
        if started.elapsed() > PATIENCE {
            return Err(format!("not within {PATIENCE:?}: {what}").into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Runs `task` so many times at the same moment, over all sites in turn. Returns the answers.
async fn at_once<T: Send + 'static, F>(
    sites: &Sites,
    many: usize,
    task: impl Fn(Site, usize) -> F,
) -> Result<Vec<Result<T, Error>>, Failure>
where
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    let start = Arc::new(Barrier::new(many));
    let mut tasks = JoinSet::new();
    for number in 0..many {
        let (start, task) = (start.clone(), task(sites[number % 3].clone(), number));
        tasks.spawn(async move {
            start.wait().await;
            task.await
        });
    }
    let mut answers = vec![];
    while let Some(answer) = tasks.join_next().await {
        answers.push(answer?);
    }
    Ok(answers)
}

/// Does the same with tasks of which none may fail.
async fn all_at_once<T: Send + 'static, F>(
    sites: &Sites,
    many: usize,
    task: impl Fn(Site, usize) -> F,
) -> Result<Vec<T>, Failure>
where
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    let answers = at_once(sites, many, task).await?;
    Ok(answers.into_iter().collect::<Result<_, _>>()?)
}
