//! Tests of ranges that are drawn ahead. The tests themselves say what time it is.

use super::*;

const MS: Duration = Duration::from_millis(1);
/// The time for which a caller waits for a sign of life.
const PATIENCE: Duration = Duration::from_secs(3);

/// A source, the clocks, and a store that counts.
struct Bench {
    source: IdSource,
    now: IdClocks,
    /// The first id that was not drawn yet.
    free: i64,
    /// The size of each range that was drawn.
    drawn: Vec<u32>,
}

impl Bench {
    fn new() -> Bench {
        let now = IdClocks {
            moment: clock::now(),
            wall: 1_000_000_000,
            generation: 1,
        };
        Bench {
            source: IdSource::new("order".into(), false),
            now,
            free: 1,
            drawn: Vec::new(),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now.moment = self.now.moment + time;
        self.now.wall += u64::try_from(time.as_micros()).unwrap();
    }

    fn ask(&self, count: u32) -> IdAnswer {
        self.source.ask(count, || self.now)
    }

    /// The task that was started.
    fn task(&self) -> DrawTask {
        self.source.state.lock().drawing.unwrap_or(DrawTask(0))
    }

    fn patience_left(&self, asked: IdClocks) -> Duration {
        self.source
            .patience_left(PATIENCE, asked.moment, self.now.moment)
    }

    fn next(&self) -> Option<u32> {
        let next = self.source.next(self.task(), self.now);
        next.map(|(count, _)| count)
    }

    /// Carries out what the task would do once it was started: one draw, which takes `took`. Returns false if there was
    /// nothing to draw.
    fn draw(&mut self, took: Duration) -> bool {
        let Some(count) = self.next() else {
            return false;
        };
        let sent = self.now;
        self.pass(took);
        self.answer(count, sent);
        true
    }

    fn answer(&mut self, count: u32, sent: IdClocks) {
        let range = IdRange::new(self.free, count, None).unwrap();
        self.free += i64::from(count);
        self.drawn.push(count);
        self.source.drew(self.task(), range, sent, self.now);
    }

    /// Draws until the task ends.
    fn draw_all(&mut self, took: Duration) {
        while self.draw(took) {}
    }
}

fn ids(served: IdAnswer) -> Option<Vec<i64>> {
    let range = match served.ids {
        Ok(range) => range,
        Err(mut told) => told.try_recv().ok()?.unwrap().0,
    };
    Some(range.ids().collect())
}

#[test]
fn one_caller_after_the_other_draws_one_id_each_time() {
    for pause in [Duration::ZERO, Duration::from_micros(1), 5 * MS, 500 * MS] {
        let mut bench = Bench::new();
        for call in 0..20 {
            let served = bench.ask(1);
            assert!(served.draw.is_some(), "{pause:?} {call}");
            bench.draw_all(MS);
            assert_eq!(ids(served), Some(vec![call + 1]));
            bench.pass(pause);
        }
        assert_eq!(bench.drawn, [1; 20], "{pause:?}");
    }
}

#[test]
fn callers_during_a_draw_share_the_next_range_in_order() {
    let mut bench = Bench::new();
    let first = bench.ask(1);
    let want = bench.next().unwrap();
    let sent = bench.now;
    let others: Vec<_> = (0..50).map(|_| bench.ask(1)).collect();
    assert!(first.draw.is_some() && others.iter().all(|served| served.draw.is_none()));
    bench.pass(MS);
    bench.answer(want, sent);
    bench.draw_all(MS);
    assert_eq!(bench.drawn, [1, 50]);
    let got: Vec<_> = [first].into_iter().chain(others).map(ids).collect();
    let wanted: Vec<_> = (1..=51).map(|id| Some(vec![id])).collect();
    assert_eq!(got, wanted);
}

/// Calls that come evenly, `every` so often, for `time`, at a store that takes a millisecond.
fn calls(bench: &mut Bench, every: Duration, time: Duration) -> u32 {
    let (mut asked, mut under_way) = (0, None);
    let end = bench.now.moment + time;
    while !bench.now.moment.has_reached(end) {
        asked += 1;
        let served = bench.ask(1);
        if served.draw.is_some() {
            under_way = bench.next().map(|want| (want, bench.now));
        }
        bench.pass(every);
        if let Some((want, sent)) = under_way
            && bench.now.moment.has_reached(sent.moment + MS)
        {
            bench.answer(want, sent);
            under_way = bench.next().map(|want| (want, bench.now));
        }
    }
    if let Some((want, sent)) = under_way {
        bench.answer(want, sent);
        bench.draw_all(MS);
    }
    asked
}

#[test]
fn ranges_grow_to_ten_milliseconds_and_shrink_again() {
    let mut bench = Bench::new();
    let asked = calls(&mut bench, MS / 100, 1_000 * MS);
    let drawn = std::mem::take(&mut bench.drawn);
    for pair in drawn.windows(2) {
        assert!(pair[1] <= pair[0].max(100) * 2, "{drawn:?}");
    }
    let largest = drawn.iter().max().unwrap();
    assert!((900..1_100).contains(largest), "{drawn:?}");
    // Half of a range is left when the next one is asked for.
    assert!(drawn.len() < 220, "{} for {asked}", drawn.len());
    let wasted = drawn.iter().sum::<u32>() - asked;
    assert!(wasted < 2_500, "{wasted}");

    calls(&mut bench, 50 * MS, 1_000 * MS);
    assert!(bench.drawn.ends_with(&[1; 10]), "{:?}", bench.drawn);
    let after = bench.drawn.iter().filter(|size| **size > 1).count();
    assert!(after <= 1, "{:?}", bench.drawn);
}

#[test]
fn a_million_ids_a_second_cost_a_request_for_thousands() {
    let mut bench = Bench::new();
    let asked = calls(&mut bench, MS / 1_000, 500 * MS);
    assert!(
        bench.drawn.len() * 2_000 < asked as usize,
        "{:?}",
        bench.drawn
    );
    assert_eq!(bench.drawn.iter().max(), Some(&MOST_IDS));
}

#[test]
fn a_clock_or_a_connection_ends_what_is_left_of_a_range() {
    type Change = fn(&mut Bench);
    let changes: [(&str, Change); 6] = [
        ("nothing", |_| ()),
        ("99 ms", |bench| bench.pass(99 * MS)),
        ("100 ms", |bench| bench.pass(100 * MS)),
        ("a copy that begins later", |bench| {
            bench.now.wall += 100_000
        }),
        ("a wall clock that was set back", |bench| {
            bench.now.wall -= 1
        }),
        ("a new connection", |bench| bench.now.generation += 1),
    ];
    for (change, apply) in changes {
        let mut bench = Bench::new();
        let waiting = [bench.ask(1), bench.ask(2)];
        let want = bench.next().unwrap();
        let sent = bench.now;
        drop(waiting);
        bench.answer(want, sent);
        apply(&mut bench);
        let left = ids(bench.ask(1)).is_some();
        assert_eq!(left, ["nothing", "99 ms"].contains(&change), "{change}");
    }
}

#[test]
fn many_ids_at_once_follow_one_another_and_those_before() {
    let mut bench = Bench::new();
    let waiting = [bench.ask(1), bench.ask(4)];
    let want = bench.next().unwrap();
    let sent = bench.now;
    let [first, gone] = waiting;
    drop(gone);
    bench.answer(want, sent);
    bench.draw_all(MS);
    assert_eq!(ids(first), Some(vec![1]));
    // Four are left: too few, and no later caller may get them.
    let many = bench.ask(6);
    assert!(many.draw.is_some());
    bench.draw_all(MS);
    assert_eq!(ids(many), Some((6..12).collect()));
    let next = bench.ask(1);
    bench.draw_all(MS);
    assert_eq!(ids(next), Some(vec![12]));
}

#[test]
fn more_ids_than_a_range_may_have_are_drawn_in_several() {
    let mut bench = Bench::new();
    let waiting: Vec<_> = (0..3).map(|_| bench.ask(MOST_IDS)).collect();
    bench.draw_all(MS);
    assert_eq!(bench.drawn, [MOST_IDS; 3]);
    assert!(waiting.into_iter().all(|served| ids(served).is_some()));
}

#[test]
fn a_caller_who_left_is_passed_over() {
    let mut bench = Bench::new();
    let [first, gone, last] = [bench.ask(1), bench.ask(1), bench.ask(1)];
    drop(gone);
    bench.draw_all(MS);
    assert_eq!(bench.drawn, [2]);
    assert_eq!((ids(first), ids(last)), (Some(vec![1]), Some(vec![2])));
    drop(bench.ask(1));
    assert!(!bench.draw(MS), "nobody waits any more");
}

#[test]
fn a_fault_goes_only_to_the_callers_that_the_draw_was_for() {
    let mut bench = Bench::new();
    let waiting: Vec<_> = (0..3).map(|_| bench.ask(1)).collect();
    bench.next().unwrap();
    let later = bench.ask(1);
    let silent = Fault::unknown("it is silent");
    bench.source.failed(bench.task(), &silent);
    for served in waiting {
        let told = served.ids.unwrap_err().try_recv().unwrap();
        assert!(matches!(told, Err(Fault::Unknown(_))));
    }
    bench.draw_all(MS);
    assert_eq!(ids(later), Some(vec![1]));
    let next = bench.ask(1);
    assert!(next.draw.is_some());
    bench.draw_all(MS);
    assert_eq!(ids(next), Some(vec![2]));
}

#[test]
fn a_task_that_nobody_drives_is_replaced_and_gives_no_ids() {
    let mut bench = Bench::new();
    let (first, stuck) = (bench.ask(1), bench.task());
    let want = bench.next().unwrap();
    let sent = bench.now;
    bench.pass(PATIENCE - MS);
    assert_eq!(bench.patience_left(sent), MS);
    bench.pass(MS);
    assert_eq!(bench.patience_left(sent), Duration::ZERO);
    let next = bench.ask(1);
    assert!(next.draw.is_some_and(|draw| draw != stuck));
    // Another caller of before waits on, for the second task.
    assert_eq!(bench.patience_left(sent), PATIENCE);
    assert_eq!(Some(bench.task()), next.draw);
    bench.draw_all(MS);
    assert_eq!((ids(first), ids(next)), (Some(vec![1]), Some(vec![2])));
    // The first task goes on after all.
    let range = IdRange::new(100, want, None).unwrap();
    bench.source.drew(stuck, range, sent, bench.now);
    bench.source.failed(stuck, &Fault::runtime_ended());
    bench.source.ended(stuck);
    assert!(bench.source.next(stuck, bench.now).is_none());
    let last = bench.ask(1);
    bench.draw_all(MS);
    assert_eq!(ids(last), Some(vec![3]));
}

#[test]
fn ids_rise_in_the_order_of_the_calls_whatever_happens() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bench = Bench::new();
        let (mut asked, mut under_way) = (Vec::new(), None);
        for _ in 0..500 {
            match random.u8(0..10) {
                0..5 => {
                    let served = bench.ask(random.u32(1..4));
                    if served.draw.is_some() {
                        under_way = bench.next().map(|want| (want, bench.now));
                    }
                    asked.push(served);
                }
                5 if !asked.is_empty() => drop(asked.remove(random.usize(..asked.len()))),
                6 => bench.pass(Duration::from_micros(random.u64(0..20_000))),
                7 => bench.now.generation += u64::from(random.u8(0..4) == 0),
                _ => {
                    if let Some((want, sent)) = under_way.take() {
                        bench.answer(want, sent);
                        under_way = bench.next().map(|want| (want, bench.now));
                    }
                }
            }
        }
        while let Some((want, sent)) = under_way.take() {
            bench.answer(want, sent);
            under_way = bench.next().map(|want| (want, bench.now));
        }
        let got: Option<Vec<_>> = asked.into_iter().map(ids).collect();
        let got = got.expect("everybody was served").concat();
        assert!(got.is_sorted_by(|one, next| one < next), "{seed}: {got:?}");
    }
}

#[test]
fn sources_that_nobody_uses_are_forgotten() {
    let sources = IdSources::default();
    let kept = sources.get(&"kept".into(), false);
    for name in 0..10_000 {
        drop(sources.get(&format!("order:{name}").into(), false));
    }
    assert!(sources.0.lock().by_name.len() <= 128);
    assert!(Arc::ptr_eq(&kept, &sources.get(&"kept".into(), false)));
    assert!(!Arc::ptr_eq(&kept, &sources.get(&"kept".into(), true)));
}

#[test]
fn a_bad_name_shares_no_source_with_a_good_one_of_the_same_text() {
    let (bad, good) = (LockName::from("order:").with(""), LockName::from("order:"));
    for [first, second] in [[&bad, &good], [&good, &bad]] {
        let sources = IdSources::default();
        let [one, two, again] = [first, second, &good].map(|name| sources.get(name, false));
        assert!(!Arc::ptr_eq(&one, &two));
        assert!(Arc::ptr_eq(
            &again,
            if std::ptr::eq(first, &good) {
                &one
            } else {
                &two
            }
        ));
    }
}
