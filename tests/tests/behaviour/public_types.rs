//! All public types can be sent, shared and shown. That this compiles is the test.

use std::fmt::Debug;

use lock_runtime::{
    Election, FencingToken, FencingTokenError, HolderInfo, Latch, LatchRequest, Leader,
    LeaderObserver, Lease, LockError, LockGuard, LockInfo, LockManager, LockManagerBuilder,
    LockMode, LockName, LockRequest, Lost, LostReason, Member, MemoryStore, MultiRequest, Outcome,
    PlainRequest, PlainSemaphore, Protect, QuorumNode, Replicas, Scope, Semaphore, StoreError,
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
        Election, FencingToken, FencingTokenError, HolderInfo, Latch, LatchRequest, Leader, LeaderObserver, Lease, LockError, LockGuard,
        LockInfo, LockManager, LockManagerBuilder, LockMode, LockName, LockRequest, Lost, LostReason, Member<'static>, MemoryStore,
        MultiRequest, Outcome<()>,
        PlainRequest, PlainSemaphore, QuorumNode, Replicas, Scope<Body>, Semaphore, StoreError,
    );
    each!(shown:
        Election, FencingToken, FencingTokenError, HolderInfo, Latch, LatchRequest, Leader, LeaderObserver, Lease, LockError, LockGuard,
        LockInfo, LockManager, LockManagerBuilder, LockMode, LockName, LockRequest, Lost, LostReason, Member<'static>, MemoryStore,
        MultiRequest, Outcome<()>,
        Protect<Body>, PlainRequest, PlainSemaphore, QuorumNode, Replicas, Scope<Body>, Semaphore, StoreError,
    );
    each!(cloned:
        Election, FencingToken, FencingTokenError, HolderInfo, Latch, LatchRequest, Lease, LockError, LockInfo, LockManager,
        LockManagerBuilder, LockMode, LockName, LockRequest, Lost, LostReason, Member<'static>, MemoryStore, MultiRequest, Outcome<()>,
        PlainRequest, PlainSemaphore, QuorumNode, Replicas, Semaphore, StoreError,
    );
    each!(an_error: FencingTokenError, LockError, StoreError);
}

/// Every future of the interface can be spawned; none of them is polled here.
#[tokio::test]
async fn futures_are_send() {
    let locks = LockManager::in_memory();
    let request = || locks.mutex("k");
    sent(&LockManager::connect("memory://"));
    sent(&LockManager::builder().connect("memory://"));
    sent(&LockManager::builder().quorum(["memory://"; 3]));
    sent(&request().acquire());
    sent(&request().try_acquire());
    sent(&request().run(|_| async {}));
    sent(&request().run_outcome(|_| async {}));
    sent(&locks.inspect("k"));
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
