//! All public types can be sent, shared and shown. That this compiles is the test.

use std::fmt::Debug;

use lock_runtime::{
    Election, FencingToken, FencingTokenError, Health, HealthState, HolderInfo, Ids, Latch,
    LatchRequest, Leader, LeaderObserver, Lease, LockConfig, LockError, LockGuard, LockInfo,
    LockKind, LockManager, LockManagerBuilder, LockMode, LockName, LockRequest, Login, Lost,
    LostReason, MemberLock, MemoryStore, MultiRequest, NodeHealth, Outcome, PlainSemaphore,
    PlainSemaphoreRequest, ProtectFuture, QuorumNode, RedisServer, Replicas, ScopeFuture,
    Semaphore, ShutdownCause, StoreError, StoreKind, TryAcquire, WaiterCap, blocking,
};

type Body = std::future::Ready<()>;

fn shown<T: Debug>() {}
fn sent_and_shared<T: Send + Sync + 'static>() {}
fn cloned<T: Clone>() {}
fn an_error<T: std::error::Error + Send + Sync + 'static>() {}
fn sent<T: Send>(_: &T) {}

macro_rules! each {
    ($check:ident: $($type:ty),+ $(,)?) => { $($check::<$type>();)+ };
}

#[test]
fn public_types_are_send_sync_and_debug() {
    each!(sent_and_shared:
        Election, FencingToken, FencingTokenError, Health, HealthState, HolderInfo, Ids, Latch, LatchRequest, Leader, LeaderObserver, Lease, LockError, LockGuard, LockInfo, LockKind, LockManager, LockManagerBuilder, LockMode, LockName, LockRequest, Lost, LostReason, MemberLock<'static>, MemoryStore, MultiRequest, NodeHealth, Outcome<()>, PlainSemaphore, PlainSemaphoreRequest, QuorumNode, Replicas, ScopeFuture<Body>, Semaphore, ShutdownCause, StoreError, StoreKind, TryAcquire, WaiterCap,
    );
    each!(shown:
        Election, FencingToken, FencingTokenError, Health, HealthState, HolderInfo, Ids, Latch, LatchRequest, Leader, LeaderObserver, Lease, LockError, LockGuard, LockInfo, LockKind, LockManager, LockManagerBuilder, LockMode, LockName, LockRequest, Lost, LostReason, MemberLock<'static>, MemoryStore, MultiRequest, NodeHealth, Outcome<()>, PlainSemaphore, PlainSemaphoreRequest, ProtectFuture<Body>, QuorumNode, Replicas, ScopeFuture<Body>, Semaphore, ShutdownCause, StoreError, StoreKind, TryAcquire, WaiterCap,
    );
    each!(cloned:
        Election, FencingToken, FencingTokenError, Health, HealthState, HolderInfo, Ids, Latch, LatchRequest, Lease, LockError, LockInfo, LockKind, LockManager, LockManagerBuilder, LockMode, LockName, LockRequest, Lost, LostReason, MemberLock<'static>, MemoryStore, MultiRequest, NodeHealth, Outcome<()>, PlainSemaphore, PlainSemaphoreRequest, QuorumNode, Replicas, Semaphore, ShutdownCause, StoreError, StoreKind, WaiterCap,
    );
    each!(an_error: FencingTokenError, LockError, StoreError);
    each!(sent_and_shared: LockConfig, Login, RedisServer, blocking::LockManager, blocking::LockGuard,
        blocking::Ids, blocking::LockRequest, blocking::MultiRequest, blocking::Semaphore);
    each!(shown: LockConfig, Login, RedisServer, blocking::LockManager, blocking::LockGuard,
        blocking::Ids, blocking::LockRequest, blocking::MultiRequest, blocking::Semaphore);
    each!(cloned: LockConfig, Login, RedisServer, blocking::Ids, blocking::LockManager, blocking::LockRequest,
        blocking::MultiRequest, blocking::Semaphore);
}

/// Checks that every future of the interface can be spawned. The futures that are checked are not polled.
#[tokio::test]
async fn futures_are_send() {
    let locks = LockManager::in_memory();
    let request = || locks.mutex("k");
    sent(&LockManager::connect("memory://"));
    sent(&LockManager::builder().connect("memory://"));
    sent(&LockManager::builder().quorum(["memory://"; 3]));
    let client = redis::Client::open("redis://nowhere.invalid/").unwrap();
    sent(&LockManager::builder().connect_redis(&client));
    sent(&LockConfig::default().connect());
    sent(&request().acquire());
    sent(&request().try_acquire());
    sent(&request().run(|_| async {}));
    sent(&request().run_outcome(|_| async {}));
    sent(&locks.inspect("k"));
    sent(&locks.health());
    sent(&locks.force_release("k"));
    sent(&locks.shutdown());
    let semaphore = locks.semaphore("s");
    sent(&semaphore.permits(1).acquire());
    sent(&semaphore.try_set_permits(1));
    sent(&semaphore.set_permits(1));
    sent(&semaphore.available());
    sent(&semaphore.add_permits(1));
    sent(&semaphore.delete());
    let plain = locks.plain_semaphore("s");
    sent(&plain.permits(1).wait_forever().acquire());
    sent(&plain.permits(1).try_acquire());
    sent(&plain.release(1));
    let ids = locks.ids("i").shuffled();
    sent(&ids.next());
    sent(&ids.take(1));
    let latch = locks.latch("l");
    sent(&latch.try_set_count(1));
    sent(&latch.count_down());
    sent(&latch.opened().wait_forever());
    sent(&latch.opened().into_future());
    let election = locks.elect("e");
    sent(&election.campaign());
    sent(&election.lead(async |_| {}));
    sent(&election.observe().changed());
    let leader = election.campaign().await.unwrap();
    sent(&leader.closing());
    sent(&leader.resign());
    let mut guard = request().acquire().await.unwrap();
    sent(&guard.closing());
    sent(&guard.downgrade());
    sent(&guard.renew(std::time::Duration::from_secs(30)));
    sent(&guard.lost().wait());
    sent(&guard.lost());
    sent(&IntoFuture::into_future(guard.lost()));
    sent(&guard.ended());
    sent(&guard.scope(std::future::ready(())));
    sent(&guard.lease().scope(std::future::ready(())));
    sent(&guard.protect(std::future::ready(())));
    sent(&request().acquire().await.unwrap().release());
}
