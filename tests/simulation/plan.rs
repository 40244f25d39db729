//! What a seed stands for.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use tests::judge::names::client_of;
use tests::judge::{Terms, Wait};

use crate::work::{self, Job};

pub(crate) const MS: Duration = Duration::from_millis(1);
/// The lease of every lock: the shortest that is renewed.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// The plan of a simulation.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) processes: usize,
    /// One store, or the three of a quorum.
    pub(crate) stores: usize,
    /// The tasks of each process.
    pub(crate) jobs: Vec<Job>,
    pub(crate) weather: Weather,
    /// How fast the stores' clocks go.
    pub(crate) rate: f64,
    /// What strikes when, in order.
    pub(crate) strikes: Vec<(Duration, Strike)>,
    /// The time of the last strike's end at the latest, and of the tasks' work.
    pub(crate) lasts: Duration,
}

/// How the network is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    /// The least delay of a message, which is also the quantum of a turn.
    pub(crate) least: Duration,
    /// The greatest delay, spikes aside.
    pub(crate) most: Duration,
    /// The shares of messages, in 1,000, that are lost on the way to the store, on the way back, and as a push; that are
    /// delivered twice; and that take much longer.
    pub(crate) lost_there: u32,
    pub(crate) lost_back: u32,
    pub(crate) lost_push: u32,
    pub(crate) twice: u32,
    pub(crate) spikes: u32,
    /// How long a spike may be.
    pub(crate) spike: Duration,
    /// Whether messages overtake each other.
    pub(crate) reorders: bool,
}

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Strike {
    /// A process does not run for so long. Its clocks go on.
    Freeze(usize, Duration),
    /// The machine of a process is suspended for so long. Its clock stands still; the boot clock goes on, if it does.
    Suspend(usize, Duration, bool),
    /// A process is killed. Another one begins after so long.
    Kill(usize, Duration),
    /// A process shuts down, and another one begins.
    Shutdown(usize),
    /// Nothing passes between a process and the stores for so long.
    CutOff(usize, Duration),
    /// A process cannot connect for so long, and knows it.
    Refuse(usize, Duration),
    /// What stores send to a process comes so much later, for so long. Then it is cut off.
    Fade(usize, Duration, Duration),
    /// A store does not answer for so long.
    Silence(usize, Duration),
    /// No push arrives anywhere for so long.
    Mute(Duration),
    /// A store forgets everything.
    Forget(usize),
    /// A store forgets one key, the same one in the whole plan.
    ForgetKey(usize, &'static str),
    /// A store's clock steps forward.
    Step(usize, Duration),
    /// A store's clock stands still for so long, as one does that was set back.
    Stand(usize, Duration),
    /// Somebody releases a lock by force.
    Force(usize),
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let rng = &mut rng;
        let processes = rng.usize(2..=4);
        let stores = if rng.u8(..8) == 0 { 3 } else { 1 };
        let jobs = work::choose(rng, stores > 1);
        let least = MS * rng.u32(1..=8);
        // Some seeds are calm: nothing goes wrong at all. In others, only the network is not what it should be.
        let (is_calm, is_struck) = (rng.u8(..10) == 0, rng.u8(..5) != 0);
        let mut share = |most: u32| match !is_calm && rng.bool() {
            true => rng.u32(..most),
            false => 0,
        };
        let (mut lost_there, mut lost_back, lost_push) = (share(40), share(40), share(500));
        let (twice, mut spikes) = (share(50), share(30));
        // Some checks can only be made where every request is answered soon.
        if rng.u8(..4) == 0 {
            (lost_there, lost_back, spikes) = (0, 0, 0);
        }
        let weather = Weather {
            least,
            most: least + MS * rng.u32(0..=12),
            lost_there,
            lost_back,
            lost_push,
            twice,
            spikes,
            spike: MS * rng.u32(50..3_000),
            reorders: rng.bool(),
        };
        // Clocks of computers differ by less than the margin of a lease.
        let rate = 1.0 + (rng.f64() - 0.5) / 125.0;
        let lasts = Duration::from_secs(rng.u64(10..60));
        let strikes = match !is_calm && is_struck {
            true => strikes(rng, processes, stores, &jobs, lasts),
            false => Vec::new(),
        };
        Self {
            seed,
            processes,
            stores,
            jobs,
            weather,
            rate,
            strikes,
            lasts,
        }
    }

    /// Whether nothing goes wrong at all.
    pub(crate) fn is_calm(&self) -> bool {
        let weather = &self.weather;
        let shares = [
            weather.lost_there,
            weather.lost_back,
            weather.lost_push,
            weather.twice,
            weather.spikes,
        ];
        self.strikes.is_empty() && shares.iter().all(|share| *share == 0)
    }

    fn has(&self, is: fn(&Strike) -> bool) -> bool {
        self.strikes.iter().any(|(_, strike)| is(strike))
    }

    /// Whether requests are neither lost nor late, and nothing strikes but the end of processes and the loss of messages.
    fn is_smooth(&self) -> bool {
        let is_harmless =
            |(_, strike): &(_, _)| matches!(strike, Strike::Mute(_) | Strike::Kill(..));
        self.longest_request().is_some() && self.strikes.iter().all(is_harmless)
    }

    /// For how long this lock may be unused while somebody waits for it, if that is known. A waiter looks for itself after
    /// 1.2 s, or 1.6 s in a fair queue; an acquire that was dropped half-way is undone. What a dead process had ends with its
    /// lease.
    pub(crate) fn longest_rest(&self, key: &str) -> Option<Duration> {
        let kills = self.has(|strike| matches!(strike, Strike::Kill(..)));
        let mutes = self.has(|strike| matches!(strike, Strike::Mute(_)));
        // Each question of a waiter sends the keeper a message, and all of them may be lost.
        let is_unheard = key.starts_with("keep") && (self.weather.lost_push > 0 || mutes);
        // Fair waiters behind dead ones wait for longer.
        if !self.is_smooth() || is_unheard || kills && key.starts_with("fair") {
            return None;
        }
        let rest = MS * 1_600 + LEASE / 6 + 6 * self.weather.most;
        Some(if kills { rest + LEASE } else { rest })
    }

    /// Whether ids may come again: of a store that forgets them while its clock is set back.
    pub(crate) fn may_repeat_ids(&self) -> bool {
        self.has(|strike| matches!(strike, Strike::Forget(_)))
            && self.has(|strike| matches!(strike, Strike::Stand(..)))
    }

    pub(crate) fn forgets_one_key(&self) -> bool {
        self.has(|strike| matches!(strike, Strike::ForgetKey(..)))
    }

    /// Whether a store forgot the key, but not all keys. The locks of a set are lost with one of them.
    pub(crate) fn is_forgotten_alone(&self, key: &str) -> bool {
        self.strikes.iter().any(|(_, strike)| match strike {
            Strike::ForgetKey(_, one) => {
                let mut sets = self.jobs.iter().map(|job| job.work().keys);
                *one == key || sets.any(|set| set.contains(one) && set.contains(&key))
            }
            _ => false,
        })
    }

    /// The longest time of a request, there and back, if none is lost or late: it may be sent twice, and once more with a
    /// date by a clock that is known better. A quorum waits for a slow node for a while.
    pub(crate) fn longest_request(&self) -> Option<Duration> {
        let weather = &self.weather;
        let is_late = weather.lost_there + weather.lost_back + weather.spikes > 0;
        let patience = if self.stores > 1 { MS * 50 } else { MS };
        (!is_late).then_some(2 * (3 * weather.most + patience))
    }

    /// How soon a holder is told that the store does not have its lock any more, if that is known: after a third of the lease,
    /// and the time of a renewal.
    fn told_within(&self) -> Option<Duration> {
        let is_harmless = |(_, strike): &(_, _)| {
            use Strike::{Force, Forget, ForgetKey, Kill, Mute};
            matches!(
                strike,
                Force(_) | Forget(_) | ForgetKey(..) | Kill(..) | Mute(_)
            )
        };
        let is_known = self.stores == 1 && self.strikes.iter().all(is_harmless);
        let renewal = self.longest_request().filter(|_| is_known)?;
        Some(LEASE / 3 + renewal)
    }

    /// The margin of the order of two waits for one key, if these are in order: those of one process are, exactly. Fair waiters
    /// are in the order in which the store got their questions. A lock that is lost on its way to its caller is asked for anew.
    pub(crate) fn order(&self, one: &Wait, other: &Wait) -> Option<Duration> {
        if !self.is_smooth() {
            return None;
        }
        if one.key.starts_with("fair") {
            return self.longest_request().filter(|_| self.strikes.is_empty());
        }
        (client_of(&one.holder) == client_of(&other.holder)).then_some(Duration::ZERO)
    }

    /// What the checks have to know.
    pub(crate) fn terms(&self) -> Terms {
        let forgets = self.has(|strike| matches!(strike, Strike::Forget(_)));
        let steps = self.has(|strike| matches!(strike, Strike::Step(..)));
        let force = self.has(|strike| matches!(strike, Strike::Force(_)));
        // A machine that stands still with its boot clock is as good as a step of all other clocks.
        let unnoticed = self.has(|strike| matches!(strike, Strike::Suspend(_, _, false)));
        Terms {
            lease: LEASE,
            calm: self.is_calm(),
            loses_locks: forgets || steps || force || unnoticed,
            forgets,
            denies: false,
            closes: self.has(|strike| matches!(strike, Strike::Shutdown(_))),
            two: true,
            fails_over: false,
            splits: unnoticed,
            healed: None,
            jump: None,
            told_within: self.told_within(),
        }
    }
}

/// A swarm: each seed has some sorts of strikes and not others.
fn strikes(
    rng: &mut Rng,
    processes: usize,
    stores: usize,
    jobs: &[Job],
    lasts: Duration,
) -> Vec<(Duration, Strike)> {
    const SORTS: u32 = 14;
    let sorts: Vec<u32> = (0..SORTS).filter(|_| rng.u8(..4) == 0).collect();
    let job = rng.choice(jobs).expect("every plan has jobs");
    let one_key = *rng.choice(job.work().keys).expect("every job has keys");
    let mut strikes = Vec::new();
    if sorts.is_empty() {
        return strikes;
    }
    let mut at = MS * rng.u32(200..3_000);
    while at + 4 * LEASE < lasts {
        let process = rng.usize(..processes);
        let store = rng.usize(..stores);
        // From a moment to some leases.
        let time = match rng.u8(..3) {
            0 => MS * rng.u32(1..100),
            1 => MS * rng.u32(100..1_200),
            _ => MS * rng.u32(1_000..4_000),
        };
        let sort = *rng.choice(&sorts).unwrap_or(&0);
        strikes.push((
            at,
            match sort {
                0 => Strike::Freeze(process, time),
                1 => Strike::Suspend(process, time, true),
                2 => Strike::Suspend(process, time, false),
                3 => Strike::Kill(process, time),
                4 => Strike::Shutdown(process),
                5 => Strike::CutOff(process, time),
                6 => Strike::Refuse(process, time),
                7 => Strike::Silence(store, time),
                8 => Strike::Mute(time),
                9 => Strike::Forget(store),
                10 if rng.bool() => Strike::Step(store, time),
                10 => Strike::Stand(store, time),
                11 => Strike::Force(process),
                12 => Strike::ForgetKey(store, one_key),
                // Within the call timeout of an acquire, or within that of a renewal alone.
                _ => Strike::Fade(process, MS * rng.u32(20..400), time),
            },
        ));
        at += MS * rng.u32(50..4_000);
    }
    strikes
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs: Vec<String> = self.jobs.iter().map(Job::to_string).collect();
        writeln!(
            f,
            "seed {}: {} processes, {} store(s), {:?}\n  tasks: {}\n  {:?}, store's clock at {:.4}",
            self.seed,
            self.processes,
            self.stores,
            self.lasts,
            jobs.join(", "),
            self.weather,
            self.rate,
        )?;
        for (at, strike) in &self.strikes {
            writeln!(f, "  {:>9.3} s {strike:?}", at.as_secs_f64())?;
        }
        Ok(())
    }
}
