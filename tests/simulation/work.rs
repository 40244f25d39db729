//! The tasks of a process, and the resource that their locks guard.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use tests::workload::{Entered, How, Resource, Work};

use crate::body::Manner;
use crate::plan::MS;

/// A task that each process has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Job {
    /// Torture's.
    Cycle(Work),
    /// A body that the library runs under a lock.
    Body(Manner),
}

impl Job {
    /// Its keys, and how one of them is taken alone.
    pub(crate) fn work(self) -> Work {
        match self {
            Job::Cycle(work) => work,
            Job::Body(manner) => Work {
                how: manner.how(),
                keys: manner.keys(),
            },
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Job::Cycle(work) => write!(f, "{:?} {}", work.how, work.keys.join("+")),
            Job::Body(manner) => write!(f, "{manner:?}"),
        }
    }
}

const fn job(how: How, keys: &'static [&'static str]) -> Job {
    Job::Cycle(Work { how, keys })
}

/// The groups of tasks that a plan chooses from.
const GROUPS: &[&[Job]] = &[
    &[job(How::Mutex, &["hot-1"]), job(How::Mutex, &["hot-1"])],
    &[
        job(How::Mutex, &["hot-2"]),
        job(How::Mutex, &["hot-2"]),
        job(How::Mutex, &["hot-2"]),
    ],
    &[job(How::Mutex, &["lone-1"])],
    &[job(How::Long, &["long-1"])],
    &[job(How::Long, &["long-2"]), job(How::Mutex, &["long-2"])],
    &[job(How::Whole, &["whole-1"]), job(How::Mutex, &["whole-1"])],
    &[job(How::Fair, &["fair-1"])],
    &[job(How::Fair, &["fair-1"]), job(How::Fair, &["fair-1"])],
    &[
        job(How::Read, &["rw-1"]),
        job(How::Read, &["rw-1"]),
        job(How::Write, &["rw-1"]),
    ],
    &[
        job(How::Read, &["rw-1"]),
        job(How::Write, &["rw-1"]),
        job(How::Write, &["rw-1"]),
    ],
    &[job(How::Permits, &["sem-1"]), job(How::Permits, &["sem-1"])],
    &[
        job(How::Multi, &["multi-1", "multi-2"]),
        job(How::Mutex, &["multi-2"]),
    ],
    &[job(How::Multi, &["multi-1", "multi-2"])],
    &[job(How::Try, &["try-1"])],
    &[job(How::Keep, &["keep-1"])],
    &[job(How::Keep, &["keep-2"]), job(How::Keep, &["keep-2"])],
    &[Job::Body(Manner::Run), Job::Body(Manner::Run)],
    &[Job::Body(Manner::Attribute), Job::Body(Manner::Attribute)],
    &[Job::Body(Manner::Layer), Job::Body(Manner::Layer)],
    &[Job::Body(Manner::Lead)],
    &[Job::Body(Manner::Nested), Job::Body(Manner::Nested)],
    &[Job::Body(Manner::Downgrade), job(How::Read, &["rw-2"])],
    &[Job::Body(Manner::Alone)],
    &[Job::Body(Manner::Ids)],
    &[
        Job::Body(Manner::Ids),
        Job::Body(Manner::Ids),
        Job::Body(Manner::Ids),
    ],
];

/// Chooses the tasks of each process.
pub(crate) fn choose(rng: &mut Rng, quorum: bool) -> Vec<Job> {
    loop {
        let groups = GROUPS.iter().filter(|_| rng.u8(..5) == 0);
        let mut jobs: Vec<Job> = groups.copied().flatten().copied().collect();
        if quorum {
            jobs.retain(|job| is_for_quorums(job.work().how));
        }
        if !jobs.is_empty() {
            return jobs;
        }
    }
}

/// Whether a quorum keeps such locks.
fn is_for_quorums(how: How) -> bool {
    matches!(
        how,
        How::Mutex | How::Long | How::Whole | How::Multi | How::Try
    )
}

/// The resource that all processes touch. No fault touches it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Registers(Arc<Mutex<BTreeMap<String, Register>>>);

#[derive(Debug, Default)]
struct Register {
    token: u64,
    accepted: u64,
    value: u64,
    writes: u64,
}

impl Registers {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Register>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many updates each counter lost.
    pub(crate) fn lost_updates(&self) -> Vec<(String, u64)> {
        let all = self.all();
        let lost = |(key, register): (&String, &Register)| {
            (key.clone(), register.writes.saturating_sub(register.value))
        };
        all.iter().map(lost).collect()
    }
}

/// The way of a task to the resource, which takes a while.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) registers: Registers,
    pub(crate) rng: Rng,
}

impl Way {
    async fn passes(&mut self) {
        let time = MS * self.rng.u32(..3);
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
    }
}

impl Resource for Way {
    async fn enter(&mut self, key: &str, token: u64) -> Entered {
        self.passes().await;
        let mut all = self.registers.all();
        let register = all.entry(key.to_owned()).or_default();
        let accepted = token >= register.token;
        if accepted {
            register.token = token;
            register.accepted += 1;
        }
        Entered {
            accepted,
            number: register.accepted,
            value: register.value,
        }
    }

    async fn set(&mut self, key: &str, value: u64) {
        self.passes().await;
        let mut all = self.registers.all();
        let register = all.entry(key.to_owned()).or_default();
        register.value = value;
        register.writes += 1;
    }
}
