//! The tasks that torture does not have: bodies that the library runs under a lock.
//!
//! A body says that it is certain of its hold whenever it is polled, without asking: the library looks for a loss before
//! each poll, and drops a body whose hold is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use lock_runtime::{
    FencingToken, Lease, LockError, LockGuard, LockManager, distributed_lock, simulation,
};
use tests::Hold;
use tests::history::now_ns;
use tests::judge::{Log, names};
use tests::workload::{AT_ITS_RELEASE, How, Resource, WAIT, kind};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_lock::LockLayer;

use crate::plan::MS;
use crate::work::Way;
use crate::world::locked;

/// The way in which a body comes under its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Run,
    Attribute,
    Layer,
    /// As the leader of an election.
    Lead,
    /// With calls inside it that take the same lock again.
    Nested,
    /// A write that becomes a read.
    Downgrade,
    /// Without a lock: it draws ids.
    Ids,
    /// Without others: no other process uses its lock.
    Alone,
}

impl Manner {
    pub(crate) fn keys(self) -> &'static [&'static str] {
        match self {
            Manner::Run => &["run-1"],
            Manner::Attribute => &["attribute-1"],
            Manner::Layer => &["layer-1"],
            Manner::Lead => &["lead-1"],
            Manner::Nested => &["nested-1"],
            Manner::Downgrade => &["rw-2"],
            Manner::Ids => &["beside-ids"],
            Manner::Alone => &["alone"],
        }
    }

    pub(crate) fn how(self) -> How {
        match self {
            Manner::Downgrade => How::Write,
            // At a quorum, there are neither.
            Manner::Ids => How::Fair,
            _ => How::Mutex,
        }
    }
}

/// Where a task says what it did.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) log: Arc<Mutex<Log>>,
    /// The process and the task: `c1.0`.
    pub(crate) holder: String,
    /// Whether it is printed, too.
    pub(crate) tells: bool,
}

impl Note {
    pub(crate) fn say(&self, line: &str) {
        if self.tells {
            let now = simulation::now().as_secs_f64();
            println!("{now:>12.6} {} {line}", self.holder);
        }
        locked(&self.log).note(line);
    }
}

/// The ids that were drawn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Drawn(Arc<Mutex<AllDrawn>>);

#[derive(Debug, Default)]
struct AllDrawn {
    ids: BTreeSet<i64>,
    calls: u64,
    /// The ids of each process, by the number of the call.
    by_process: BTreeMap<String, BTreeMap<u64, Vec<i64>>>,
    repeated: Vec<String>,
}

impl Drawn {
    /// Numbers a call.
    fn calls(&self) -> u64 {
        let all = &mut *locked(&self.0);
        all.calls += 1;
        all.calls
    }

    fn add(&self, call: u64, ids: Vec<i64>, holder: &str) {
        let all = &mut *locked(&self.0);
        for id in &ids {
            if !all.ids.insert(*id) {
                let repeated = format!("{holder} drew {id}, which somebody had");
                all.repeated.push(repeated);
            }
        }
        let process = names::client_of(holder).to_owned();
        all.by_process.entry(process).or_default().insert(call, ids);
    }

    pub(crate) fn repeated(&self) -> Vec<String> {
        locked(&self.0).repeated.clone()
    }

    /// The ids of one process that do not rise in the order of the calls.
    pub(crate) fn fell(&self) -> Vec<String> {
        let all = locked(&self.0);
        let mut fell = Vec::new();
        for (process, calls) in &all.by_process {
            let ids: Vec<i64> = calls.values().flatten().copied().collect();
            let pairs = ids.windows(2).filter(|pair| pair[1] <= pair[0]);
            fell.extend(pairs.map(|pair| format!("{process} got {} after {}", pair[1], pair[0])));
        }
        fell
    }
}

/// One use of a lock that no other process uses.
#[derive(Debug, Clone)]
pub(crate) struct Use {
    pub(crate) holder: String,
    pub(crate) asked: Duration,
    pub(crate) granted: Duration,
    pub(crate) leaving: Duration,
    pub(crate) ended: Duration,
    pub(crate) went: Result<(), String>,
}

/// The uses of locks that one process uses alone, and the times in which something disturbed them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Alone(Arc<Mutex<(Vec<Use>, Vec<Disturbed>)>>);

/// The process, or all of them, since when, and until when.
type Disturbed = (Option<String>, Duration, Duration);

impl Alone {
    /// Something strikes this process, or all of them.
    pub(crate) fn disturb(&self, process: Option<String>, from: Duration, until: Duration) {
        locked(&self.0).1.push((process, from, until));
    }

    pub(crate) fn undisturbed(&self) -> Vec<Use> {
        let (uses, disturbed) = &*locked(&self.0);
        let is_disturbed = |it: &Use| {
            let process = names::client_of(&it.holder);
            disturbed.iter().any(|(who, from, until)| {
                who.as_deref().is_none_or(|who| who == process)
                    && *from < it.ended
                    && it.asked < *until
            })
        };
        uses.iter()
            .filter(|it| !is_disturbed(it))
            .cloned()
            .collect()
    }
}

/// A hold that is certain whenever its body is polled. It is recorded when the body ends or is dropped.
struct Certain {
    note: Note,
    hold: Hold,
    weight: Option<u64>,
}

impl Certain {
    fn begin(body: &Body, key: &str, token: Option<FencingToken>, weight: Option<u64>) -> Self {
        let now = now_ns();
        Self {
            note: body.note.clone(),
            hold: Hold {
                key: key.to_owned(),
                holder: body.holder.clone(),
                token: token.map(FencingToken::get),
                from: now,
                until: now,
            },
            weight,
        }
    }

    fn is_polled(&mut self) {
        self.hold.until = now_ns();
    }
}

impl Drop for Certain {
    fn drop(&mut self) {
        match self.weight {
            None => self.note.say(&self.hold.to_string()),
            Some(weight) => self.note.say(&format!("share {weight} {}", self.hold)),
        }
    }
}

/// One cycle of a task.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) manner: Manner,
    pub(crate) holder: String,
    pub(crate) note: Note,
    pub(crate) way: Way,
    pub(crate) ids: Drawn,
    pub(crate) alone: Alone,
}

#[distributed_lock(key = "attribute-1", manager = locks, wait = "2s", guard = lease)]
async fn attributed(locks: &LockManager, body: &mut Body) -> Result<(), LockError> {
    body.works(lease.fencing_token()).await;
    Ok(())
}

/// Gives a lock back. The body is done: a loss that only the release tells came after it.
async fn released(guard: LockGuard) -> Result<(), LockError> {
    let was_held = guard.is_held();
    let mut released = guard.release().await;
    if let Err(LockError::Lost { completed, .. }) = &mut released {
        *completed = was_held;
    }
    released
}

impl Body {
    /// Comes under the lock, works, and says how that went.
    pub(crate) async fn run(mut self, locks: &LockManager) {
        let (note, holder, key) = (
            self.note.clone(),
            self.holder.clone(),
            self.manner.keys()[0],
        );
        let ended = match self.manner {
            Manner::Run => {
                let request = locks.mutex(key).wait(WAIT);
                request
                    .run(async |lease| self.works(lease.fencing_token()).await)
                    .await
            }
            Manner::Attribute => attributed(locks, &mut self).await,
            Manner::Layer => return self.serves(locks, key).await,
            Manner::Alone => self.is_alone(locks, key).await,
            Manner::Lead => {
                let body = Arc::new(tokio::sync::Mutex::new(self));
                let leads = async |lease: Lease| {
                    let mut body = body.lock().await;
                    body.works(lease.fencing_token()).await;
                };
                let term = locks.elect(key).lead(leads);
                match tokio::time::timeout(WAIT, term).await {
                    Ok(ended) => ended,
                    Err(_) => return note.say("none dropped"),
                }
            }
            Manner::Nested => {
                let request = locks.mutex(key).wait(WAIT);
                let nested = request.run(async |lease| self.nests(locks, lease).await);
                nested.await.and_then(|ended| ended)
            }
            Manner::Downgrade => self.downgrades(locks, key).await,
            Manner::Ids => {
                let count = self.way.rng.u32(1..20);
                let call = self.ids.calls();
                let drawn = locks.ids("ids").take(count).await;
                drawn.map(|ids| self.ids.add(call, ids, &holder))
            }
        };
        match ended {
            Ok(()) => note.say("end ok"),
            Err(LockError::Lost {
                reason, completed, ..
            }) => {
                note.say("end lost");
                let why = if completed {
                    AT_ITS_RELEASE.to_owned()
                } else {
                    format!("{reason:?}")
                };
                note.say(&format!("loss {key} {holder} {} {why}", now_ns()));
            }
            Err(error) => note.say(&format!("none {}", kind(&error))),
        }
    }

    /// The body: it touches the resource, and takes a while.
    async fn works(&mut self, token: Option<FencingToken>) {
        let key = self.manner.keys()[0];
        let mut certain = Certain::begin(self, key, token, None);
        let number = token.map_or(0, FencingToken::get);
        let asked = now_ns();
        let entered = self.way.enter(key, number).await;
        certain.is_polled();
        let accepted = u8::from(entered.accepted);
        self.note.say(&format!(
            "write {key} {} {number} {} {accepted} 1 {asked} {}",
            self.holder,
            entered.number,
            now_ns()
        ));
        let steps = match self.way.rng.u8(..8) {
            0 => self.way.rng.u32(..500),
            _ => self.way.rng.u32(..4),
        };
        for _ in 0..steps {
            tokio::time::sleep(5 * MS).await;
            certain.is_polled();
        }
        if entered.accepted {
            self.way.set(key, entered.value + 1).await;
            certain.is_polled();
        }
    }

    /// Takes the same lock again: first in one call, and then in two that take turns.
    async fn nests(&mut self, locks: &LockManager, lease: Lease) -> Result<(), LockError> {
        let key = self.manner.keys()[0];
        let inner = locks.mutex(key).wait(WAIT).acquire().await?;
        assert_eq!(
            inner.fencing_token(),
            lease.fencing_token(),
            "it is one hold"
        );
        self.works(lease.fencing_token()).await;
        inner.release().await?;
        let turn = async |number: u32| {
            let request = locks.mutex(key).wait(WAIT);
            let inner = async |lease: Lease| {
                // Of two siblings, one is inside at a time.
                let key = format!("inside-{}", self.holder);
                let mut certain = Certain::begin(self, &key, None, None);
                tokio::time::sleep(MS * number).await;
                certain.is_polled();
                lease.is_held()
            };
            request.run(inner).await
        };
        let (first, second) = tokio::join!(turn(3), turn(2));
        first?;
        second?;
        Ok(())
    }

    async fn downgrades(&mut self, locks: &LockManager, key: &str) -> Result<(), LockError> {
        let mut guard = locks.write(key).wait(WAIT).acquire().await?;
        let mut writes = Certain::begin(self, key, guard.fencing_token(), Some(names::WRITER));
        tokio::time::sleep(2 * MS).await;
        if guard.is_held() {
            writes.is_polled();
        }
        drop(writes);
        guard.downgrade().await?;
        let mut reads = Certain::begin(self, key, None, Some(1));
        let steps = match self.way.rng.u8(..16) {
            // Only renewals of a read keep it for so long.
            0 => self.way.rng.u32(60..300),
            _ => self.way.rng.u32(..20),
        };
        for _ in 0..steps {
            tokio::time::sleep(5 * MS).await;
            if !guard.is_held() {
                break;
            }
            reads.is_polled();
        }
        drop(reads);
        released(guard).await
    }

    /// Takes a lock that no other process uses, and holds it for up to two leases.
    async fn is_alone(&mut self, locks: &LockManager, key: &str) -> Result<(), LockError> {
        let key = format!("{key}-{}", names::client_of(&self.holder));
        let asked = simulation::now();
        let acquired = locks.mutex(&*key).wait(WAIT).acquire().await;
        let granted = simulation::now();
        let mut leaving = granted;
        let went = match acquired {
            Ok(guard) => {
                let time = match self.way.rng.u8(..8) {
                    0 => MS * self.way.rng.u32(..2_000),
                    _ => MS * self.way.rng.u32(..10),
                };
                tokio::time::sleep(time).await;
                leaving = simulation::now();
                released(guard).await
            }
            Err(error) => Err(error),
        };
        locked(&self.alone.0).0.push(Use {
            holder: self.holder.clone(),
            asked,
            granted,
            leaving,
            ended: simulation::now(),
            went: went.as_ref().copied().map_err(LockError::to_string),
        });
        went
    }

    /// Serves a request behind the layer.
    async fn serves(self, locks: &LockManager, key: &'static str) {
        let note = self.note.clone();
        let body = Arc::new(tokio::sync::Mutex::new(self));
        let served = service_fn(move |request: Request<()>| {
            let body = body.clone();
            async move {
                let lease = Lease::current();
                let token = lease.and_then(|lease| lease.fencing_token());
                body.lock().await.works(token).await;
                drop(request);
                Ok::<_, Infallible>(Response::new(String::new()))
            }
        });
        let layer = LockLayer::new(locks.clone(), move |_: &Request<()>| Some(key)).wait(WAIT);
        let mut service = layer.layer(served);
        let answer = match service.ready().await {
            Ok(service) => service.call(Request::new(())).await,
            Err(never) => Err(never),
        };
        match answer {
            Ok(answer) if answer.status().is_success() => note.say("end ok"),
            Ok(answer) if answer.status() == http::StatusCode::CONFLICT => note.say("none busy"),
            Ok(_) | Err(_) => note.say("none unavailable"),
        }
    }
}
