//! What the trait's comments promise to the core, asked of the store itself.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{SECOND, Store};
use crate::backend::{
    AcquireRequest, Acquired, Backend, Granted, HoldRef, Released, Renewal, Renewed, Within,
};
use crate::values::{HolderId, HolderIds, Key, Kind, LockName, Ttl, clock};

const LEASE: Duration = Duration::from_secs(30);

fn open(store: &impl Store) -> Arc<dyn Backend> {
    store.open(Arc::new(|_| ()))
}

fn key(name: &str) -> Arc<Key> {
    Arc::new(Key::new("lock:", &LockName::from(name), Kind::Mutex).unwrap())
}

fn request(key: &Key, holder: HolderId) -> AcquireRequest<'_> {
    let ttl = Ttl::new(LEASE, true).unwrap();
    AcquireRequest {
        fenced: true,
        ..AcquireRequest::of(HoldRef::one(key, holder), ttl, clock::now(), SECOND)
    }
}

async fn acquired(store: &dyn Backend, key: &Key, holder: HolderId) -> Option<Granted> {
    match store.acquire(request(key, holder)).await.unwrap() {
        Acquired::Granted(granted, _) => Some(granted),
        _ => None,
    }
}

async fn released(store: &dyn Backend, key: &Key, holder: HolderId) -> Released {
    let hold_ref = HoldRef::one(key, holder);
    store.release(hold_ref, SECOND).await.unwrap()
}

fn renewal(key: &Arc<Key>, holder: HolderId, lease: Duration) -> Renewal {
    Renewal {
        key: key.clone(),
        holder,
        permits: 1,
        ttl: Some(Ttl::new(lease, true).unwrap()),
        waits: false,
    }
}

async fn renewed(store: &dyn Backend, batch: &[Renewal]) -> Vec<Renewed> {
    store.renew(batch, Within::call(SECOND)).await.unwrap()
}

async fn left(store: &dyn Backend, key: &Key) -> Option<Duration> {
    store.inspect(key, SECOND).await.unwrap()?.left
}

pub(super) async fn a_request_that_is_sent_twice_has_the_effect_of_once<S: Store>() {
    let opened = S::default();
    let (store, ids, key) = (open(&opened), HolderIds::new(), key("k"));
    let (first, second) = (ids.fresh(), ids.fresh());
    let granted = acquired(&*store, &key, first).await.unwrap();
    // The same token, or a later one: nobody else has had one between.
    let again = acquired(&*store, &key, first).await;
    assert!(again.expect("it has the lock").token >= granted.token);
    assert!(acquired(&*store, &key, second).await.is_none());
    assert_eq!(released(&*store, &key, first).await, Released::Done);
    assert_eq!(released(&*store, &key, first).await, Released::NotHeld);
    assert!(acquired(&*store, &key, second).await.unwrap().token > granted.token);
}

pub(super) async fn what_a_former_holder_sends_late_spares_the_next_one<S: Store>() {
    let opened = S::default();
    let (store, ids, key) = (open(&opened), HolderIds::new(), key("k"));
    let (former, next) = (ids.fresh(), ids.fresh());
    acquired(&*store, &key, former).await.unwrap();
    tokio::time::sleep(LEASE + SECOND).await;
    let late = [renewal(&key, former, LEASE)];
    assert_eq!(renewed(&*store, &late).await, [Renewed::NotHeld]);
    acquired(&*store, &key, next).await.unwrap();
    assert_eq!(renewed(&*store, &late).await, [Renewed::NotHeld]);
    assert_eq!(released(&*store, &key, former).await, Released::NotHeld);
    let held = [renewal(&key, next, LEASE)];
    assert_eq!(renewed(&*store, &held).await, [Renewed::Held]);
}

pub(super) async fn renewals_of_a_batch_are_answered_singly_and_shorten_no_lease<S: Store>() {
    let opened = S::default();
    let (store, ids) = (open(&opened), HolderIds::new());
    let (mine, free, other) = (key("mine"), key("free"), key("other"));
    let holder = ids.fresh();
    acquired(&*store, &mine, holder).await.unwrap();
    acquired(&*store, &other, ids.fresh()).await.unwrap();
    let batch = [&mine, &free, &other, &mine].map(|key| renewal(key, holder, SECOND));
    assert_eq!(
        renewed(&*store, &batch).await,
        [
            Renewed::Held,
            Renewed::NotHeld,
            Renewed::NotHeld,
            Renewed::Held
        ]
    );
    assert!(left(&*store, &mine).await.unwrap() > LEASE - SECOND);
    let longer = [renewal(&mine, holder, 2 * LEASE)];
    assert_eq!(renewed(&*store, &longer).await, [Renewed::Held]);
    assert!(left(&*store, &mine).await.unwrap() > 2 * LEASE - SECOND);
    // Without a lease, it only looks.
    let look = [Renewal {
        ttl: None,
        ..renewal(&mine, holder, LEASE)
    }];
    assert_eq!(renewed(&*store, &look).await, [Renewed::Held]);
}

pub(super) async fn an_acquire_that_is_dropped_half_way_leaves_no_lock<S: Store>() {
    let opened = S::default();
    let (store, ids, key) = (open(&opened), HolderIds::new(), key("k"));
    let dropped = ids.fresh();
    let answered = {
        let acquire = pin!(store.acquire(request(&key, dropped)));
        acquire.poll(&mut Context::from_waker(Waker::noop()))
    };
    if let Poll::Ready(answer) = answered {
        // A store that answers at once leaves nothing half done.
        assert!(matches!(answer.unwrap(), Acquired::Granted(..)));
        assert_eq!(released(&*store, &key, dropped).await, Released::Done);
    }
    store.drained().await;
    assert!(acquired(&*store, &key, ids.fresh()).await.is_some());
}
