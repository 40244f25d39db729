//! Tests of the message that a lock is reserved: when it is believed without a request, and when it is not.

use super::*;
use crate::backend::redis::pubsub::messages::channel;
use crate::backend::{Acquired, Backend, Listen, Released, WithRelease};

/// A holder that has asked once and waits on the list, and the process that it belongs to.
struct Waiting {
    server: TestServer,
    backend: Arc<RedisBackend>,
    key: Arc<Key>,
    /// The holder of the lock.
    first: HolderId,
    holder: HolderId,
    listener: Box<dyn Listen>,
}

impl Waiting {
    async fn new() -> Waiting {
        let server = TestServer::start().await;
        let (backend, key) = (connect(&server).await, key("k"));
        let ids = backend.router.link().check.opening.ids.clone();
        let (first, holder) = (ids.fresh(), ids.fresh());
        granted(backend.acquire(request(&key, first, 60_000)).await.unwrap());
        let list = backend.waiting_list(&key).unwrap();
        let mut listener = list.listen(&key, holder);
        listener.ready().await;
        assert!(list.hears(&key, holder));
        let waiting = Waiting {
            server,
            backend,
            key,
            first,
            holder,
            listener,
        };
        waiting.asks(true).await;
        waiting
    }

    /// Asks for the lock, which is busy.
    async fn asks(&self, looks_for_reservation: bool) {
        let mut request = request(&self.key, self.holder, 60_000);
        request.hold_ref.listed = true;
        request.looks_for_reservation = looks_for_reservation;
        let answer = self.backend.acquire(request).await.unwrap();
        assert!(matches!(answer, Acquired::Busy { .. }), "{answer:?}");
    }

    async fn release(&self, holder: HolderId) -> Released {
        let mut hold_ref = hold_ref(&self.key, holder);
        hold_ref.listed = true;
        self.backend.release(hold_ref, CALL).await.unwrap()
    }

    /// Releases the lock, with another holder of the process for the list. Returns that holder, too.
    async fn releases_with_next(&self) -> (Released, HolderId) {
        let next = self.backend.router.link().check.opening.ids.fresh();
        let with = WithRelease {
            next: Some(&next),
            ..WithRelease::default()
        };
        let mut hold_ref = hold_ref(&self.key, self.first);
        hold_ref.listed = true;
        let released = self.backend.release_with(hold_ref, with, CALL).await;
        (released.unwrap(), next)
    }

    async fn message(&self) -> String {
        let info = self.server.text("INFO server").await;
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        let alias = u128::from_be_bytes(self.holder.alias(Kind::Mutex));
        let ends = self.server.time().await / 1_000 + 1_000;
        format!("{alias:032x}:{}:{ends}:77", run_id.unwrap())
    }

    /// Publishes a message, and waits until it has arrived.
    async fn hears(&mut self, message: &str) {
        let own = format!("{}:{}", channel(&self.key), self.holder.short_client());
        self.server.run(&format!("PUBLISH {own} {message}")).await;
        self.listener.heard().await;
    }

    fn take(&self) -> Option<Granted> {
        let list = self.backend.waiting_list(&self.key).unwrap();
        list.take_reserved(&self.key, self.holder, clock::now())
    }
}

/// Waits until what `prepare` does has made a message that is believed. On a busy machine, one may come too late.
async fn is_believed(prepare: impl AsyncFn(&mut Waiting)) -> (Waiting, Granted) {
    for _ in 0..20 {
        let mut waiting = Waiting::new().await;
        prepare(&mut waiting).await;
        if let Some(granted) = waiting.take() {
            return (waiting, granted);
        }
    }
    panic!("no message was believed");
}

async fn is_not_believed(prepare: impl AsyncFn(&mut Waiting)) {
    let mut waiting = Waiting::new().await;
    prepare(&mut waiting).await;
    assert!(waiting.take().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_grants_the_lock_by_its_message_for_a_second() {
    let (waiting, granted) = is_believed(async |waiting| {
        assert_eq!(waiting.release(waiting.first).await, Released::Done);
        waiting.listener.heard().await;
    })
    .await;
    let token = granted.token.unwrap().get();
    let ms = granted.reserved_ms.unwrap().get();
    assert!((250..=990).contains(&ms), "{ms}");
    let fence = format!("GET {}", waiting.key.fence());
    assert_eq!(waiting.server.text(&fence).await, token.to_string());
    let left = format!("PTTL {}", waiting.key.raw());
    assert!(waiting.server.integer(&left).await <= 1_000);
    // On a busy machine, the reservation may be over. If it is not, it lasts from here on.
    let lasts = format!("PEXPIRE {} 60000", waiting.key.raw());
    if waiting.server.integer(&lasts).await == 1 {
        let holds = format!("HEXISTS {} {}", waiting.key.raw(), waiting.holder.text());
        assert_eq!(waiting.server.integer(&holds).await, 1);
        assert_eq!(waiting.release(waiting.holder).await, Released::Done);
    }
}

/// A release that puts the next holder of its process on the list is that holder's first request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_after_a_release_that_listed_the_holder_is_believed() {
    is_believed(async |waiting| {
        let (released, next) = waiting.releases_with_next().await;
        assert_eq!(released, Released::DoneAndListed);
        waiting.listener.heard().await;
        // On a busy machine, the reservation may be over: then no message follows.
        if waiting.release(waiting.holder).await == Released::Done {
            waiting.listener.heard().await;
        }
        waiting.holder = next;
    })
    .await;
}

/// Nothing is known of a holder that did not go to the list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_no_release_put_on_the_list_believes_no_message() {
    is_not_believed(async |waiting| {
        waiting.release(waiting.holder).await;
        let (released, next) = waiting.releases_with_next().await;
        assert_eq!(released, Released::Done);
        waiting.holder = next;
        let message = waiting.message().await;
        waiting.hears(&message).await;
        assert_eq!(waiting.backend.router.topics.reservations.count(), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_not_believed_before_the_answer_to_the_request() {
    is_not_believed(async |waiting| {
        let (router, holder) = (&waiting.backend.router, waiting.holder.alias(Kind::Mutex));
        let live = router.link().live().unwrap();
        router
            .topics
            .reservations
            .expect(holder, &live, clock::now());
        let message = waiting.message().await;
        waiting.hears(&message).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_believed_once() {
    let (mut waiting, granted) = is_believed(async |waiting| {
        let message = waiting.message().await;
        waiting.hears(&message).await;
    })
    .await;
    assert_eq!(granted.token.map(|token| token.get()), Some(77));
    assert!(waiting.take().is_none());
    let again = waiting.message().await;
    waiting.hears(&again).await;
    assert!(waiting.take().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_another_server_or_holder_is_not_believed() {
    is_not_believed(async |waiting| {
        let message = waiting.message().await;
        let (holder, rest) = message.split_once(':').unwrap();
        let (_run_id, rest) = rest.split_once(':').unwrap();
        waiting
            .hears(&format!("{holder}:{}:{rest}", "0".repeat(40)))
            .await;
    })
    .await;
    is_not_believed(async |waiting| {
        let message = waiting.message().await;
        let (_holder, rest) = message.split_once(':').unwrap();
        waiting.hears(&format!("{}:{rest}", "0".repeat(32))).await;
    })
    .await;
    is_not_believed(async |waiting| waiting.hears("0").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_another_request_or_an_undo_no_message_is_believed() {
    for before in [true, false] {
        for undone in [true, false] {
            is_not_believed(async |waiting| {
                let message = waiting.message().await;
                if before {
                    waiting.hears(&message).await;
                }
                if undone {
                    assert_eq!(waiting.release(waiting.holder).await, Released::NotHeld);
                } else {
                    waiting.asks(false).await;
                }
                if !before {
                    waiting.hears(&message).await;
                }
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_another_command_connection_no_message_is_believed() {
    for before in [true, false] {
        is_not_believed(async |waiting| {
            let message = waiting.message().await;
            if before {
                waiting.hears(&message).await;
            }
            let live = waiting.backend.router.link().live().unwrap();
            waiting.server.run("CLIENT KILL TYPE normal").await;
            until("there is another connection", async || {
                let now = waiting.backend.router.link().live();
                now.is_some_and(|now| !now.is_one_with(&live))
            })
            .await;
            if !before {
                waiting.hears(&message).await;
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_looks_for_no_reservation_believes_none() {
    is_not_believed(async |waiting| {
        // As a set whose replicas confirm grants asks.
        waiting.holder = waiting.backend.router.link().check.opening.ids.fresh();
        waiting.asks(false).await;
        let message = waiting.message().await;
        waiting.hears(&message).await;
    })
    .await;
}

#[tokio::test]
async fn a_runtime_with_one_worker_believes_no_message() {
    is_not_believed(async |waiting| {
        let message = waiting.message().await;
        waiting.hears(&message).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_known_of_a_place_is_forgotten_with_it() {
    let waiting = Waiting::new().await;
    assert_eq!(waiting.backend.router.topics.reservations.count(), 1);
    waiting.release(waiting.holder).await;
    assert_eq!(waiting.backend.router.topics.reservations.count(), 0);
}
