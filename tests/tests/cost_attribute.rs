//! What the attribute costs over the same call by hand, in numbers that do not depend on the machine: allocations
//! and the size of the future. One test, for the allocation counter is the process's.

use lock_runtime::{LockError, LockManager, distributed_lock, key};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// A body of a known size.
async fn body(id: u64) -> Result<u64, LockError> {
    let ballast = [id; 25];
    tokio::task::yield_now().await;
    Ok(ballast.iter().sum())
}

#[distributed_lock(key = "order:{id}", manager = locks)]
async fn annotated(locks: &LockManager, id: u64) -> Result<u64, LockError> {
    body(id).await
}

async fn by_hand(locks: &LockManager, id: u64) -> Result<u64, LockError> {
    let guard = locks.mutex(key!("order:{id}")).acquire().await?;
    guard.protect(body(id)).await.into_result()?
}

#[tokio::test]
async fn the_attribute_allocates_no_more_than_the_call_by_hand_and_adds_little_to_the_future() {
    let locks = LockManager::in_memory();
    for id in 0..100 {
        annotated(&locks, id).await.unwrap();
        by_hand(&locks, id).await.unwrap();
    }
    let profiler = dhat::Profiler::builder().testing().build();
    const CALLS: u64 = 100;
    let mut blocks = Vec::new();
    for run in 0..2 {
        let before = dhat::HeapStats::get().total_blocks;
        for id in 0..CALLS {
            if run == 0 {
                annotated(&locks, id).await.unwrap();
            } else {
                by_hand(&locks, id).await.unwrap();
            }
        }
        blocks.push(dhat::HeapStats::get().total_blocks - before);
    }
    drop(profiler);
    // A few of the watchdog's own may fall into either run.
    assert!(
        blocks[0] <= blocks[1] + CALLS / 10,
        "{} allocations annotated, {} by hand, for {CALLS} calls",
        blocks[0],
        blocks[1]
    );

    let plain = size_of_val(&body(1));
    let whole = size_of_val(&annotated(&locks, 1));
    println!(
        "{} allocations a call; future: body {plain} bytes, annotated {whole}",
        blocks[0] / CALLS
    );
    // The waiting and the running do not overlap: the larger of the two decides.
    let waiting = size_of_val(&locks.mutex("x").acquire());
    assert!(
        whole <= waiting.max(plain) + 640,
        "body {plain} bytes, waiting {waiting}, annotated {whole}"
    );
}
