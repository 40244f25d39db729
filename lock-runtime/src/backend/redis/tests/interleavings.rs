//! Tests of our scripts in random order against a model. The scripts run alone and in batches, between those of
//! older versions and Redisson's published steps, with second and late copies of each of ours. After every step, the
//! server must be in exactly the state of the model.

mod forms;
mod redisson;

use std::collections::HashMap;

use fastrand::Rng;
use redis::aio::MultiplexedConnection;

use self::forms::RequestForm;
use super::run;
use super::scripts::{CHANNEL, LOCK, QUEUE, WAITING, is_done};
use super::server::{self, TestServer};
use crate::backend::Renewed;
use crate::backend::redis::kinds::operators::ForceRelease;
use crate::backend::redis::scripting::exclusive::Renew;
use crate::backend::redis::scripting::outcomes::*;

const SEEDS: u64 = 10;
const STEPS: usize = 300;
/// The leases in ms, far longer than a run. Redisson uses the second.
const LEASES: [u64; 2] = [600_000, 300_000];
/// The id of our client, in any version.
const CLIENT: &str = "6f1c1a9e-0000-8000-8000-000000000002";

/// One request of ours, as it was sent. A copy is the same request again.
#[derive(Clone, Debug)]
enum SentRequest {
    Acquire {
        holder: String,
        lease: u64,
        not_after: u64,
    },
    Release {
        holder: String,
    },
    HandOver {
        from: String,
        to: String,
        lease: u64,
    },
    Renew {
        holder: String,
        ttl: u64,
    },
    ForceRelease,
}

/// The holder of the lock, and the number of its holds.
type State = Option<(String, u64)>;

struct ModelRun {
    connection: MultiplexedConnection,
    random: Rng,
    /// The state of the model.
    state: State,
    sent: Vec<SentRequest>,
    holders: u64,
    last_token: u64,
    /// The tokens that each holder has for later holders of its process: the last token that was used, and the last
    /// reserved token.
    ranges: HashMap<String, (u64, u64)>,
    trace: Vec<String>,
}

#[tokio::test]
async fn any_order_of_steps_gives_one_holder_a_ttl_and_rising_tokens() {
    let server = TestServer::start().await;
    let first: u64 = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    for seed in first..first + SEEDS {
        server.run("FLUSHALL").await;
        // The process of all holders listens: it waits on the list, and receives the messages of its reservations.
        let ours = format!("{CHANNEL}:ours");
        let own = format!("{CHANNEL}:{}", &CLIENT[..8]);
        let _listening = server.listen(&[CHANNEL, &ours, &own]).await;
        let mut run = ModelRun {
            connection: server.connection().await,
            random: Rng::with_seed(seed),
            state: None,
            sent: Vec::new(),
            holders: 0,
            last_token: 0,
            ranges: HashMap::new(),
            trace: Vec::new(),
        };
        for step in 0..STEPS {
            if let Err(wrong) = run.step().await {
                let trace = run.trace.join("\n");
                panic!("seed {seed}, step {step}: {wrong}\n{trace}");
            }
        }
    }
}

impl ModelRun {
    async fn step(&mut self) -> Result<(), String> {
        let before = self.state.clone();
        let left_before = self.left().await;
        let keeps_lease = match self.random.u8(..100) {
            0..40 => {
                let request = self.fresh().await;
                self.sent.push(request.clone());
                self.send(request).await?
            }
            40..70 if !self.sent.is_empty() => {
                // Late copies may be of any request that was ever sent. In half of the cases, only a recent request is
                // copied.
                let window = if self.random.bool() {
                    4
                } else {
                    self.sent.len()
                };
                let from = self.sent.len().saturating_sub(window);
                let request = self.sent[self.random.usize(from..self.sent.len())].clone();
                self.send(request).await?
            }
            _ => self.foreign().await?,
        };
        let actual = self.actual().await?;
        if actual != self.state {
            return Err(format!("expected {:?}, found {actual:?}", self.state));
        }
        let left = self.left().await;
        if actual.is_some() && left <= 0 {
            return Err(format!("a holder without an expiry: {left}"));
        }
        // The slack is for the time between the two measurements.
        if keeps_lease && before == actual && left + 10_000 < left_before {
            return Err(format!(
                "the lease was shortened from {left_before} to {left}"
            ));
        }
        Ok(())
    }

    /// Returns a request that was not sent before.
    async fn fresh(&mut self) -> SentRequest {
        let current = self.state.as_ref().map(|(holder, _)| holder.clone());
        let lease = LEASES[self.random.usize(..2)];
        match self.random.u8(..10) {
            0..4 => {
                self.holders += 1;
                // Some of the requests are already late, and others will be when a copy of them arrives.
                let time = redis::cmd("TIME");
                let reply = server::run(&mut self.connection, time).await.unwrap();
                let now = crate::backend::redis::connection::check::micros(&reply).unwrap();
                let not_after = now + self.random.u64(..20_000) - 1_000;
                SentRequest::Acquire {
                    holder: format!("{CLIENT}:{}", self.holders),
                    lease,
                    not_after,
                }
            }
            4..6 => SentRequest::Release {
                holder: self.somebody(current),
            },
            6..8 => {
                self.holders += 1;
                let to = format!("{CLIENT}:{}", self.holders);
                SentRequest::HandOver {
                    from: self.somebody(current),
                    to,
                    lease,
                }
            }
            8 => SentRequest::Renew {
                holder: self.somebody(current),
                ttl: lease,
            },
            _ => SentRequest::ForceRelease,
        }
    }

    /// Returns mostly the holder, if it is ours. Never returns a holder of another client, whose id we do not know.
    fn somebody(&mut self, current: Option<String>) -> String {
        match current {
            Some(holder) if holder.starts_with(CLIENT) && self.random.u8(..4) > 0 => holder,
            _ => format!("{CLIENT}:{}", self.random.u64(..=self.holders)),
        }
    }

    /// Sends one copy, checks the reply and updates the model. Returns `true` if the lease must not have become
    /// shorter.
    async fn send(&mut self, request: SentRequest) -> Result<bool, String> {
        // A copy may have another form than the first: a request that a batch left alone is sent by itself.
        let form = RequestForm::ALL[self.random.usize(..RequestForm::ALL.len())];
        self.trace.push(format!("{form:?} {request:?}"));
        let held_by =
            |state: &State, who: &str| state.as_ref().is_some_and(|(holder, _)| holder == who);
        let mut connection = self.connection.clone();
        match request {
            SentRequest::Acquire {
                holder,
                lease,
                not_after,
            } => {
                let first = self.first_on_list(&holder).await;
                let reply = self.acquire(form, &holder, lease, not_after).await?;
                match reply {
                    AcquireReply::Granted {
                        token,
                        time,
                        tenure,
                    } => {
                        if time > not_after {
                            return Err("granted too late".to_owned());
                        }
                        if self.state.is_some() && !held_by(&self.state, &holder) {
                            return Err(format!("granted beside {:?}", self.state));
                        }
                        self.state = Some((holder.clone(), 1));
                        let token = token.map_or(0, |token| token.get());
                        let last = tenure.and_then(|tenure| tenure.last);
                        self.saw_range(holder, token, last.map_or(token, |last| last.get()))?;
                    }
                    AcquireReply::Busy { first: Some(_), .. } => {
                        return Err("a mutex has no queue".to_owned());
                    }
                    AcquireReply::Busy { kept: true, .. } => {
                        return Err("nobody keeps it".to_owned());
                    }
                    AcquireReply::Busy { left, .. } => {
                        if self.state.is_none()
                            && form.is_listed()
                            && let Some(first) = first
                        {
                            self.is_reserved_for(first).await;
                        } else if self.state.is_none() || held_by(&self.state, &holder) {
                            return Err("busy, but nobody else has it".to_owned());
                        }
                        left.ok_or("busy without an expiry")?;
                    }
                    AcquireReply::Stale { time } if time > not_after => {}
                    AcquireReply::Stale { .. } => return Err("refused in time".to_owned()),
                }
            }
            SentRequest::Release { holder } => {
                let first = self.first_on_list(&holder).await;
                let reply = self.release(form, &holder).await?;
                let held = held_by(&self.state, &holder);
                if held != is_done(&reply) {
                    return Err(format!("{reply:?}"));
                }
                if held {
                    self.state = None;
                    if let Some(first) = first.filter(|_| form.is_listed()) {
                        self.is_reserved_for(first).await;
                        return Ok(false);
                    }
                }
            }
            SentRequest::HandOver { from, to, lease } => {
                let tokens = self.hand_over(form, &from, &to, lease).await?;
                let held = held_by(&self.state, &from) || held_by(&self.state, &to);
                match tokens {
                    Some((token, last)) if held => {
                        self.state = Some((to.clone(), 1));
                        self.saw_range(to, token, last)?;
                    }
                    None if !held => {}
                    other => return Err(format!("{other:?}")),
                }
            }
            SentRequest::Renew { holder, ttl } => {
                let held = held_by(&self.state, &holder);
                let items = [(LOCK, holder, ttl.cast_signed())];
                let reply = run(&mut connection, &Renew { items: &items }).await;
                let reply = reply.map_err(|fault| fault.to_string())?;
                if reply
                    != [if held {
                        Renewed::Held
                    } else {
                        Renewed::NotHeld
                    }]
                {
                    return Err(format!("{reply:?}"));
                }
            }
            SentRequest::ForceRelease => {
                let script = ForceRelease {
                    lock: LOCK,
                    queue: QUEUE,
                    channel: CHANNEL,
                    rw_channel: "redisson_rwlock:{lock:k}",
                };
                let reply = run(&mut connection, &script)
                    .await
                    .map_err(|fault| fault.to_string())?;
                if reply.done.0 != self.state.take().is_some() {
                    return Err(format!("{reply:?}"));
                }
            }
        }
        Ok(true)
    }

    /// Returns the first holder on the waiting list, except `asker`.
    async fn first_on_list(&mut self, asker: &str) -> Option<String> {
        let list = redis::cmd("ZRANGE").arg(WAITING).arg(0).arg(1).take();
        let list: Vec<String> = list.query_async(&mut self.connection).await.unwrap();
        list.into_iter().find(|holder| holder != asker)
    }

    /// Notes that the lock was reserved. The test extends the reservation to a lease like others.
    async fn is_reserved_for(&mut self, holder: String) {
        let longer = redis::cmd("PEXPIRE").arg(LOCK).arg(LEASES[0]).take();
        let () = longer.query_async(&mut self.connection).await.unwrap();
        self.state = Some((holder, 1));
    }

    /// Notes that the holder has the tokens from `token` to `last`. Later holders of its process use some of them. It
    /// will return the others.
    fn saw_range(&mut self, holder: String, token: u64, last: u64) -> Result<(), String> {
        self.saw(token)?;
        self.last_token = self.random.u64(token..=last);
        self.ranges.insert(holder, (self.last_token, last));
        Ok(())
    }

    fn saw(&mut self, token: u64) -> Result<(), String> {
        if token <= self.last_token {
            return Err(format!("token {token} after {}", self.last_token));
        }
        self.last_token = token;
        Ok(())
    }

    async fn actual(&mut self) -> Result<State, String> {
        let fields = redis::cmd("HGETALL").arg(LOCK).take();
        let fields: Vec<(String, u64)> = fields
            .query_async(&mut self.connection)
            .await
            .map_err(|error| error.to_string())?;
        match fields.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            several => Err(format!("several holders: {several:?}")),
        }
    }

    async fn left(&mut self) -> i64 {
        let left = redis::cmd("PTTL").arg(LOCK).take();
        left.query_async(&mut self.connection).await.unwrap()
    }
}
