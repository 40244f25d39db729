//! One round: fresh servers, fresh clients, one fault or two, and what came of it.

use std::time::{Duration, Instant};

use fastrand::Rng;
use tests::history::now_ns;
use tokio::runtime::Runtime;

use crate::LEASE;
use crate::checks::{self, Finding};
use crate::crew::{Crew, Job};
use crate::faults::{Fault, Scene};
use crate::keys;
use crate::log::Log;
use crate::planted::Planted;
use crate::site::Site;

const CLIENTS: usize = 3;
/// Holds of each client before the first fault, and for a round to count.
const WARM: u64 = 30;
const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(5);
/// Every hot key has to be held again so soon after the fault: 6.6 s until the places of dead waiters of a fair lock
/// are deserted, a lease before that, and a busy machine.
const RECOVERY: Duration = Duration::from_secs(10);
/// How long a round without a fault goes on, and one with a fault after its recovery.
const CALM: Duration = Duration::from_millis(1_200);
/// What the second of two faults has to itself at least.
const ALONE: Duration = Duration::from_millis(1_000);
const AFTER: Duration = Duration::from_millis(250);

/// What a round is to do.
pub(crate) struct Plan<'a> {
    pub(crate) number: u64,
    pub(crate) seed: u64,
    /// None: a calm round, in which nothing may be lost.
    pub(crate) faults: Vec<Box<dyn Fault>>,
    /// How often they strike.
    pub(crate) strikes: u32,
    pub(crate) planted: Option<&'a Planted>,
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) log: Log,
    pub(crate) overlaps: usize,
    /// Of which key, and how long after the fault it was held again.
    pub(crate) recoveries: Vec<(&'static str, Duration)>,
    pub(crate) proofs: Vec<String>,
    pub(crate) findings: Vec<Finding>,
    /// Calls of broken scripts.
    pub(crate) rewrites: u64,
    /// From the beginning of a fault to its end.
    pub(crate) strikes: Vec<(u64, u64)>,
    /// From the moment when every client was at work to the end.
    pub(crate) span: (u64, u64),
}

/// What the checks have to know about a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) calm: bool,
    pub(crate) loses_locks: bool,
    pub(crate) denies: bool,
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

    pub(crate) fn run(mut self, runtime: &Runtime) -> Outcome {
        let name = self.name();
        let terms = Terms {
            calm: self.faults.is_empty(),
            loses_locks: self.faults.iter().any(|fault| fault.loses_locks()),
            denies: self.faults.iter().any(|fault| fault.denies()),
        };
        let durable = self.faults.iter().any(|fault| fault.needs_disk());
        let site = Site::standalone(runtime, durable);
        if let Some(planted) = self.planted {
            planted.plant(&site);
        }
        let job = Job {
            url: site.proxy.url(),
            resource: site.resource.url(),
            seed: self.seed,
            checked: self.planted.is_none_or(|planted| planted.checks_tokens()),
        };
        let mut stage = Stage {
            crew: Crew::start(job, CLIENTS),
            site,
            rng: Rng::with_seed(self.seed),
            findings: Vec::new(),
            proofs: Vec::new(),
            strikes: Vec::new(),
        };
        let from = now_ns();
        stage.warm_up();
        if terms.calm {
            stage.wait(CALM, &mut []);
        }
        for _ in 0..self.strikes {
            stage.strike(&mut self.faults);
            stage.recover();
            if !stage.findings.is_empty() {
                break;
            }
        }
        stage.finish(terms);
        let mut findings = stage.findings;
        findings.extend(checks::all(&stage.crew.log, &stage.site, terms));
        let recoveries = stage.strikes.iter();
        Outcome {
            number: self.number,
            name,
            overlaps: checks::overlaps(&stage.crew.log).len(),
            recoveries: recoveries
                .flat_map(|(_, healed)| checks::recoveries(&stage.crew.log, *healed))
                .collect(),
            log: stage.crew.log,
            proofs: stage.proofs,
            rewrites: stage.site.proxy.rewrites(),
            findings,
            strikes: stage.strikes,
            span: (from, now_ns()),
        }
    }
}

struct Stage {
    site: Site,
    crew: Crew,
    rng: Rng,
    findings: Vec<Finding>,
    proofs: Vec<String>,
    strikes: Vec<(u64, u64)>,
}

impl Stage {
    fn find(&mut self, check: &'static str, what: String) {
        self.findings.push(Finding { check, what });
    }

    fn warm_up(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while (0..CLIENTS).any(|client| self.crew.holds(client) < WARM) {
            if Instant::now() > deadline || self.crew.has_deserter() {
                let holds: Vec<u64> = (0..CLIENTS).map(|client| self.crew.holds(client)).collect();
                self.find(
                    "operations",
                    format!("only {holds:?} holds in {PATIENCE:?}"),
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
        }
    }

    /// The faults begin one after the other, overlap, and end in the same order: each has the scene to itself for a
    /// while, so that each can show its effect.
    fn strike(&mut self, faults: &mut [Box<dyn Fault>]) {
        let [first, rest @ ..] = faults else { return };
        let mut lasts = |fault: &dyn Fault| Duration::from_millis(self.rng.u64(fault.lasts()));
        let time = lasts(first.as_ref());
        let second = rest
            .first_mut()
            .map(|second| (lasts(second.as_ref()), second));
        let from = now_ns();
        first.begin(&mut self.scene());
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
        self.strikes.push((from, now_ns()));
    }

    fn heal(&mut self, fault: &mut Box<dyn Fault>) {
        let proof = fault.end(&mut self.scene());
        match proof {
            Ok(proof) => self.proofs.push(format!("{}: {proof}", fault.name())),
            Err(doubt) => self.find("fault-fired", format!("{}: {doubt}", fault.name())),
        }
    }

    fn recover(&mut self) {
        let Some((_, healed)) = self.strikes.last().copied() else {
            return;
        };
        let deadline = Instant::now() + RECOVERY;
        while checks::recoveries(&self.crew.log, healed).len() < keys::HOT.len() {
            if Instant::now() > deadline {
                let back = checks::recoveries(&self.crew.log, healed).len();
                self.find(
                    "recovery",
                    format!(
                        "{back} of {} hot keys held again in {RECOVERY:?}",
                        keys::HOT.len()
                    ),
                );
                return;
            }
            self.wait(STEP, &mut []);
        }
        self.wait(AFTER, &mut []);
    }

    fn finish(&mut self, terms: Terms) {
        if !self.crew.stop() {
            self.find("clients", "a client died or did not stop".to_owned());
        }
        let few = self.crew.log.operations();
        if few < 2 * WARM * CLIENTS as u64 {
            self.find("operations", format!("only {few}"));
        }
        // What a killed or frozen client left behind ends with its lease; after a calm round, nothing is left behind.
        let lease = if terms.calm { Duration::ZERO } else { LEASE };
        let deadline = Instant::now() + lease + Duration::from_millis(250);
        let left = |site: &Site| {
            keys::ALL
                .iter()
                .find(|key| site.server.exists(&format!("lock:{key}")))
        };
        while let Some(key) = left(&self.site) {
            if Instant::now() > deadline {
                let ttl = self.site.server.pttl(&format!("lock:{key}"));
                self.find("leftover", format!("`{key}` is still held, {ttl} ms to go"));
                return;
            }
            std::thread::sleep(STEP);
        }
    }
}
