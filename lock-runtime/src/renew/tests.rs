//! Tests of the watchdog when clocks part, and when requests cross. Time is paused.

mod left_out;

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Once, Weak};
use std::time::Duration;

use super::answers::{BatchOutcome, renew};
use super::schedule::{Batch, MOST};
use super::{TICK, Watch};
use crate::api::manager::{LockManager, events_of};
use crate::api::request::LockRequest;
use crate::backend::kit::outage::Outage;
use crate::backend::memory::{MemoryBackend, MemoryStore};
use crate::backend::quorum::tests::flaky::{Bug, Flaky, Mode, Switch, managers};
use crate::backend::{Fault, Granted, Renewed};
use crate::hold::tests::granted;
use crate::hold::{Hold, Tenure};
use crate::observe;
use crate::values::clock;
use crate::values::count::Count;
use crate::values::error::LostReason;
use crate::values::holder::HolderIds;
use crate::values::key::Key;
use crate::values::kind::Kind;
use crate::values::name::LockName;
use crate::values::options::{HoldOptions, Options, Overrides};

const SECOND: Duration = Duration::from_secs(1);

thread_local! {
    /// Counts the entries of the schedule that were looked at on this thread.
    pub(super) static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
}

fn hold_options(lease: Duration) -> HoldOptions {
    let overrides = Overrides {
        lease: Some(lease),
        ..Overrides::default()
    };
    overrides
        .hold_options("a", &Options::default(), "test")
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn after_a_suspension_a_hold_is_renewed_within_its_lease() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("a").lease(30 * SECOND).acquire().await.unwrap();
    tokio::time::sleep(SECOND).await;
    clock::suspend(24 * SECOND);
    // Noticed within a tick.
    tokio::time::sleep(2 * SECOND).await;
    assert!(guard.remaining() > 25 * SECOND, "{:?}", guard.remaining());
    tokio::time::sleep(300 * SECOND).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_counts_after_a_suspension_despite_a_longer_lease() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("a").lease(30 * SECOND).acquire().await.unwrap();
    guard.renew(600 * SECOND).await.unwrap();
    clock::suspend(580 * SECOND);
    tokio::time::sleep(60 * SECOND).await;
    assert!(guard.is_held(), "{:?}", guard.lost());
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_read_with_a_long_lease_is_renewed_like_one_of_30_s() {
    let (locks, switch, _other, _store) = managers(Options::default());
    let renewals = async |request: LockRequest| {
        let before = switch.renewals.load(Ordering::Relaxed);
        let guard = request.lease(600 * SECOND).acquire().await.unwrap();
        tokio::time::sleep(60 * SECOND).await;
        guard.release().await.unwrap();
        switch.renewals.load(Ordering::Relaxed) - before
    };
    let read = renewals(locks.read("r")).await;
    assert!((5..=8).contains(&read), "{read}");
    assert_eq!(renewals(locks.write("w")).await, 0);
    // So is a write that becomes one.
    let write = locks.write("w").lease(600 * SECOND);
    let mut guard = write.acquire().await.unwrap();
    guard.downgrade().await.unwrap();
    let before = switch.renewals.load(Ordering::Relaxed);
    tokio::time::sleep(60 * SECOND).await;
    let downgraded = switch.renewals.load(Ordering::Relaxed) - before;
    assert!((5..=8).contains(&downgraded), "{downgraded}");
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_after_a_suspension_is_renewed_in_time() {
    let (locks, switch, _other, _store) = managers(Options::default());
    let _awake = locks
        .mutex("b")
        .lease(600 * SECOND)
        .acquire()
        .await
        .unwrap();
    switch.set(Mode::Slow(SECOND * 3 / 4));
    let asks = tokio::spawn(locks.mutex("a").lease(30 * SECOND).acquire());
    tokio::time::sleep(SECOND / 10).await;
    clock::suspend(20 * SECOND);
    let guard = asks.await.unwrap().unwrap();
    tokio::time::sleep(12 * SECOND).await;
    assert!(guard.is_held());
}

/// In a runtime of several workers, whose clock cannot be paused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_hold_after_a_pause_is_looked_at_within_a_tick() {
    let locks = LockManager::in_memory();
    let planned = || locks.core().watch.schedule.lock().planned;
    locks
        .mutex("a")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    while planned().is_some() {
        tokio::time::sleep(SECOND / 100).await;
    }
    let _guard = locks
        .mutex("a")
        .lease(600 * SECOND)
        .acquire()
        .await
        .unwrap();
    let planned = planned().expect("a hold is watched");
    assert!(planned <= tokio::time::Instant::now() + TICK);
}

#[tokio::test(start_paused = true)]
async fn after_a_suspension_a_fixed_lease_ends_on_time() {
    let locks = LockManager::in_memory();
    let request = locks.mutex("a").lease(30 * SECOND).auto_renew(false);
    let guard = request.acquire().await.unwrap();
    tokio::time::sleep(SECOND).await;
    clock::suspend(20 * SECOND);
    let began = tokio::time::Instant::now();
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    let told = began.elapsed();
    assert!(told > 8 * SECOND && told < 9 * SECOND, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_in_a_suspension_is_lost_within_a_tick() {
    let locks = LockManager::in_memory();
    let guard = locks.mutex("a").lease(30 * SECOND).acquire().await.unwrap();
    clock::suspend(60 * SECOND);
    let began = tokio::time::Instant::now();
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    assert!(began.elapsed() <= SECOND * 11 / 10, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_renewing_runtime_ends_guards_elsewhere() {
    let home = std::thread::spawn(|| {
        let home = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let guard = home.block_on(LockManager::in_memory().mutex("a").acquire());
        drop(home);
        guard.unwrap()
    });
    let guard = home.join().unwrap();
    let told = tokio::time::timeout(SECOND, guard.lost().wait()).await;
    assert_eq!(told.unwrap(), LostReason::Shutdown);
}

#[tokio::test(start_paused = true)]
async fn a_longer_lease_is_requested_beside_a_renewal_under_way() {
    let key = Key::new("", &LockName::from("a"), Kind::Mutex).unwrap();
    let (sent_at, holder) = (clock::now(), HolderIds::new().fresh());
    let hold = granted(Arc::new(key), None, holder, &hold_options(SECOND), sent_at);
    let watch = Arc::new(Watch::default());
    let backend = MemoryBackend::new(MemoryStore::new(), events_of(&watch));
    watch.insert(hold.tenure(), sent_at);
    tokio::time::advance(SECOND / 3).await;
    let collect = || watch.collect(&backend, 2 * SECOND, Duration::ZERO);
    let Batch { place, tenures, .. } = collect().remove(0);
    let outcome = BatchOutcome {
        store: "test",
        place,
        batch: vec![hold.tenure().due_renewal(clock::now()).unwrap()],
        tenures,
        answers: Ok(vec![Renewed::Held]),
        sent_at: clock::now(),
    };
    assert_eq!(
        hold.share(hold_options(60 * SECOND), Kind::Mutex).unwrap(),
        Some(true)
    );
    watch.look_now(hold.tenure());
    watch.answered(&outcome);
    let next = collect();
    assert_eq!(
        next.len(),
        1,
        "it is due now, not after a third of the new lease"
    );
    assert_eq!(
        next[0].tenures[0].due_renewal(clock::now()).unwrap().ttl,
        Some(hold_options(60 * SECOND).ttl)
    );
}

#[tokio::test(start_paused = true)]
async fn until_a_longer_lease_is_confirmed_the_old_one_sets_the_pace() {
    let key = Key::new("", &LockName::from("a"), Kind::Mutex).unwrap();
    let (sent_at, holder) = (clock::now(), HolderIds::new().fresh());
    let hold = granted(
        Arc::new(key),
        None,
        holder,
        &hold_options(2 * SECOND),
        sent_at,
    );
    let watch = Arc::new(Watch::default());
    let backend = MemoryBackend::new(MemoryStore::new(), events_of(&watch));
    watch.insert(hold.tenure(), sent_at);
    let longer = hold.share(hold_options(600 * SECOND), Kind::Mutex);
    assert_eq!(longer.unwrap(), Some(true));
    watch.look_now(hold.tenure());
    let requests = || watch.collect(&backend, 2 * SECOND, Duration::ZERO).len();
    assert_eq!(requests(), 1);
    // There is no answer, and the store believes in two seconds.
    for _ in 0..2 {
        tokio::time::advance(SECOND / 2).await;
        assert_eq!(requests(), 1, "another request is sent beside it");
    }
    let asked = hold.tenure().due_renewal(clock::now()).unwrap();
    hold.tenure().answered(&asked, Renewed::Held, clock::now());
    assert_eq!(hold.tenure().paced_by(), hold_options(600 * SECOND).ttl);
}

#[tokio::test(start_paused = true)]
async fn an_answer_about_a_write_that_became_a_read_confirms_nothing() {
    let (locks, ..) = managers(Options::default());
    let mut guard = locks.write("a").acquire().await.unwrap();
    let watch = &locks.core().watch;
    let tenure = watch.holds()[0].tenure().clone();
    let (asked, sent_at) = (tenure.renewal(Some(tenure.ttl())), clock::now());
    guard.downgrade().await.unwrap();
    let answer = tenure.answered(&asked, Renewed::NotHeld, sent_at);
    assert_eq!(answer, Renewed::Unknown);
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_crosses_its_release_is_not_refused() {
    let (locks, ..) = managers(Options::default());
    let guard = locks.mutex("a").acquire().await.unwrap();
    let tenure = locks.core().watch.holds()[0].tenure().clone();
    let (asked, sent_at) = (tenure.renewal(Some(tenure.ttl())), clock::now());
    guard.release().await.unwrap();
    let answer = tenure.answered(&asked, Renewed::NotHeld, sent_at);
    assert_eq!(answer, Renewed::Unknown);
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_reserved_lock_is_asked_for_soon_and_again() {
    let key = Key::new("", &LockName::from("a"), Kind::Mutex).unwrap();
    let (sent_at, holder) = (clock::now(), HolderIds::new().fresh());
    let (options, ms) = (hold_options(30 * SECOND), SECOND / 1_000);
    let granted = Granted {
        reserved_ms: NonZeroU32::new(900),
        ..Granted::leased(None, sent_at)
    };
    let hold = Tenure::begin(
        Weak::new(),
        Arc::new(key),
        None,
        holder,
        &options,
        granted,
        None,
    );
    hold.add_renewer();
    let watch = Arc::new(Watch::default());
    let backend = MemoryBackend::new(MemoryStore::new(), events_of(&watch));
    watch.insert(hold.tenure(), sent_at);
    let requests = || watch.collect(&backend, 2 * SECOND, Duration::ZERO).len();
    tokio::time::advance(14 * ms).await;
    assert_eq!(requests(), 0, "a short hold sends no request");
    tokio::time::advance(ms).await;
    assert_eq!(requests(), 1);
    let renewal = hold.tenure().due_renewal(clock::now()).unwrap();
    assert_eq!(renewal.ttl, Some(options.ttl));
    // There is no answer.
    tokio::time::advance(150 * ms).await;
    assert_eq!(requests(), 0);
    tokio::time::advance(20 * ms).await;
    assert_eq!(requests(), 1, "a second request has time for its answer");
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_survives_a_panic_in_a_renewal_or_in_its_loop() {
    for bug in [Bug::InCall, Bug::InLoop] {
        let switch = Arc::new(Switch::default());
        let locks = on_a_flaky_store(&switch);
        let renewed = locks.mutex("a").lease(3 * SECOND).acquire().await.unwrap();
        let request = locks.mutex("b").lease(3 * SECOND).auto_renew(false);
        let fixed = request.acquire().await.unwrap();
        *switch.bug.lock().unwrap() = Some(bug);
        assert_eq!(fixed.lost().wait().await, LostReason::Expired, "{bug:?}");
        assert_eq!(*switch.bug.lock().unwrap(), None, "it has panicked");
        tokio::time::sleep(10 * SECOND).await;
        assert!(renewed.is_held(), "{bug:?}");
    }
}

/// The log of this thread: one line for each warning or error.
#[derive(Clone)]
struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    panics: bool,
}

impl Default for Log {
    /// Sets a log for the whole process first, which is asked about each event. Without it, if another thread meets an event
    /// first at this moment, tracing may remember that nobody wants the event.
    fn default() -> Log {
        static WHOLE_PROCESS: Once = Once::new();
        let log = || Log {
            lines: Arc::default(),
            panics: false,
        };
        WHOLE_PROCESS.call_once(|| _ = tracing::subscriber::set_global_default(log()));
        log()
    }
}

impl Log {
    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

struct Line(String);

impl tracing::field::Visit for Line {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{field}={value:?} "));
    }
}

impl tracing::Subscriber for Log {
    fn register_callsite(&self, _: &tracing::Metadata<'_>) -> tracing::subscriber::Interest {
        tracing::subscriber::Interest::sometimes()
    }
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        let of_ours = metadata.target().starts_with("lock_runtime");
        metadata.is_event() && of_ours && *metadata.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.lines.lock().unwrap().push(line.0);
        assert!(!self.panics, "a log of the test panics, as it should");
    }
}

fn on_a_flaky_store(switch: &Arc<Switch>) -> LockManager {
    LockManager::build(Options::default(), |events| {
        Arc::new(Flaky::new(&MemoryStore::new(), switch, events, 0))
    })
}

#[tokio::test(start_paused = true)]
async fn answers_that_take_a_third_of_a_lease_keep_the_holds() {
    for lease in [SECOND, 30 * SECOND, 3_600 * SECOND] {
        let switch = Arc::new(Switch::default());
        let locks = on_a_flaky_store(&switch);
        let guard = locks.mutex("a").lease(lease).acquire().await.unwrap();
        let request = locks.mutex("b").lease(lease).auto_renew(false);
        let fixed = request.acquire().await.unwrap();
        switch.set(Mode::Slow(lease / 6));
        for tenth in 0..100 {
            tokio::time::sleep(lease / 10).await;
            assert!(guard.is_held(), "of {lease:?}");
            // The answers are old when they come, and the deadline counts from when they were asked for.
            let renewed = tenth > 6;
            assert!(
                !renewed || guard.remaining() < lease / 3 * 2,
                "{:?}",
                guard.remaining()
            );
        }
        assert!(!fixed.is_held(), "what nobody extends ends all the same");
    }
}

/// A second request beside each would double the work, and so on.
#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_keep_up_renews_later_and_loses_nothing() {
    let switch = Arc::new(Switch::default());
    let locks = on_a_flaky_store(&switch);
    let mut guards = Vec::new();
    for number in 0..1_280 {
        let request = locks.mutex(format!("{number}")).lease(SECOND);
        guards.push(request.acquire().await.unwrap());
        if number % 2 == 0 {
            tokio::time::sleep(SECOND / 1_000).await;
        }
    }
    // To renew all of them takes 450 ms; a third of the lease is 333 ms.
    switch.set(Mode::Busy(SECOND * 45 / 100 / 1_280));
    for tenth in 0..300 {
        tokio::time::sleep(SECOND / 10).await;
        let lost = guards.iter().filter(|guard| !guard.is_held()).count();
        assert_eq!(lost, 0, "after {tenth} tenths of a second");
    }
}

#[tokio::test(start_paused = true)]
async fn replies_later_than_the_call_timeout_renew_a_default_lease() {
    let switch = Arc::new(Switch::default());
    let locks = on_a_flaky_store(&switch);
    let guard = locks.mutex("a").acquire().await.unwrap();
    switch.set(Mode::Slow(SECOND * 11 / 10));
    for _ in 0..300 {
        tokio::time::sleep(SECOND).await;
        assert!(guard.is_held());
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_an_answer_does_not_delay_the_next() {
    let switch = Arc::new(Switch::default());
    let locks = on_a_flaky_store(&switch);
    let guard = locks.mutex("a").lease(30 * SECOND).acquire().await.unwrap();
    // The first renewal is swallowed, 9 to 10 s after the grant.
    switch.set(Mode::Silent);
    tokio::time::sleep(SECOND * 21 / 2).await;
    switch.set(Mode::Up);
    assert!(guard.remaining() < 20 * SECOND);
    tokio::time::sleep(2 * SECOND).await;
    assert!(guard.remaining() > 27 * SECOND, "{:?}", guard.remaining());
    // The first renewal fails when nobody needs it any more, and changes nothing.
    tokio::time::sleep(60 * SECOND).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_gets_few_requests_and_its_holds_end_in_time() {
    let switch = Arc::new(Switch::default());
    let locks = on_a_flaky_store(&switch);
    let guard = locks.mutex("a").lease(30 * SECOND).acquire().await.unwrap();
    switch.set(Mode::Silent);
    let began = tokio::time::Instant::now();
    assert_eq!(guard.lost().wait().await, LostReason::Expired);
    assert!(began.elapsed() <= 30 * SECOND, "{:?}", began.elapsed());
    let asked = switch.renewals.load(Ordering::Relaxed);
    assert!((2..=5).contains(&asked), "{asked} times");
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_is_renewed_in_time_beside_a_long_one() {
    let switch = Arc::new(Switch::default());
    let locks = on_a_flaky_store(&switch);
    let _long = locks.mutex("a").lease(30 * SECOND).acquire().await.unwrap();
    tokio::time::sleep(SECOND / 100).await;
    let _short = locks.mutex("b").lease(SECOND).acquire().await.unwrap();
    tokio::time::sleep(SECOND / 5).await;
    assert_eq!(switch.renewals.load(Ordering::Relaxed), 0);
    tokio::time::sleep(SECOND / 5).await;
    assert_eq!(switch.renewals.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_losses_are_two_log_lines_a_second_apart() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let locks = LockManager::in_memory();
    let mut guards = Vec::new();
    for key in 0..10_000 {
        let request = locks.mutex(key.to_string()).lease(SECOND);
        guards.push(request.auto_renew(false).acquire().await.unwrap());
    }
    let refused = locks.mutex("b").lease(SECOND).acquire().await.unwrap();
    locks.force_release("b").await.unwrap();
    tokio::time::sleep(4 * SECOND).await;
    assert!(guards.iter().all(|guard| !guard.is_held()) && !refused.is_held());
    let lines = log.lines();
    let [forced, first, more] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    assert!(forced.contains("lock=\"b\"") && forced.contains("force"));
    assert!(first.contains("lock=") && first.contains("lease ran out"));
    assert!(more.contains("holds=9999") && more.contains("lease ran out"));
}

#[test]
fn losses_in_a_later_runtime_are_two_log_lines_as_well() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let locks = LockManager::in_memory();
    for runtime in 1..=2 {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let home = builder.enable_all().start_paused(true).build().unwrap();
        home.block_on(async {
            let mut guards = Vec::new();
            for key in 0..10 {
                let request = locks.mutex(key.to_string()).lease(SECOND);
                guards.push(request.auto_renew(false).acquire().await.unwrap());
            }
            tokio::time::sleep(4 * SECOND).await;
            assert!(guards.iter().all(|guard| !guard.is_held()));
        });
        // Its end ends the watchdog.
        drop(home);
        let lines = log.lines();
        assert_eq!(lines.len(), 2 * runtime, "{lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_an_offer_whose_lease_ran_out_is_called_unused() {
    let (log, watch) = (Log::default(), Watch::default());
    let _logging = tracing::subscriber::set_default(log.clone());
    let reasons = [LostReason::ForceReleased, LostReason::Expired];
    for (hold, reason) in spread(&watch, 2, 30 * SECOND).iter().zip(reasons) {
        assert!(hold.offer(Arc::<Count>::default().enter()).is_ok());
        watch.lose(hold.tenure(), reason);
    }
    let lines = log.lines();
    let [forced, unused] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    assert!(forced.contains("force") && !forced.contains("unused"));
    assert!(unused.contains("unused"));
}

#[tokio::test]
async fn a_log_that_panics_ends_no_task() {
    let log = Log {
        panics: true,
        ..Log::default()
    };
    let _logging = tracing::subscriber::set_default(log.clone());
    let fault = Fault::unknown("planned");
    observe::release_failed("a", &crate::LockError::unavailable("a", "planned"));
    observe::undo_refused("a", &fault);
    observe::refused_for_now("a", &fault);
    Outage::new("the connection").notice_loss("server", &fault);
    assert_eq!(log.lines().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_a_log_line_a_second_and_each_hold_counts_once() {
    let log = Log::default();
    let switch = Arc::new(Switch::default());
    let locks = on_a_flaky_store(&switch);
    let mut guards = Vec::new();
    for key in 0..2_000 {
        let request = locks.mutex(key.to_string()).lease(30 * SECOND);
        guards.push(request.acquire().await.unwrap());
    }
    let _logging = tracing::subscriber::set_default(log.clone());
    let told_of = |line: &String| {
        let (_, number) = line.split_once("holds=")?;
        let digits = number.split(|digit: char| !digit.is_ascii_digit()).next()?;
        digits.parse::<usize>().ok()
    };
    let mut before = 0;
    for outage in 1..=2 {
        switch.set(Mode::Away);
        tokio::time::sleep(20 * SECOND).await;
        let lines = log.lines();
        let told: usize = lines.iter().filter_map(told_of).sum();
        assert_eq!(told, outage * guards.len(), "{lines:?}");
        assert!(lines.len() - before <= 15, "{lines:?}");
        before = lines.len();
        switch.set(Mode::Up);
        // A renewal that succeeds ends the trouble: the next outage is logged again.
        tokio::time::sleep(5 * SECOND).await;
        assert!(guards.iter().all(|guard| guard.remaining() > 19 * SECOND));
    }
}

#[tokio::test(start_paused = true)]
async fn failed_releases_of_bodies_in_an_outage_log_a_line_a_second() {
    let log = Log::default();
    let switch = Arc::new(Switch::default());
    let locks = on_a_flaky_store(&switch);
    let bodies: Vec<_> = (0..100)
        .map(|key| {
            let request = locks.mutex(key.to_string()).label("upload");
            let body = request.run(async |_| tokio::time::sleep(SECOND).await);
            tokio::spawn(body)
        })
        .collect();
    tokio::time::sleep(SECOND / 2).await;
    let _logging = tracing::subscriber::set_default(log.clone());
    switch.set(Mode::Away);
    for body in bodies {
        body.await.unwrap().unwrap();
    }
    tokio::time::sleep(2 * SECOND).await;
    let lines = log.lines();
    let [first, more] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    assert!(first.contains("release failed") && first.contains("upload"));
    assert!(more.contains("holds=99"), "{more}");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_the_store_goes_on_not_confirming_is_told_of_once() {
    let (log, watch) = (Log::default(), Watch::default());
    let _logging = tracing::subscriber::set_default(log.clone());
    let holds = spread(&watch, 1, 30 * SECOND);
    let tenure = holds[0].tenure();
    for _ in 0..3 {
        let sent_at = clock::now();
        watch.answered(&BatchOutcome {
            store: "quorum",
            place: 0,
            tenures: vec![tenure.clone()],
            batch: vec![tenure.due_renewal(sent_at).unwrap()],
            answers: Ok(vec![Renewed::Unknown]),
            sent_at,
        });
        tokio::time::sleep(3 * SECOND).await;
    }
    let lines = log.lines();
    assert!(
        matches!(&lines[..], [one] if one.contains("holds=1")),
        "{lines:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watchdog_that_keeps_panicking_restarts_and_logs_less() {
    let log = Log::default();
    let switch = Arc::new(Switch::default());
    let locks = on_a_flaky_store(&switch);
    let guard = locks
        .mutex("a")
        .lease(300 * SECOND)
        .acquire()
        .await
        .unwrap();
    let _logging = tracing::subscriber::set_default(log.clone());
    *switch.bug.lock().unwrap() = Some(Bug::Always);
    tokio::time::sleep(60 * SECOND).await;
    let bites = switch.bites.load(Ordering::Relaxed);
    assert!((30..=150).contains(&bites), "{bites} restarts in a minute");
    let lines = log.lines();
    assert!((5..=8).contains(&lines.len()), "{lines:?}");
    *switch.bug.lock().unwrap() = None;
    tokio::time::sleep(200 * SECOND).await;
    assert!(guard.remaining() > 150 * SECOND, "it is renewed as before");
}

#[tokio::test(start_paused = true)]
async fn a_late_nested_request_still_renews_a_fixed_lease() {
    // In the last third, before the last check, and just before the end.
    for late in [21_000, 26_500, 29_500] {
        let locks = LockManager::in_memory();
        let fixed = locks.mutex("a").lease(30 * SECOND).auto_renew(false);
        let outer = fixed.acquire().await.unwrap();
        tokio::time::sleep(SECOND * late / 1_000).await;
        let nested = async { locks.mutex("a").lease(30 * SECOND).acquire().await };
        let nested = outer.scope(nested).await.unwrap();
        tokio::time::sleep(SECOND / 5).await;
        assert!(nested.remaining() > 29 * SECOND, "{late}: {nested:?}");
        tokio::time::sleep(60 * SECOND).await;
        assert!(nested.is_held());
    }
}

/// Holds whose renewals are due over a whole cadence, as they are where locks come and go.
fn spread(watch: &Watch, count: usize, lease: Duration) -> Vec<Hold> {
    let ids = HolderIds::new();
    let began = clock::now();
    let hold = |number: usize| {
        let key = Key::new("", &LockName::from(number.to_string()), Kind::Mutex).unwrap();
        let part = u32::try_from(number).unwrap();
        let sent_at = began + lease / 3 * part / u32::try_from(count).unwrap();
        let (key, options) = (Arc::new(key), hold_options(lease));
        let hold = granted(key, None, ids.fresh(), &options, sent_at);
        watch.insert(hold.tenure(), sent_at);
        hold
    };
    (0..count).map(hold).collect()
}

#[tokio::test(start_paused = true)]
async fn a_look_at_the_schedule_is_short_however_many_holds_there_are() {
    let lease = 30 * SECOND;
    let mut per_hold = Vec::new();
    for count in [2_000, 20_000] {
        let watch = Arc::new(Watch::default());
        let backend = MemoryBackend::new(MemoryStore::new(), events_of(&watch));
        let holds = spread(&watch, count, lease);
        tokio::time::advance(lease / 10 * 3).await;
        LOOKED_AT.set(0);
        let (mut asked, mut longest) = (0, 0);
        while asked < count {
            let before = LOOKED_AT.get();
            let batches = watch.collect(&backend, 2 * SECOND, Duration::ZERO);
            longest = longest.max(LOOKED_AT.get() - before);
            asked += batches
                .iter()
                .map(|batch| batch.tenures.len())
                .sum::<usize>();
            for Batch { place, tenures, .. } in batches {
                let sent_at = clock::now();
                let asked = tenures
                    .iter()
                    .map(|tenure| tenure.due_renewal(sent_at).unwrap());
                let batch: Vec<_> = asked.collect();
                let answers = Ok(vec![Renewed::Held; batch.len()]);
                watch.answered(&BatchOutcome {
                    store: "test",
                    place,
                    tenures,
                    batch,
                    answers,
                    sent_at,
                });
            }
            tokio::time::advance(lease / 3 / 1_000).await;
        }
        assert!(longest <= 2 * MOST + 2, "{longest} entries in one look");
        per_hold.push(LOOKED_AT.get() / count);
        assert_eq!(watch.count(), holds.len());
    }
    assert!(per_hold.iter().all(|looks| *looks <= 8), "{per_hold:?}");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_due_renewals_are_taken_a_thousand_at_a_time() {
    let watch = Arc::new(Watch::default());
    let backend = MemoryBackend::new(MemoryStore::new(), events_of(&watch));
    let _holds = spread(&watch, 10_000, 30 * SECOND);
    tokio::time::advance(21 * SECOND).await;
    let mut taken = Vec::new();
    while taken.iter().sum::<usize>() < 10_000 {
        let batches = watch.collect(&backend, 2 * SECOND, Duration::ZERO);
        taken.push(
            batches
                .iter()
                .map(|batch| batch.tenures.len())
                .sum::<usize>(),
        );
        assert!(taken.len() < 20 && taken.last() <= Some(&MOST), "{taken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kept_lock_is_renewed_whoever_has_it_by_then() {
    const CALL: Duration = Duration::from_secs(2);
    let builder = LockManager::builder().fencing(false);
    let locks = builder.in_memory().unwrap();
    let request = || locks.mutex("a").keep_for(600 * SECOND);
    request().acquire().await.unwrap().release().await.unwrap();
    let guard = request().acquire().await.unwrap();
    let (watch, backend) = (&locks.core().watch, &locks.core().backend);
    watch.look_now(watch.holds()[0].tenure());
    let mut due = watch.collect(&**backend, CALL, Duration::ZERO);
    let due = due.pop().expect("the hold is due");
    // The hold ends before the task runs that sends the renewal.
    guard.release().await.unwrap();
    let _guard = request().acquire().await.unwrap();
    let sent = renew(watch.clone(), backend.clone(), due, CALL).await;
    assert!(sent.batch[0].ttl.is_some(), "it wants the lease");
    assert_eq!(sent.answers.unwrap(), [Renewed::Held]);
}
