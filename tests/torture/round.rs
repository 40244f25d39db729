//! One round: fresh servers, fresh clients, one fault or two, and the outcome.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use tests::Hold;
use tests::history::now_ns;
use tokio::runtime::Runtime;

use crate::LEASE;
use tests::judge::{Finding, Terms, histories};

use crate::checks;
use crate::client;
use crate::crew::{Crew, Job};
use crate::delays;
use crate::faults::{Fault, Scene};
use crate::keys::{Tasks, Way, Workload};
use crate::peers::Driver;
use crate::planted::Planted;
use crate::site::Site;
use tests::judge::Log;
use tests::judge::order::{self, Order};
use tests::workload::How;

const CLIENTS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(5);
/// The time after the fault within which every hot key has to be held again: 6.6 s until the places of dead waiters of
/// a fair lock are deserted, a lease before that, and a busy machine.
const RECOVERY: Duration = Duration::from_secs(10);
/// The same for other libraries. Some look only after half a minute whether a connection is dead.
pub(crate) const LONG_RECOVERY: Duration = Duration::from_secs(40);
/// The time for which a round without a fault goes on.
const CALM: Duration = Duration::from_millis(1_200);
/// The time that a busy machine may add to what a client does.
pub(crate) const BUSY: Duration = Duration::from_millis(250);
/// The time that the second of two faults has to itself at least.
const ALONE: Duration = Duration::from_millis(1_000);
/// The time for which a round goes on after the recovery from a fault, unless that was a clock jump.
const AFTER: Duration = Duration::from_millis(250);

/// The plan of a round.
pub(crate) struct Plan<'a> {
    pub(crate) number: u64,
    pub(crate) seed: u64,
    pub(crate) workload: Workload,
    /// The faults. Without any, this is a calm round, in which nothing may be lost.
    pub(crate) faults: Vec<Box<dyn Fault>>,
    /// The number of strikes. A calm round lasts this many times [`CALM`].
    pub(crate) strikes: u32,
    pub(crate) planted: Option<&'a Planted>,
    /// The program of the clients.
    pub(crate) program: &'a Path,
    /// The library that the clients use, if it is not ours.
    pub(crate) peer: Option<&'a Driver>,
}

/// The outcome of a round.
pub(crate) struct Outcome {
    pub(crate) number: u64,
    pub(crate) workload: Workload,
    pub(crate) name: String,
    pub(crate) log: Log,
    /// The times for which two holders were certain of one key.
    pub(crate) overlaps: Vec<Duration>,
    /// The number of these in which the earlier one noticed that it had lost its lock. The others had given it back.
    pub(crate) told: usize,
    /// Increments that a counter without a register in front of it lost.
    pub(crate) lost_updates: u64,
    /// The keys as they are taken, and how long after the fault each was had again.
    pub(crate) recoveries: Vec<(Way, Duration)>,
    /// The times after its lease at which a killed holder's lock was had by the next one.
    pub(crate) takeovers: Vec<Duration>,
    /// The times for which wanted locks were free while no message arrived.
    pub(crate) gaps: Vec<Duration>,
    /// The times after a fault began at which the topology itself took a write again.
    pub(crate) own_recoveries: Vec<Duration>,
    /// Whether no overlap at all was allowed: the store was to keep every lock, and its clock was to go on.
    pub(crate) strict: bool,
    /// The result of the search for one order of events, if there has to be one.
    pub(crate) order: Option<Order>,
    pub(crate) proofs: Vec<String>,
    pub(crate) findings: Vec<Finding>,
    /// The number of locks that were still held when all clients were gone, and their leases over.
    pub(crate) left: usize,
    /// The number of calls of broken scripts and statements.
    pub(crate) rewrites: u64,
    pub(crate) strikes: Vec<Strike>,
    /// The time from the moment when every client was at work to the end.
    pub(crate) span: (u64, u64),
}

impl Outcome {
    /// Writes what was said into a folder, for another judge. Returns the number of files.
    pub(crate) fn write_histories(&self, folder: &Path, seed: u64) -> std::io::Result<usize> {
        let place = self.workload.topology.name();
        let what = format!("seed {seed}, round {}, {place}, {}", self.number, self.name);
        let name = format!("{seed}-{}", self.number);
        histories::write(folder, &name, &what, &self.log, self.order.as_ref())
    }
}

/// A strike, from the beginning of the first fault to the end of the last.
#[derive(Debug, Clone)]
pub(crate) struct Strike {
    pub(crate) begun: u64,
    /// The time when it had begun, by the clock of the servers, in microseconds.
    pub(crate) begun_us: u64,
    pub(crate) healed: u64,
    /// See [`Fault::answered`].
    pub(crate) answered: Option<u64>,
    /// See [`Fault::left_behind`].
    pub(crate) left_behind: Vec<(&'static str, u64)>,
    /// See [`Fault::loses_messages`].
    pub(crate) lost_messages: bool,
    /// See [`Fault::affected`].
    pub(crate) affected: Option<Vec<&'static str>>,
    /// See [`Fault::spares_the_others`].
    pub(crate) spares_the_others: bool,
}

impl Strike {
    /// Returns the moment from which on the locks have to come back.
    pub(crate) fn since(&self) -> u64 {
        if self.answered.is_some() {
            self.begun
        } else {
            self.healed
        }
    }
}

impl Plan<'_> {
    pub(crate) fn name(&self) -> String {
        let names: Vec<&str> = self.faults.iter().map(|fault| fault.name()).collect();
        if names.is_empty() {
            "calm".to_owned()
        } else {
            names.join(" + ")
        }
    }

    /// Returns what the checks have to know of it.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            lease: LEASE,
            closes: false,
            healed: None,
            calm: self.faults.is_empty(),
            loses_locks: self
                .faults
                .iter()
                .any(|fault| fault.loses_locks(self.workload.topology)),
            forgets: self.faults.iter().any(|fault| fault.forgets()),
            denies: self.faults.iter().any(|fault| fault.denies()),
            two: self.faults.len() > 1,
            fails_over: self.faults.iter().any(|fault| fault.fails_over()),
            splits: self.faults.iter().any(|fault| fault.splits()),
            jump: match &self.faults[..] {
                [only] => only.jumps(),
                _ => None,
            },
            told_within: match &self.faults[..] {
                // Only our clients promise it.
                [only] if self.peer.is_none() && !only.fails_over() && only.jumps().is_none() => {
                    Some(LEASE * 3 / 5 + BUSY)
                }
                _ => None,
            },
        }
    }

    pub(crate) fn run(mut self, runtime: &Runtime) -> Outcome {
        let (name, terms) = (self.name(), self.terms());
        let durable = self.faults.iter().any(|fault| fault.needs_disk());
        let mut site = Site::build(self.workload, runtime, durable, CLIENTS);
        if let Some(planted) = self.planted {
            planted.plant(&mut site);
        }
        let job = Job {
            workload: self.workload,
            urls: (0..CLIENTS).map(|place| site.url(place)).collect(),
            resource: site.resource.url(),
            seed: self.seed,
            checked: self.planted.is_none_or(|planted| planted.checks_tokens()),
            program: self.program.to_owned(),
            bug: self.planted.and_then(Planted::in_clients),
            peer: self.peer.cloned(),
        };
        let mut stage = Stage {
            crew: Crew::start(job),
            site,
            rng: Rng::with_seed(self.seed),
            findings: Vec::new(),
            proofs: Vec::new(),
            strikes: Vec::new(),
            left: 0,
            at: 0,
            planted: self.planted,
            lasts_long: self.planted.is_some() || self.workload.tasks == Tasks::Mutexes,
            recovery: self.peer.map_or(RECOVERY, |_| LONG_RECOVERY),
        };
        let from = now_ns();
        stage.warm_up();
        for _ in 0..self.strikes {
            // A round in which a client never came to work, or a lock did not recover, shows no more.
            if !stage.findings.is_empty() {
                break;
            }
            if terms.calm {
                stage.wait(CALM, &mut []);
            } else {
                stage.strike(&mut self.faults);
                stage.recover(terms);
            }
            // A planted bug that was caught need not show again.
            let is_caught = |bug: &Planted| bug.what_caught_it(&stage.judge(terms)).is_some();
            if self.planted.is_some_and(is_caught) {
                break;
            }
        }
        stage.finish(terms, runtime);
        let mut findings = stage.judge(terms);
        findings.splice(..0, std::mem::take(&mut stage.findings));
        let order = (!terms.loses_locks)
            .then(|| order::operations(&stage.crew.log.tries, &stage.crew.log.killed))
            .map(|operations| order::order(&operations));
        if let Some(Order::None(what)) = &order {
            findings.push(Finding {
                check: "order",
                what: what.clone(),
            });
        }
        let (log, strikes) = (&stage.crew.log, stage.strikes.iter());
        let own = |strike: &Strike| Some(Duration::from_nanos(strike.answered? - strike.begun));
        Outcome {
            number: self.number,
            workload: self.workload,
            name,
            overlaps: tests::judge::overlaps(log).iter().map(overlap_of).collect(),
            told: tests::judge::overlaps(log)
                .iter()
                .filter(|(earlier, _)| tests::judge::is_told(log, earlier))
                .count(),
            lost_updates: checks::lost_updates(&stage.site)
                .iter()
                .map(|(_, lost)| (*lost).max(0).unsigned_abs())
                .sum(),
            recoveries: strikes
                .clone()
                .flat_map(|strike| delays::recoveries(log, self.workload, strike))
                .filter_map(|(way, time)| Some((way, time?)))
                .collect(),
            own_recoveries: strikes.clone().filter_map(own).collect(),
            takeovers: delays::takeovers(log, &terms, &stage.strikes),
            gaps: delays::gaps_without_messages(log, self.workload, &terms, &stage.strikes)
                .into_iter()
                .map(|(_, gap)| gap)
                .collect(),
            strict: !terms.loses_locks,
            order,
            log: stage.crew.log,
            proofs: stage.proofs,
            left: stage.left,
            rewrites: stage.site.rewrites(),
            findings,
            strikes: stage.strikes,
            span: (from, now_ns()),
        }
    }
}

fn overlap_of((earlier, later): &(Hold, Hold)) -> Duration {
    Duration::from_nanos(earlier.until.min(later.until) - later.from)
}

/// Returns the microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
}

struct Stage<'a> {
    site: Site,
    crew: Crew,
    rng: Rng,
    findings: Vec<Finding>,
    proofs: Vec<String>,
    strikes: Vec<Strike>,
    /// See [`Outcome::left`].
    left: usize,
    /// The node that is struck.
    at: usize,
    /// The planted bug, if there is one.
    planted: Option<&'a Planted>,
    /// Whether every strike lasts as long as it may, so that what is wrong shows sooner.
    lasts_long: bool,
    /// The time after the fault within which every hot key has to be held again.
    recovery: Duration,
}

impl Stage<'_> {
    fn find(&mut self, check: &'static str, what: String) {
        self.findings.push(Finding { check, what });
    }

    /// Returns what the checks say of everything so far.
    fn judge(&self, terms: Terms) -> Vec<Finding> {
        let healed = self.strikes.iter().map(|strike| strike.healed).max();
        let terms = Terms { healed, ..terms };
        checks::all(&self.crew.log, &self.site, &terms, &self.strikes)
    }

    fn warm_up(&mut self) {
        // The part of the round that a bug leaves has to begin. A busy machine says nothing about the bug.
        let patience = PATIENCE * if self.planted.is_some() { 3 } else { 1 };
        let deadline = Instant::now() + patience;
        loop {
            let holds: Vec<u64> = (0..CLIENTS).map(|client| self.crew.holds(client)).collect();
            if self.site.workload.is_warm(&holds) {
                return;
            }
            if Instant::now() > deadline || self.crew.has_deserter() {
                self.find(
                    "operations",
                    format!("only {holds:?} holds in {patience:?}"),
                );
                return;
            }
            std::thread::sleep(STEP);
            self.crew.listen();
        }
    }

    fn wait(&mut self, time: Duration, faults: &mut [&mut Box<dyn Fault>]) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            std::thread::sleep(STEP);
            self.crew.listen();
            for fault in faults.iter_mut() {
                fault.tick(&mut self.scene());
            }
        }
    }

    fn scene(&mut self) -> Scene<'_> {
        Scene {
            site: &mut self.site,
            crew: &mut self.crew,
            rng: &mut self.rng,
            at: self.at,
            broken: self.planted.map_or_else(Vec::new, Planted::statements),
        }
    }

    /// Lets the faults strike. Two of them begin one after the other, overlap, and are healed in the same order, so that
    /// the recovery from the first one meets the second one. Each has the scene to itself for a while, so that each can
    /// show its effect.
    fn strike(&mut self, faults: &mut [Box<dyn Fault>]) {
        let [first, rest @ ..] = faults else { return };
        let mut lasts = |fault: &dyn Fault| {
            let time = self.rng.u64(fault.lasts());
            Duration::from_millis(if self.lasts_long {
                fault.lasts().end
            } else {
                time
            })
        };
        let time = lasts(first.as_ref());
        let second = rest
            .first_mut()
            .map(|second| (lasts(second.as_ref()), second));
        let nodes = self.site.nodes.len().max(1);
        self.at = self.rng.usize(..nodes);
        let begun = now_ns();
        first.begin(&mut self.scene());
        let begun_us = now_us();
        match second {
            None => {
                self.wait(time, &mut [&mut *first]);
                self.heal(first);
            }
            Some((longer, second)) => {
                self.wait(time / 2, &mut [&mut *first]);
                second.begin(&mut self.scene());
                self.wait(time / 2, &mut [&mut *first, &mut *second]);
                self.heal(first);
                self.wait(longer + ALONE, &mut [&mut *second]);
                self.heal(second);
            }
        }
        self.strikes.push(Strike {
            begun,
            begun_us,
            healed: now_ns(),
            answered: faults.iter().find_map(|fault| fault.answered()),
            left_behind: faults
                .iter()
                .flat_map(|fault| fault.left_behind())
                .collect(),
            lost_messages: faults.iter().any(|fault| fault.loses_messages()),
            affected: faults.iter().find_map(|fault| fault.affected()),
            spares_the_others: faults.iter().all(|fault| fault.spares_the_others()),
        });
    }

    fn heal(&mut self, fault: &mut Box<dyn Fault>) {
        let proof = fault.end(&mut self.scene());
        match proof {
            Ok(proof) => self.proofs.push(format!("{}: {proof}", fault.name())),
            Err(doubt) => self.find("fault-fired", format!("{}: {doubt}", fault.name())),
        }
    }

    fn recover(&mut self, terms: Terms) {
        let Some(strike) = self.strikes.last().cloned() else {
            return;
        };
        let patience = self.recovery;
        let deadline = Instant::now() + patience;
        let mut since = None;
        loop {
            let log = &self.crew.log;
            let ways = delays::recoveries(log, self.site.workload, &strike).into_iter();
            let missing = ways.filter_map(|(way, time)| time.is_none().then_some(way));
            let missing: Vec<Way> = missing.collect();
            let away = delays::still_away(log, self.crew.clients(), &strike);
            if missing.is_empty() {
                since.get_or_insert_with(Instant::now);
            }
            if missing.is_empty() && away.is_empty() {
                break;
            }
            if Instant::now() > deadline {
                // If the bug shows in another way, the faults go on.
                if self.planted.is_none_or(|bug| bug.is_caught_by("recovery")) {
                    self.find(
                        "recovery",
                        format!(
                            "not had again in {patience:?}: {missing:?}, and nothing by {away:?}"
                        ),
                    );
                }
                return;
            }
            self.wait(STEP, &mut []);
        }
        // No lease may be cut twice, so that an overlap is no longer than one jump.
        let after = if terms.jump.is_some() { LEASE } else { AFTER };
        let gone = since.map_or(Duration::ZERO, |since| since.elapsed());
        self.wait(after.saturating_sub(gone), &mut []);
    }

    fn finish(&mut self, terms: Terms, runtime: &Runtime) {
        if !self.crew.stop() {
            self.find("clients", "a client died or did not stop".to_owned());
        }
        let few = self.crew.log.operations();
        if few < self.site.workload.least_operations(CLIENTS) {
            self.find("operations", format!("only {few}"));
        }
        let never = delays::never_had(&self.crew.log, self.site.workload);
        if !never.is_empty() {
            self.find("admitted", format!("nobody ever had {never:?}"));
        }
        // A hold that a killed or frozen client left behind ends with its lease. After a calm round, nothing is left
        // behind.
        let lease = if terms.calm { Duration::ZERO } else { LEASE };
        let deadline = Instant::now() + lease + BUSY;
        loop {
            let held = self.site.held();
            let Some((key, ttl)) = held.first() else {
                break;
            };
            if Instant::now() > deadline {
                self.left = held.len();
                self.find("leftover", format!("`{key}` is still held, {ttl} ms to go"));
                break;
            }
            std::thread::sleep(STEP);
        }
        // The permits of dead holders come back when somebody asks for them.
        let ways = self.site.workload.ways();
        for (key, _) in ways.iter().filter(|(_, how)| *how == How::Permits) {
            let url = self.site.url(0);
            if let Err(error) = runtime.block_on(client::take_all_permits(&url, key)) {
                self.find(
                    "leftover",
                    format!("`{key}` does not have all of its permits: {error}"),
                );
            }
        }
    }
}
