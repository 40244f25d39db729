//! Tests of the backend as the layers above see it.

use super::*;
use crate::backend::{
    Backend, FurtherTurns, HandedOver, Holders, Released, Renewal, Renewed, Within,
};
use crate::values::holder::HolderIds;

#[tokio::test]
async fn a_lock_is_taken_renewed_handed_over_and_given_back() {
    let server = TestServer::start().await;
    let backend = connect(&server).await;
    let (ids, key) = (HolderIds::new(), key("order:1"));
    let (a, b, other) = (ids.fresh(), ids.fresh(), ids.fresh());

    let first = granted(backend.acquire(request(&key, a, 5_000)).await.unwrap());
    let busy = backend.acquire(request(&key, other, 5_000)).await.unwrap();
    assert!(
        matches!(busy, Acquired::Busy { left: Some(left), .. } if left <= Duration::from_secs(5))
    );

    let ttl = Some(Ttl::new(Duration::from_secs(60), true).unwrap());
    let batch = [(a, ttl), (a, None), (other, ttl)].map(|(holder, ttl)| Renewal {
        key: key.clone(),
        holder,
        permits: 1,
        ttl,
        waits: false,
    });
    let renewed = backend.renew(&batch, Within::call(CALL)).await.unwrap();
    assert_eq!(renewed, [Renewed::Held, Renewed::Held, Renewed::NotHeld]);
    assert!(server.integer("PTTL lock:order:1").await > 50_000);

    let handed = backend
        .hand_over(a, request(&key, b, 5_000), 0)
        .await
        .unwrap();
    let HandedOver::Done(second, FurtherTurns { others, .. }) = handed else {
        panic!()
    };
    assert!(second.token.unwrap() > first.token.unwrap());
    assert_eq!(others, Some(0));
    assert!(server.integer("PTTL lock:order:1").await <= 5_000);

    let seen = backend.inspect(&key, CALL).await.unwrap().unwrap();
    assert_eq!((seen.holder, seen.count), (Some(b.text()), 1));
    assert_eq!(
        backend.release(hold_ref(&key, a), CALL).await.unwrap(),
        Released::NotHeld
    );
    assert_eq!(
        backend.release(hold_ref(&key, b), CALL).await.unwrap(),
        Released::Done
    );
    assert!(backend.inspect(&key, CALL).await.unwrap().is_none());
    assert!(matches!(
        backend
            .hand_over(b, request(&key, a, 5_000), 0)
            .await
            .unwrap(),
        HandedOver::NotHeld
    ));
    assert_eq!(server.integer("EXISTS lock:order:1").await, 0);
}

#[tokio::test]
async fn a_release_wakes_listeners_and_a_forced_one_also_its_holder() {
    let server = TestServer::start().await;
    let patient = Options {
        call_timeout: CALL,
        ..Options::default()
    };
    let (here, events) = connect_with(&server.url(), patient).await.unwrap();
    let there = connect(&server).await;
    let (ids, key) = (HolderIds::new(), key("k"));
    let (mine, theirs) = (ids.fresh(), ids.fresh());

    granted(there.acquire(request(&key, theirs, 5_000)).await.unwrap());
    let mut listener = here.listen(&key);
    listener.ready().await;
    there.release(hold_ref(&key, theirs), CALL).await.unwrap();
    listener.heard().await;

    granted(here.acquire(request(&key, mine, 5_000)).await.unwrap());
    assert!(there.force_release(&key, CALL).await.unwrap());
    assert!(!there.force_release(&key, CALL).await.unwrap());
    listener.heard().await;
    until("the victim is told", async || {
        let events = events.lock().unwrap();
        let [Event::ForceReleased(Holders::Aliases(aliases))] = events.as_slice() else {
            return false;
        };
        **aliases == [mine.alias(Kind::Mutex)].into()
    })
    .await;
}
