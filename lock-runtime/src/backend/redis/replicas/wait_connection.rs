//! One connection that waits for replicas, for all callers that asked while it was busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use redis::Value;
use tokio::sync::oneshot;

use crate::backend::redis::connection::dial::{self, Dialed};
use crate::backend::redis::connection::{Target, Wire};
use crate::backend::redis::replicas::touch::touch;
use crate::backend::redis::scripting::{self, faults};
use crate::backend::{Fault, Renewal};
use crate::observe::metrics::logged;
use crate::sync::Mutex;
use crate::values::{Moment, Replicas, clock};

/// The time by which a `WAIT` is to end early: a server ends it late by the period of its housekeeping.
const LATE: Duration = Duration::from_millis(150);
/// The rest of a request's time that is too short for another `WAIT`.
const SOON: Duration = Duration::from_millis(20);

/// The holds that a caller wants confirmed.
pub(super) struct WaitRequest {
    pub(super) holds: Vec<Renewal>,
    pub(super) deadline: Moment,
    pub(super) answer: oneshot::Sender<Result<(), Fault>>,
}

impl WaitRequest {
    /// Returns `false` if the caller is gone.
    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }
}

/// The parts that all wait connections of a manager share, to whichever server they lead.
pub(in super::super) struct WaitCommon {
    pub(in super::super) replicas: Replicas,
    pub(in super::super) timeout: Duration,
    /// Whether the servers are nodes of a cluster.
    pub(in super::super) clustered: bool,
    /// The most replicas that a server had when a connection to it was opened. All nodes of a cluster share this
    /// number: a replica that was just promoted has few replicas of its own, and needs as many as the master before it.
    pub(in super::super) connected: AtomicU32,
    pub(in super::super) warned: AtomicBool,
}

impl WaitCommon {
    fn need(&self) -> u32 {
        self.replicas
            .needed_of(self.connected.load(Ordering::Relaxed))
    }
}

/// The parts that the connections to one server share.
pub(super) struct WaitSettings {
    pub(super) target: Arc<Target>,
    pub(super) common: Arc<WaitCommon>,
    /// The number of replicas that had everything when a `WAIT` was last answered, and the number that was needed.
    pub(super) last: Mutex<Option<(u32, u32)>>,
}

impl WaitSettings {
    /// Returns the fault for a caller whose time is over before a `WAIT` is.
    pub(super) fn late(&self) -> Fault {
        let last = *self.last.lock();
        let when_last_asked = match last {
            Some((confirmed, need)) if confirmed < need => format!(
                "; when they were last asked, {confirmed} of {need} replicas had what there was"
            ),
            _ => String::new(),
        };
        Fault::too_few(format!(
            "no answer in time to whether replicas have the lock{when_last_asked}"
        ))
    }

    /// Connects, counts the replicas, and tries the commands that will be used.
    async fn open(&self) -> Result<Dialed, Fault> {
        let timeout = self.common.timeout;
        let open = dial::open(&self.target, timeout, Arc::new(|_| ())).await;
        // Sentinels may be being set up anew.
        let open = open.map_err(|fault| match fault {
            Fault::Impossible(why) => Fault::not_done(why),
            fault => fault,
        })?;
        let asked = async {
            self.count(&open.connection).await?;
            wait(&open.connection, 0, 1).await
        };
        match scripting::in_time("WAIT", timeout, asked).await {
            Ok(_) => Ok(open),
            Err(Fault::Denied(source)) => Err(Fault::denied(format!(
                "`replicas` needs the command WAIT: {source}"
            ))),
            Err(fault) => Err(fault),
        }
    }

    async fn count(&self, connection: &Wire) -> Result<(), Fault> {
        let mut connection = connection.clone();
        let info = match scripting::info(&mut connection, &["replication", "cluster"]).await {
            Err(Fault::Denied(source)) if self.common.replicas.counts() => {
                return Err(Fault::denied(format!(
                    "`Replicas::majority` counts replicas by INFO; without it, use `at_least`: {source}"
                )));
            }
            Err(Fault::Denied(_)) => return Ok(()),
            info => info?,
        };
        let common = &self.common;
        if info.get::<u8>("cluster_enabled") == Some(1) && !common.clustered {
            return Err(Fault::impossible(
                "`replicas` follows the slots of a Redis Cluster, of which the server is a node: use `redis-cluster://`",
            ));
        }
        let connected = info.get("connected_slaves").unwrap_or(0);
        common.connected.fetch_max(connected, Ordering::Relaxed);
        let needed = common.need();
        if connected < needed && !common.warned.swap(true, Ordering::Relaxed) {
            logged!(
                warn,
                server = self.target.shown(),
                connected,
                needed,
                "fewer replicas are connected than have to confirm a lock: no lock is handed out until there are more"
            );
        }
        Ok(())
    }
}

/// Waits until `need` replicas have all writes of this connection. Returns how many have them.
async fn wait(connection: &Wire, need: u32, millis: u64) -> Result<u32, Fault> {
    let wait = redis::cmd("WAIT").arg(need).arg(millis).take();
    let reply = scripting::send(&mut connection.clone(), &wait).await;
    let confirmed = match reply.map_err(|error| faults::of_call(&error))? {
        Value::Int(number) => u32::try_from(number).ok(),
        _ => None,
    };
    confirmed.ok_or_else(|| faults::malformed("WAIT"))
}

pub(super) struct WaitConnection {
    pub(super) settings: Arc<WaitSettings>,
    pub(super) open: Option<Dialed>,
}

impl WaitConnection {
    /// Waits until the connection is of no use any more, or forever if there is none.
    pub(super) async fn closed(&mut self) {
        match &self.open {
            Some(open) => {
                open.ended(&self.settings.target).await;
                self.open = None;
            }
            None => std::future::pending().await,
        }
    }

    /// Answers the requests, after one or several `WAIT`s for all of them.
    pub(super) async fn serve(&mut self, mut requests: Vec<WaitRequest>) {
        // A connection that was open before may lead to a server that is no longer the master.
        let mut fresh = false;
        loop {
            requests.retain(WaitRequest::is_wanted);
            if requests.is_empty() {
                return;
            }
            fresh |= self.open.is_none();
            match self.ask(&mut requests, fresh).await {
                Ok(is_missing) => {
                    // A caller that left meanwhile may itself have given back the hold that was not found.
                    requests.retain(WaitRequest::is_wanted);
                    if !fresh && is_missing && !requests.is_empty() {
                        self.open = None;
                    }
                }
                Err(fault) if fresh => {
                    for request in requests {
                        let _ = request.answer.send(Err(fault.clone()));
                    }
                    return;
                }
                Err(_) => {}
            }
        }
    }

    /// Sends one `WAIT` for all requests, and answers those that it can answer. Returns `true` if a hold was not found. After
    /// a fault, there is no connection.
    async fn ask(&mut self, requests: &mut Vec<WaitRequest>, fresh: bool) -> Result<bool, Fault> {
        let open = match self.open.take() {
            Some(open) => open,
            None => self.settings.open().await?,
        };
        let now = clock::now();
        let deadlines = requests.iter().map(|request| request.deadline);
        let until = deadlines.reduce(Moment::earlier).unwrap_or(now);
        let time = until - now;
        let time = time - LATE.min(time / 2);
        // Zero would mean forever.
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        let holds: Vec<Renewal> = requests
            .iter()
            .flat_map(|request| request.holds.iter().cloned())
            .collect();
        let common = &self.settings.common;
        // This is read once for all requests, because another connection may count more replicas meanwhile.
        let need = common.need();
        let asked = async {
            let touches = touch(&open.connection, &holds, common.clustered).await?;
            // The touches must be answered first: a script that has to be loaded would be sent after the `WAIT`, which
            // would then not wait for its write.
            let made = touches.iter().any(|touch| matches!(touch, Ok(true)));
            let confirmed = if made {
                Some(wait(&open.connection, need, millis).await?)
            } else {
                None
            };
            Ok::<_, Fault>((touches, confirmed))
        };
        let silent = || Fault::unknown("no answer to WAIT");
        let (touches, confirmed) = tokio::select! {
            outcome = tokio::time::timeout(time + common.timeout, asked) => {
                outcome.unwrap_or_else(|_| Err(silent()))?
            }
            () = self.settings.target.superseded(&open.master) => {
                return Err(dial::moved());
            }
        };
        self.open = Some(open);
        if let Some(confirmed) = confirmed {
            *self.settings.last.lock() = Some((confirmed, need));
        }
        let counted = (confirmed.unwrap_or(0), need);
        *requests = settle(std::mem::take(requests), &touches, counted, until, fresh);
        Ok(touches.iter().any(|touch| matches!(touch, Ok(false))))
    }
}

/// Answers the requests that it can answer, after a `WAIT` that ended at `until`. Returns the others, which need another
/// `WAIT`.
fn settle(
    requests: Vec<WaitRequest>,
    touches: &[Result<bool, Fault>],
    (confirmed, need): (u32, u32),
    until: Moment,
    fresh: bool,
) -> Vec<WaitRequest> {
    let mut touches = touches.iter();
    let mut left = Vec::new();
    for request in requests {
        let of_it: Vec<_> = touches.by_ref().take(request.holds.len()).collect();
        let refusal = of_it.iter().find_map(|&touch| touch.as_ref().err());
        let answer = if let Some(fault) = refusal {
            Err(Fault::too_few(format!(
                "the lock is not where replicas were to be asked: {fault}"
            )))
        } else if of_it.iter().any(|touch| matches!(touch, Ok(false))) {
            if !fresh {
                left.push(request);
                continue;
            }
            Err(Fault::too_few(
                "the lock is not at the server whose replicas are asked",
            ))
        } else if confirmed >= need || of_it.is_empty() {
            Ok(())
        } else if request.deadline - until > SOON {
            // The shorter time of another request ended this `WAIT`.
            left.push(request);
            continue;
        } else {
            Err(Fault::too_few(format!(
                "only {confirmed} of {need} replicas confirmed the lock in time"
            )))
        };
        let _ = request.answer.send(answer);
    }
    left
}
