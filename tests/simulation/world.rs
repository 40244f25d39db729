//! The turns of processes and stores, and what strikes them.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use lock_runtime::simulation::{self, Process, Store};
use lock_runtime::{LockError, LockManager};
use tests::history::record_by;
use tests::judge::Log;
use tests::judge::names::client_name;
use tests::workload::{How, Task, set_permits};

use crate::body::{Alone, Body, Drawn, Note};
use crate::network::Roads;
use crate::plan::{LEASE, MS, Plan, Strike};
use crate::verdict::{self, Verdict};
use crate::work::{Job, Registers, Way};

/// How long the tasks may take to come to their end when all goes well again: the longest wait, a hold, and pauses.
const WINDING_DOWN: Duration = Duration::from_secs(30);
/// How long a free key may take to be had at the end, by one process after the other.
pub(crate) const LAST_WAIT: Duration = Duration::from_secs(20);

/// The number of turns in the end, when there are no more.
pub(crate) const OVER: u64 = u64::MAX;

pub(crate) struct World {
    plan: Plan,
    /// The number of turns so far, or [`OVER`].
    pub(crate) turns: Arc<AtomicU64>,
    rng: Rng,
    now: Duration,
    stores: Vec<Store>,
    roads: Roads,
    crew: Vec<Member>,
    begun: usize,
    registers: Registers,
    ids: Drawn,
    alone: Alone,
    strikes: VecDeque<(Duration, Strike)>,
    pub(crate) log: Arc<Mutex<Log>>,
    /// Whether every line that is said is printed.
    tells: bool,
}

struct Member {
    process: Process,
    locks: LockManager,
    stop: Arc<AtomicBool>,
    /// Tasks that have not ended.
    tasks: Arc<Mutex<usize>>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Runs,
    Frozen {
        until: Duration,
    },
    Suspended {
        since: Duration,
        until: Duration,
        boot: bool,
    },
    /// It was killed, and another one begins then.
    Dead {
        until: Duration,
    },
    /// It shuts down, and another one begins when it has.
    Leaves,
}

/// A task that counts as one that has not ended, until this is dropped.
struct Ended(Arc<Mutex<usize>>);

impl Drop for Ended {
    fn drop(&mut self) {
        *locked(&self.0) -= 1;
    }
}

/// Repeats one of torture's tasks until it is to stop.
async fn cycles(mut task: Task<Way>, note: Note, mut rng: Rng, ended: Ended) {
    if task.work.how == How::Permits {
        set_permits(&task.locks, task.work.keys[0]).await;
    }
    for cycle in 0.. {
        if task.stop.load(SeqCst) {
            break;
        }
        task.cycle(cycle).await;
        for line in task.said.lines() {
            note.say(line);
        }
        task.said.clear();
        // Work takes time, which no clock shows that stands still while anything runs.
        if rng.u8(..4) != 0 {
            tokio::time::sleep(MS * rng.u32(1..4)).await;
        }
    }
    drop(ended);
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ns() -> u64 {
    u64::try_from(simulation::now().as_nanos()).unwrap_or(u64::MAX)
}

impl World {
    pub(crate) fn of(plan: Plan, tells: bool) -> Self {
        record_by(now_ns);
        // The library draws from this thread's generator.
        fastrand::seed(plan.seed);
        let mut rng = Rng::with_seed(plan.seed ^ 0x9e37_79b9_7f4a_7c15);
        let roads = Roads::new(plan.weather, rng.fork());
        let mut stores: Vec<Store> = (0..plan.stores).map(Store::new).collect();
        for store in &mut stores {
            store.set_rate(plan.rate);
        }
        let mut world = Self {
            rng,
            now: Duration::ZERO,
            stores,
            roads,
            crew: Vec::new(),
            begun: 0,
            registers: Registers::default(),
            ids: Drawn::default(),
            alone: Alone::default(),
            strikes: plan.strikes.iter().copied().collect(),
            log: Arc::default(),
            tells,
            turns: Arc::default(),
            plan,
        };
        for _ in 0..world.plan.processes {
            let member = world.begin();
            world.crew.push(member);
        }
        world
    }

    /// Begins a process with its tasks.
    fn begin(&mut self) -> Member {
        let number = self.begun;
        self.begun += 1;
        let process = Process::new(number, self.now);
        let builder = LockManager::builder().lease(LEASE);
        let passing = self.roads.passing();
        let locks = simulation::manager(builder, &process, &mut self.stores, &passing);
        let locks = locks.expect("the options are good");
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = Arc::new(Mutex::new(self.plan.jobs.len()));
        for (index, job) in self.plan.jobs.clone().into_iter().enumerate() {
            let way = Way {
                registers: self.registers.clone(),
                rng: self.rng.fork(),
            };
            let holder = format!("{}.{index}", client_name(number));
            let note = Note {
                log: self.log.clone(),
                holder: holder.clone(),
                tells: self.tells,
            };
            let ended = Ended(tasks.clone());
            let (mut rng, stop) = (self.rng.fork(), stop.clone());
            match job {
                Job::Cycle(work) => {
                    let task = Task {
                        work,
                        locks: locks.clone(),
                        resource: way,
                        rng: self.rng.fork(),
                        holder,
                        previous: Vec::new(),
                        stop,
                        said: String::new(),
                        tries: false,
                    };
                    process.spawn(cycles(task, note, rng, ended));
                }
                Job::Body(manner) => {
                    let (locks, ids, alone) = (locks.clone(), self.ids.clone(), self.alone.clone());
                    process.spawn(async move {
                        for cycle in 0.. {
                            if stop.load(SeqCst) {
                                break;
                            }
                            let body = Body {
                                manner,
                                holder: format!("{}.{cycle}", note.holder),
                                note: note.clone(),
                                way: Way {
                                    registers: way.registers.clone(),
                                    rng: rng.fork(),
                                },
                                ids: ids.clone(),
                                alone: alone.clone(),
                            };
                            body.run(&locks).await;
                            tokio::time::sleep(MS * rng.u32(1..6)).await;
                        }
                        drop(ended);
                    });
                }
            }
        }
        Member {
            process,
            locks,
            stop,
            tasks,
            state: State::Runs,
        }
    }

    /// Runs the plan, and what has to be possible afterwards. Writes what was said into the folder `histories`, for another
    /// judge.
    pub(crate) fn run(mut self, histories: Option<&Path>) -> Verdict {
        let lasts = self.plan.lasts;
        self.run_until(lasts);
        self.roads.calm_down();
        for member in &mut self.crew {
            member.stop.store(true, SeqCst);
        }
        let mut found = Vec::new();
        let deadline = self.now + WINDING_DOWN;
        while self.now < deadline && !self.is_done() {
            self.turn();
        }
        for member in self.crew.iter().filter(|it| it.state == State::Runs) {
            let left = *locked(&member.tasks);
            if left > 0 {
                found.push(format!(
                    "{left} tasks of {} have not ended {WINDING_DOWN:?} after all was well again",
                    client_name(member.process.number())
                ));
            }
        }
        let mut verdict = Verdict::new();
        verdict.find("ending", found);
        verdict.find("last-wait", self.last_waits());
        verdict.find("at-rest", self.kept_at_rest());
        verdict.find("leftover", self.leftovers());
        self.turns.store(OVER, Relaxed);
        if !self.plan.may_repeat_ids() {
            verdict.find("ids", self.ids.repeated());
            verdict.find("ids-order", self.ids.fell());
        }
        let log = locked(&self.log);
        let (plan, registers) = (&self.plan, &self.registers);
        verdict::judge(&mut verdict, &log, plan, registers, &self.alone);
        if let Some(folder) = histories {
            verdict.write_histories(folder, self.plan.seed, &log);
        }
        verdict.messages = self.roads.messages();
        verdict.lasted = self.now;
        drop(log);
        // Nothing is left to do, and a process that is dropped would try.
        for member in self.crew {
            std::mem::forget(member);
        }
        verdict
    }

    fn is_done(&self) -> bool {
        self.crew.iter().all(|member| match member.state {
            State::Runs => *locked(&member.tasks) == 0,
            _ => false,
        })
    }

    fn run_until(&mut self, time: Duration) {
        while self.now < time {
            self.turn();
        }
    }

    /// One quantum of everything.
    fn turn(&mut self) {
        while let Some((at, strike)) = self.strikes.front().copied()
            && at <= self.now
        {
            self.strikes.pop_front();
            self.strike(strike);
        }
        let until = self.now + self.plan.weather.least;
        for store in &mut self.stores {
            store.run_until(until);
        }
        for place in 0..self.crew.len() {
            self.let_run(place, until);
        }
        self.now = until;
        self.turns.fetch_add(1, Relaxed);
    }

    fn let_run(&mut self, place: usize, until: Duration) {
        let now = self.now;
        let member = &mut self.crew[place];
        match member.state {
            State::Runs => {}
            State::Leaves if *locked(&member.tasks) > 0 => {}
            State::Frozen { until: thaws } if now >= thaws => {
                member.process.thaw(now);
                member.state = State::Runs;
            }
            State::Suspended {
                since,
                until: resumes,
                boot,
            } if now >= resumes => {
                member.process.resume(now - since, boot);
                member.state = State::Runs;
            }
            State::Dead { until: begins } if now >= begins => {
                let next = self.begin();
                let dead = std::mem::replace(&mut self.crew[place], next);
                // Its manager would give back what it has.
                std::mem::forget(dead.locks);
                dead.process.kill();
            }
            State::Leaves => {
                let next = self.begin();
                let left = std::mem::replace(&mut self.crew[place], next);
                let number = left.process.number();
                let _here = left.process.enter();
                drop(left.locks);
                drop(_here);
                left.process.end();
                self.hang_up(number);
            }
            _ => return,
        }
        self.crew[place].process.run_until(until);
    }

    fn hang_up(&mut self, process: usize) {
        for store in &mut self.stores {
            store.hang_up(process);
        }
    }

    /// Notes which processes a strike can disturb in the use of their own keys, and for how long.
    fn disturb(&self, strike: Strike) {
        use Strike::{
            CutOff, Fade, Force, Forget, ForgetKey, Freeze, Kill, Mute, Refuse, Shutdown, Silence,
            Stand, Step, Suspend,
        };
        let (place, time) = match strike {
            Freeze(place, time)
            | Suspend(place, time, _)
            | CutOff(place, time)
            | Refuse(place, time) => (Some(place), time),
            Fade(place, by, time) => (Some(place), by + time),
            Kill(place, _) | Shutdown(place) => (Some(place), Duration::MAX),
            Silence(_, time) | Stand(_, time) | Step(_, time) => (None, time),
            Forget(_) => (None, Duration::ZERO),
            // They are about other keys, or about messages that nobody waits for.
            ForgetKey(..) | Force(_) | Mute(_) => return,
        };
        let process = place.map(|place| client_name(self.crew[place].process.number()));
        let until = self.now.saturating_add(time).saturating_add(LEASE);
        self.alone.disturb(process, self.now, until);
    }

    fn strike(&mut self, strike: Strike) {
        let now = self.now;
        self.disturb(strike);
        match strike {
            Strike::Freeze(place, time) => {
                self.stop(place, State::Frozen { until: now + time });
            }
            Strike::Suspend(place, time, boot) => {
                let until = now + time;
                self.stop(
                    place,
                    State::Suspended {
                        since: now,
                        until,
                        boot,
                    },
                );
            }
            Strike::Kill(place, time) => {
                if self.stop(place, State::Dead { until: now + time }) {
                    let number = self.crew[place].process.number();
                    locked(&self.log).killed.push(client_name(number));
                    self.hang_up(number);
                }
            }
            Strike::Shutdown(place) => {
                if self.stop(place, State::Leaves) {
                    let member = &self.crew[place];
                    member.stop.store(true, SeqCst);
                    *locked(&member.tasks) += 1;
                    let (locks, ended) = (member.locks.clone(), Ended(member.tasks.clone()));
                    member.process.spawn(async move {
                        locks.shutdown().await;
                        drop(ended);
                    });
                }
            }
            Strike::CutOff(place, time) => {
                self.roads
                    .cut_off(self.crew[place].process.number(), now + time);
            }
            Strike::Refuse(place, time) => {
                self.roads
                    .refuse(self.crew[place].process.number(), now + time);
            }
            Strike::Fade(place, by, time) => {
                let number = self.crew[place].process.number();
                self.roads.delay(number, by, now + time);
                let cut_off = Strike::CutOff(place, 2 * LEASE);
                let at = self.strikes.partition_point(|(at, _)| *at < now + time);
                self.strikes.insert(at, (now + time, cut_off));
            }
            Strike::Silence(store, time) => self.roads.silence(store, now + time),
            Strike::Mute(time) => self.roads.mute(now + time),
            Strike::Forget(store) => self.stores[store].forget(),
            Strike::ForgetKey(store, key) => self.stores[store].forget_key(key),
            Strike::Step(store, time) => self.stores[store].step(time),
            Strike::Stand(store, time) => self.stores[store].stand_still(time),
            Strike::Force(place) => {
                let member = &self.crew[place];
                let (locks, job) = (member.locks.clone(), self.rng.choice(&self.plan.jobs));
                let Some(key) = job.and_then(|job| job.work().keys.first()) else {
                    return;
                };
                member.process.spawn(async move {
                    let _ = locks.force_release(*key).await;
                });
            }
        }
    }

    /// Only a process that runs can be struck. True if it does.
    fn stop(&mut self, place: usize, state: State) -> bool {
        let member = &mut self.crew[place];
        let runs = member.state == State::Runs;
        if runs {
            member.state = state;
        }
        runs
    }

    /// Each process takes each key once more. Returns what it could not have.
    fn last_waits(&mut self) -> Vec<String> {
        let found = Arc::new(Mutex::new(Vec::new()));
        let mut keys: Vec<_> = self.plan.jobs.iter().map(|job| job.work()).collect();
        keys.sort_by_key(|work| work.keys);
        keys.dedup_by_key(|work| work.keys);
        let left = Arc::new(Mutex::new(self.crew.len()));
        for member in &self.crew {
            let (locks, keys, found) = (member.locks.clone(), keys.clone(), found.clone());
            let ended = Ended(left.clone());
            let name = client_name(member.process.number());
            member.process.spawn(async move {
                for work in keys {
                    let key = work.keys[0];
                    let request = match work.how {
                        How::Fair => locks.fair(key),
                        How::Read | How::Write => locks.write(key),
                        How::Permits => {
                            set_permits(&locks, key).await;
                            locks.semaphore(key).permits(1)
                        }
                        _ => locks.mutex(key),
                    };
                    let taken = async {
                        let guard = request.wait(LAST_WAIT).acquire().await?;
                        guard.release().await
                    };
                    let taken: Result<(), LockError> = taken.await;
                    if let Err(error) = taken {
                        locked(&found).push(format!("{name}: `{key}`: {error}"));
                    }
                }
                drop(ended);
            });
        }
        let deadline = self.now + LAST_WAIT * 2 * u32::try_from(keys.len()).unwrap_or(1);
        while self.now < deadline && *locked(&left) > 0 {
            self.turn();
        }
        if *locked(&left) > 0 {
            locked(&found).push("some waits did not end".to_owned());
        }
        std::mem::take(&mut *locked(&found))
    }

    /// Nobody uses anything any more. Returns what managers and stores still have.
    fn kept_at_rest(&mut self) -> Vec<String> {
        // Locks that their processes keep, leases of the dead, and listeners of those who waited end by then.
        self.run_until(self.now + 4 * LEASE);
        let mut found = Vec::new();
        for member in &self.crew {
            let name = client_name(member.process.number());
            let sizes = simulation::sizes(&member.locks).into_iter();
            let left = sizes.filter(|(_, size)| *size > 0);
            found.extend(left.map(|(what, size)| format!("{name} has {size} {what}")));
        }
        found.extend(self.left_in_stores());
        found
    }

    fn left_in_stores(&mut self) -> Vec<String> {
        let left = self.stores.iter_mut().filter_map(|store| {
            let [held, queues, topics] = store.left();
            (held + topics > 0).then(|| {
                format!("{store:?} has {held} held keys, {queues} queues and {topics} topics left")
            })
        });
        left.collect()
    }

    /// All processes shut down. Returns what they left behind.
    fn leftovers(&mut self) -> Vec<String> {
        let left = Arc::new(Mutex::new(self.crew.len()));
        for member in &self.crew {
            let (locks, ended) = (member.locks.clone(), Ended(left.clone()));
            member.process.spawn(async move {
                locks.shutdown().await;
                drop(ended);
            });
        }
        let deadline = self.now + Duration::from_secs(15);
        while self.now < deadline && *locked(&left) > 0 {
            self.turn();
        }
        let mut found = Vec::new();
        if *locked(&left) > 0 {
            found.push("a shutdown did not end".to_owned());
        }
        // What nobody could give back ends with its lease, and a dead waiter's place some seconds later.
        self.run_until(self.now + LEASE + Duration::from_secs(2));
        found.extend(self.left_in_stores());
        for member in &self.crew {
            let tasks = member.process.tasks();
            if tasks > 0 {
                found.push(format!(
                    "{} has {tasks} tasks left",
                    client_name(member.process.number())
                ));
            }
        }
        found
    }
}
