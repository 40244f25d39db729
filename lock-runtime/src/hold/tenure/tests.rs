//! Tests of which callers get the lock without the store, and of which do not. Time is paused.

use crate::TryAcquire;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{advance, timeout};

use super::{Tenure, TurnAllowance};
use crate::api::guard::LockGuard;
use crate::api::manager::LockManager;
use crate::api::request::LockRequest;
use crate::backend::memory::MemoryStore;
use crate::backend::quorum::tests::flaky::{Mode, Switch, managers};
use crate::backend::{Granted, Renewed, Spare};
use crate::values::clock;
use crate::values::error::{LockError, LostReason};
use crate::values::fence::{FencingToken, TokenRange};
use crate::values::holder::HolderIds;
use crate::values::key::Key;
use crate::values::kind::Kind;
use crate::values::name::LockName;
use crate::values::options::{HoldOptions, Options, Overrides};
use crate::values::ttl::Ttl;

const MICRO: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);
const LEASE: Duration = Duration::from_secs(1);

type Acquire = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

struct Scene {
    locks: LockManager,
    switch: Arc<Switch>,
    /// Always reaches the store.
    other: LockManager,
    store: MemoryStore,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(Options::default())
    }

    fn with(options: Options) -> Scene {
        let (locks, switch, other, store) = managers(options);
        Scene {
            locks,
            switch,
            other,
            store,
        }
    }

    fn request(&self) -> LockRequest {
        self.locks.mutex("k").lease(LEASE).wait_forever()
    }

    /// A hold that was handed over by the store, a moment ago; these requests queue behind it.
    async fn begin<const N: usize>(
        &self,
        first: LockRequest,
        requests: [LockRequest; N],
    ) -> (LockGuard, [Acquire; N]) {
        let guard = self.request().acquire().await.unwrap();
        let mut first = queued(first).await;
        let mut others = Vec::new();
        for request in requests {
            others.push(queued(request).await);
        }
        advance(MICRO).await;
        guard.release().await.unwrap();
        let guard = now(&mut first).await;
        advance(10 * MICRO).await;
        (guard, others.try_into().ok().unwrap())
    }

    /// The same with the usual requests.
    async fn begin_usual<const N: usize>(&self) -> (LockGuard, [Acquire; N]) {
        self.begin(self.request(), [(); N].map(|()| self.request()))
            .await
    }
}

async fn queued(request: LockRequest) -> Acquire {
    let mut acquire: Acquire = Box::pin(request.acquire());
    assert!(timeout(Duration::ZERO, &mut acquire).await.is_err());
    acquire
}

async fn now(acquire: &mut Acquire) -> LockGuard {
    let guard = timeout(Duration::ZERO, acquire).await;
    guard.expect("it has the lock").unwrap()
}

/// The store cannot be reached, so the release is not known to have happened, and the next caller still waits.
async fn the_store_is_asked(scene: &Scene, guard: LockGuard, next: &mut Acquire) {
    scene.switch.set(Mode::Away);
    let released = guard.release().await;
    assert!(
        matches!(released, Err(LockError::Unavailable { .. })),
        "{released:?}"
    );
    assert!(timeout(Duration::ZERO, &mut *next).await.is_err());
    scene.switch.set(Mode::Up);
    let guard = next.await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiters_get_the_lock_in_order_without_the_store() {
    let scene = Scene::new();
    let (mut guard, others) = scene.begin_usual::<20>().await;
    scene.switch.set(Mode::Away);
    for mut next in others {
        let token = guard.fencing_token();
        guard.release().await.unwrap();
        guard = now(&mut next).await;
        assert!(guard.is_held() && guard.fencing_token() > token);
        assert!(matches!(
            scene.other.mutex("k").try_acquire().await.unwrap(),
            TryAcquire::Busy { .. }
        ));
        advance(10 * MICRO).await;
    }
    scene.switch.set(Mode::Up);
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let guard = scene.other.mutex("k").acquire().await.unwrap();
    assert!(guard.fencing_token() > token);
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_passes_the_lock_on_as_well() {
    let scene = Scene::new();
    let (guard, [mut next]) = scene.begin_usual().await;
    scene.switch.set(Mode::Away);
    drop(guard);
    assert!(now(&mut next).await.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_has_left_is_passed_over() {
    let scene = Scene::new();
    let (guard, [second, third, mut fourth]) = scene.begin_usual().await;
    scene.switch.set(Mode::Away);
    drop(second);
    guard.release().await.unwrap();
    // The third caller has the lock, and never took it.
    drop(third);
    assert!(now(&mut fourth).await.is_held());
}

#[tokio::test(start_paused = true)]
async fn the_store_is_asked_every_two_milliseconds() {
    let scene = Scene::new();
    let (guard, [mut next]) = scene.begin_usual().await;
    advance(2 * MS).await;
    the_store_is_asked(&scene, guard, &mut next).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_for_another_lease_goes_through_the_store() {
    for lease in [LEASE + MS, LEASE - MS] {
        let scene = Scene::new();
        let other = scene.request().lease(lease).auto_renew(false);
        let (guard, [mut next]) = scene.begin(scene.request(), [other]).await;
        the_store_is_asked(&scene, guard, &mut next).await;
    }
}

/// Lets each caller hold the lock for `long`. Returns how many of them asked the store: the clock stands still while a
/// memory store answers, so a jump shows a token that it gave.
async fn goes_round(mut guard: LockGuard, others: Vec<Acquire>, long: Duration) -> usize {
    let mut asked = 0;
    for mut next in others {
        let token = guard.fencing_token().unwrap().get();
        advance(long).await;
        guard.release().await.unwrap();
        guard = next_of(&mut next).await;
        asked += usize::from(guard.fencing_token().unwrap().get() != token + 1);
    }
    asked
}

async fn next_of(acquire: &mut Acquire) -> LockGuard {
    timeout(MS / 2, acquire)
        .await
        .expect("it has the lock")
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_request_that_no_tenure_serves_does_not_end_all_tenures() {
    let scene = Scene::new();
    let requests = (0..200).map(|number| match number {
        3 => scene.request().lease(2 * LEASE),
        _ => scene.request(),
    });
    let guard = scene.request().acquire().await.unwrap();
    let mut others = Vec::new();
    for request in requests {
        others.push(queued(request).await);
    }
    // 20 ms in all.
    let asked = goes_round(guard, others, 100 * MICRO).await;
    assert!(asked < 45, "{asked} of 200 asked the store");
}

#[test]
fn a_lease_with_little_time_left_is_not_passed_on() {
    let options = Overrides::default().hold_options("k", &Options::default(), "test");
    let options = HoldOptions {
        fenced: false,
        ..options.unwrap()
    };
    let (ttl, sent_at) = (options.ttl, clock::now());
    let granted = Granted::leased(None, sent_at);
    let far = sent_at + 2 * ttl.duration();
    let allowance = TurnAllowance::new(Spare::Untokened, Some(far));
    let key = Arc::new(Key::new("", &LockName::from("k"), Kind::Mutex).unwrap());
    let holder = HolderIds::new().fresh();
    let hold = Tenure::begin(Weak::new(), key, None, holder, &options, granted, allowance);
    let mut state = hold.tenure().state.lock();
    let last = sent_at + (ttl.trusted() - ttl.least_useful());
    assert!(state.next_turn(ttl, &options, last).is_some());
    assert!(state.next_turn(ttl, &options, last + MS).is_none());
}

#[test]
fn a_reservation_is_the_deadline_until_a_lease_is_confirmed() {
    let options = Overrides::default().hold_options("k", &Options::default(), "test");
    let (options, sent_at) = (options.unwrap(), clock::now());
    let granted = Granted {
        reserved_ms: NonZeroU32::new(900),
        ..Granted::leased(None, sent_at)
    };
    let begin = || {
        let key = Arc::new(Key::new("", &LockName::from("k"), Kind::Mutex).unwrap());
        let holder = HolderIds::new().fresh();
        Tenure::begin(Weak::new(), key, None, holder, &options, granted, None)
    };
    let hold = begin();
    let tenure = hold.tenure();
    assert_eq!(tenure.deadline() - sent_at, 900 * MS);
    assert!(tenure.is_unleased());
    assert_eq!(tenure.paced_by().duration(), 1_000 * MS);
    // An answer that confirms no lease changes nothing.
    tenure.answered(&tenure.renewal(None), Renewed::Held, sent_at);
    assert!(tenure.is_unleased());
    // A renewal by hand for less than the reservation leaves the lease to be asked for.
    let short = Ttl::new(50 * MS, false).unwrap();
    tenure.answered(&tenure.renewal(Some(short)), Renewed::Held, sent_at);
    assert!(tenure.is_unleased());
    assert_eq!(tenure.deadline() - sent_at, 900 * MS);
    let asked = tenure.renewal(Some(options.ttl));
    tenure.answered(&asked, Renewed::Held, sent_at);
    assert!(!tenure.is_unleased());
    assert_eq!(tenure.deadline() - sent_at, options.ttl.trusted());
    assert_eq!(tenure.paced_by(), options.ttl);

    // The request for the lease may be under way when the hold ends: its release is repeated for that long.
    let repeated_until = begin().tenure().leased_until();
    assert!(repeated_until - sent_at >= options.ttl.duration());
    // So may one for a longer lease.
    let (hold, longer) = (
        begin(),
        Ttl::new(2 * options.ttl.duration(), false).unwrap(),
    );
    let _unanswered = hold.tenure().renewal(Some(longer));
    let repeated_until = hold.tenure().leased_until();
    assert!(repeated_until - sent_at >= longer.duration());
}

#[tokio::test(start_paused = true)]
async fn the_store_is_asked_if_the_next_token_is_ahead_of_its_clock() {
    let scene = Scene::new();
    let (mut guard, others) = scene.begin_usual::<12>().await;
    // Ten microseconds have passed.
    let mut passed = 0;
    scene.switch.set(Mode::Away);
    for mut next in others {
        let released = guard.release().await;
        if released.is_err() {
            break;
        }
        guard = now(&mut next).await;
        passed += 1;
    }
    assert_eq!(passed, 10);
}

#[tokio::test(start_paused = true)]
async fn without_tokens_none_is_needed() {
    let scene = Scene::with(Options {
        fencing: false,
        ..Options::default()
    });
    let (guard, [mut next]) = scene.begin_usual().await;
    scene.switch.set(Mode::Away);
    guard.release().await.unwrap();
    assert_eq!(now(&mut next).await.fencing_token(), None);
}

#[tokio::test(start_paused = true)]
async fn after_a_renewal_the_lock_goes_on_without_the_store() {
    let scene = Scene::new();
    let (guard, [mut next]) = scene.begin_usual().await;
    advance(MS).await;
    guard.renew(LEASE).await.unwrap();
    let renewed = guard.remaining();
    scene.switch.set(Mode::Away);
    guard.release().await.unwrap();
    let guard = now(&mut next).await;
    assert_eq!(guard.remaining(), renewed);
}

#[tokio::test(start_paused = true)]
async fn after_a_renewal_for_a_longer_lease_the_store_is_asked() {
    let scene = Scene::new();
    let (guard, [mut next]) = scene.begin_usual().await;
    guard.renew(2 * LEASE).await.unwrap();
    the_store_is_asked(&scene, guard, &mut next).await;
}

#[tokio::test(start_paused = true)]
async fn a_renewal_makes_no_tenure_longer() {
    let scene = Scene::new();
    let (guard, [mut next]) = scene.begin_usual().await;
    advance(2 * MS).await;
    guard.renew(LEASE).await.unwrap();
    the_store_is_asked(&scene, guard, &mut next).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_nested_request_for_a_longer_lease_the_store_is_asked() {
    let scene = Scene::new();
    let (guard, [mut next]) = scene.begin_usual().await;
    let nested = scene.request().lease(2 * LEASE);
    let nested = guard.scope(async { nested.acquire().await }).await;
    nested.unwrap().release().await.unwrap();
    the_store_is_asked(&scene, guard, &mut next).await;
}

#[tokio::test(start_paused = true)]
async fn no_hold_lasts_longer_than_the_store_has_granted() {
    let scene = Scene::new();
    let fixed = || scene.request().auto_renew(false);
    let (guard, [mut next]) = scene.begin(fixed(), [fixed()]).await;
    let granted = guard.remaining();
    advance(MS).await;
    guard.release().await.unwrap();
    let guard = now(&mut next).await;
    assert_eq!(guard.remaining(), granted - MS);
    let lost = guard.lost();
    advance(granted - MS).await;
    assert!(!guard.is_held());
    assert_eq!(lost.await, LostReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn max_hold_counts_from_when_the_caller_got_the_lock() {
    let scene = Scene::new();
    let short = scene.request().max_hold(50 * MS);
    let (guard, [mut next]) = scene.begin(scene.request(), [short]).await;
    advance(MS).await;
    guard.release().await.unwrap();
    let guard = now(&mut next).await;
    assert_eq!(guard.remaining(), 50 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_handed_over_hold_is_renewed_once_its_caller_has_it() {
    let scene = Scene::new();
    let (guard, [mut next]) = scene.begin_usual().await;
    guard.release().await.unwrap();
    let guard = now(&mut next).await;
    tokio::time::sleep(3 * LEASE).await;
    assert!(guard.is_held());

    guard.release().await.unwrap();

    let (guard, [_parked]) = scene.begin_usual().await;
    guard.release().await.unwrap();
    let since = tokio::time::Instant::now();
    let guard = scene.other.mutex("k").wait_forever().acquire().await;
    assert!(guard.unwrap().is_held());
    // The longest nap, and slack.
    assert!(
        since.elapsed() <= 2 * LEASE + LEASE / 2,
        "{:?}",
        since.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn after_a_forced_release_the_next_caller_asks_the_store() {
    let scene = Scene::new();
    let (guard, [mut second, mut third]) = scene.begin_usual().await;
    guard.release().await.unwrap();
    let guard = now(&mut second).await;
    assert!(scene.other.force_release("k").await.unwrap());
    assert!(!guard.is_held());
    let taken = scene.other.mutex("k").try_acquire().await.unwrap();
    let taken = taken.expect("it was free before the waiter was polled");
    assert!(timeout(MS, &mut third).await.is_err());
    taken.release().await.unwrap();
    assert!(third.await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn all_holds_of_a_tenure_share_one_entry_in_the_watchdog() {
    let scene = Scene::new();
    let (mut guard, others) = scene.begin_usual::<5>().await;
    let watch = scene.locks.core().watch.clone();
    for mut next in others {
        guard.release().await.unwrap();
        guard = now(&mut next).await;
        assert_eq!(watch.count(), 1);
        let hold = &guard.handles.held().holds()[0];
        assert!(Arc::ptr_eq(watch.holds()[0].tenure(), hold.tenure()));
        advance(10 * MICRO).await;
    }
    guard.release().await.unwrap();
    assert_eq!(watch.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_forgot_the_lock_is_noticed_after_two_ms() {
    let scene = Scene::new();
    let (guard, [mut second, third]) = scene.begin_usual().await;
    scene.store.clear();
    guard.release().await.unwrap();
    let guard = now(&mut second).await;
    advance(2 * MS).await;
    let released = guard.release().await;
    let lost = matches!(
        released,
        Err(LockError::Lost {
            reason: LostReason::Refused,
            ..
        })
    );
    assert!(lost, "{released:?}");
    assert!(third.await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_became_a_read_is_given_back_to_the_store() {
    let scene = Scene::new();
    let write = || scene.locks.write("k").lease(LEASE).wait_forever();
    let guard = write().acquire().await.unwrap();
    let mut next = queued(write()).await;
    guard.release().await.unwrap();
    let mut guard = now(&mut next).await;
    guard.downgrade().await.unwrap();
    assert!(matches!(
        scene.other.write("k").try_acquire().await.unwrap(),
        TryAcquire::Busy { .. }
    ));
    guard.release().await.unwrap();
    let guard = scene.other.write("k").try_acquire().await.unwrap();
    assert!(matches!(guard, TryAcquire::Acquired(_)));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_to_stay_taken_is_not_passed_on_before() {
    let scene = Scene::new();
    let first = scene.request().min_hold(LEASE / 2);
    let (guard, [mut next]) = scene.begin(first, [scene.request()]).await;
    guard.release().await.unwrap();
    assert!(timeout(LEASE / 2 - MS, &mut next).await.is_err());
    assert!(next.await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_closes_gives_the_lock_back() {
    let scene = Scene::new();
    let (guard, [next]) = scene.begin_usual().await;
    let locks = scene.locks.clone();
    let closing = tokio::spawn(async move { locks.shutdown().await });
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    let refused = next.await;
    assert!(
        matches!(refused, Err(LockError::ShuttingDown { .. })),
        "{refused:?}"
    );
    closing.await.unwrap();
    assert_eq!(scene.store.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn numbers_of_a_fenced_lock_leave_no_gap_among_waiters() {
    let scene = Scene::new();
    let fenced = || scene.locks.fenced("f").lease(LEASE).wait_forever();
    let mut guard = fenced().acquire().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(queued(fenced()).await);
    }
    for (next, number) in waiting.iter_mut().zip(2..) {
        guard.release().await.unwrap();
        guard = now(next).await;
        assert_eq!(guard.fencing_token().unwrap().get(), number);
        scene.switch.set(Mode::Away);
    }
    scene.switch.set(Mode::Up);
    guard.release().await.unwrap();
    assert_eq!(
        fenced()
            .acquire()
            .await
            .unwrap()
            .fencing_token()
            .unwrap()
            .get(),
        7
    );
}

#[tokio::test(start_paused = true)]
async fn a_range_gives_each_token_once_and_none_ahead_of_the_clock() {
    let token = |number| FencingToken::checked(number).unwrap();
    let heard = clock::now();
    let mut range = TokenRange::new(token(100), token(104), Some((101, heard)));
    assert_eq!(range.take(heard), Some(token(101)));
    assert_eq!(range.take(heard), None, "its time is 101");
    assert_eq!(range.take(heard + MICRO), Some(token(102)));
    assert_eq!(range.take(heard + LEASE), Some(token(103)));
    assert_eq!(range.take(heard + LEASE), Some(token(104)));
    assert_eq!(range.take(heard + LEASE), None);
    let mut counted = TokenRange::new(token(1), token(2), None);
    assert_eq!(counted.take(heard), Some(token(2)));
    assert_eq!(counted.take(heard), None);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_an_earlier_turn_is_over_and_not_lost_later() {
    let scene = Scene::new();
    let (guard, [mut next]) = scene.begin_usual().await;
    let (earlier, ended) = (guard.lease(), guard.ended());
    guard.release().await.unwrap();
    let guard = now(&mut next).await;
    assert!(guard.is_held() && !earlier.is_held());
    assert_eq!(earlier.remaining(), Duration::ZERO);
    let told = timeout(Duration::ZERO, ended).await;
    assert!(told.is_ok(), "its turn has ended");
    assert!(scene.other.force_release("k").await.unwrap());
    assert!(!guard.is_held() && guard.lost().is_lost());
    assert!(!earlier.lost().is_lost(), "it was another turn");
}
