//! One connection that waits for replicas, for all who asked while it was busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{InfoDict, PushKind, Value};
use tokio::sync::Notify;

use super::super::sentinel::Address;
use super::super::target::Target;
use super::super::{dial, faults};
use super::lanes::Request;
use super::look::look;
use crate::backend::{Fault, Renewal};
use crate::clock::{self, Moment};
use crate::error::StoreError;
use crate::replicas::Replicas;

/// A server ends a `WAIT` late by the period of its housekeeping: so much earlier it is to end.
const LATE: Duration = Duration::from_millis(150);
/// Requests whose time ends so soon after a `WAIT` are not worth another one.
const SOON: Duration = Duration::from_millis(20);

/// What all lanes have in common.
pub(in super::super) struct Terms {
    target: Arc<Target>,
    /// Where to publish. Whoever listens there ignores what is empty.
    channel: Arc<str>,
    timeout: Duration,
    replicas: Replicas,
    /// The most replicas that were connected when a lane was opened.
    connected: AtomicU32,
    warned: AtomicBool,
    /// How many replicas were in step when a `WAIT` was last answered.
    in_step: AtomicU32,
}

/// An open connection.
pub(in super::super) struct Open {
    connection: MultiplexedConnection,
    cut: Arc<Notify>,
    master: Option<Address>,
}

impl Terms {
    pub(in super::super) fn new(
        target: Arc<Target>,
        control: &Arc<str>,
        timeout: Duration,
        replicas: Replicas,
    ) -> Terms {
        Terms {
            target,
            // Every manager of the namespace listens to the control channel itself.
            channel: format!("{control}:wait").into(),
            timeout,
            replicas,
            connected: AtomicU32::new(0),
            warned: AtomicBool::new(false),
            in_step: AtomicU32::new(0),
        }
    }

    fn need(&self) -> u32 {
        self.replicas
            .needed_of(self.connected.load(Ordering::Relaxed))
    }

    /// For somebody whose time is over before a `WAIT` is.
    pub(super) fn late(&self) -> Fault {
        let (confirmed, need) = (self.in_step.load(Ordering::Relaxed), self.need());
        if confirmed < need {
            return too_few(confirmed, need);
        }
        Fault::TooFew(StoreError::new(
            "no answer in time to whether replicas have the lock",
        ))
    }

    /// Connects, counts the replicas, and tries what will be asked.
    pub(super) async fn open(&self) -> Result<Open, Fault> {
        let cut = Arc::new(Notify::new());
        let signal = cut.clone();
        let dialed = dial::open(&self.target, self.timeout, move |push| {
            if push.kind == PushKind::Disconnection {
                signal.notify_one();
            }
        })
        .await?;
        let open = Open {
            connection: dialed.connection,
            cut,
            master: dialed.master,
        };
        let asked = async {
            self.count(&open.connection).await?;
            open.published(&self.channel, 0, 1).await
        };
        match tokio::time::timeout(self.timeout, asked).await {
            Ok(Ok(_)) => Ok(open),
            Ok(Err(Fault::Denied(source))) => Err(Fault::Denied(StoreError::new(format!(
                "`replicas` needs the commands WAIT and PUBLISH, the latter on {}: {source}",
                self.channel
            )))),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(Fault::NotDone(StoreError::new(format!(
                "no answer to WAIT within {:?}",
                self.timeout
            )))),
        }
    }

    async fn count(&self, connection: &MultiplexedConnection) -> Result<(), Fault> {
        let info = redis::cmd("INFO").arg("replication").arg("cluster").take();
        let reply = super::super::script::send(&mut connection.clone(), &info).await;
        let text = match reply {
            Ok(Value::VerbatimString { text, .. }) => text,
            Ok(Value::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Ok(_) => return Err(faults::malformed("INFO")),
            Err(error) => match faults::of_call(&error) {
                Fault::Denied(source) if self.replicas.counts() => {
                    return Err(Fault::Denied(StoreError::new(format!(
                        "`Replicas::majority` counts replicas by INFO; without it, use `at_least`: {source}"
                    ))));
                }
                Fault::Denied(_) => return Ok(()),
                fault => return Err(fault),
            },
        };
        let info = InfoDict::new(&text);
        if info.get::<u8>("cluster_enabled") == Some(1) {
            return Err(Fault::Impossible(
                "`replicas` is not built for nodes of a Redis Cluster: they do not replicate what is published".to_owned(),
            ));
        }
        let connected = info.get("connected_slaves").unwrap_or(0);
        self.connected.fetch_max(connected, Ordering::Relaxed);
        let needed = self.need();
        if connected < needed && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                connected,
                needed,
                "fewer replicas are connected than have to confirm a lock: no lock is handed out until there are more"
            );
        }
        Ok(())
    }
}

impl Open {
    /// Publishes, and waits until `need` replicas have everything up to that. How many have.
    async fn published(&self, channel: &str, need: u32, millis: u64) -> Result<u32, Fault> {
        // In one piece: what is waited for is the publishing, so it must be before the waiting.
        let mut both = redis::pipe();
        both.cmd("PUBLISH").arg(channel).arg("");
        both.cmd("WAIT").arg(need).arg(millis);
        let mut connection = self.connection.clone();
        let replies = connection.send_packed_commands(&both, 0, 2).await;
        let replies = replies.map_err(|error| faults::of_call(&error))?;
        let mut confirmed = None;
        for reply in replies {
            confirmed = match reply {
                Value::ServerError(error) => return Err(faults::of_call(&error.into())),
                Value::Int(number) => u32::try_from(number).ok(),
                _ => None,
            };
        }
        confirmed.ok_or_else(|| faults::malformed("WAIT"))
    }
}

fn too_few(confirmed: u32, need: u32) -> Fault {
    Fault::TooFew(StoreError::new(format!(
        "only {confirmed} of {need} replicas confirmed the lock in time"
    )))
}

/// What one `WAIT` told.
struct Told {
    /// Which of the holds are at this server.
    held: Vec<bool>,
    confirmed: u32,
}

pub(super) struct Lane {
    terms: Arc<Terms>,
    open: Option<Open>,
}

impl Lane {
    pub(super) fn new(terms: Arc<Terms>, open: Option<Open>) -> Lane {
        Lane { terms, open }
    }

    /// Until the connection is of no use any more; for ever if there is none.
    pub(super) async fn closed(&mut self) {
        match &self.open {
            Some(open) => {
                tokio::select! {
                    () = open.cut.notified() => {}
                    () = self.terms.target.superseded(&open.master) => {}
                }
                self.open = None;
            }
            None => std::future::pending().await,
        }
    }

    /// Answers the requests, after one `WAIT` for all of them or several.
    pub(super) async fn serve(&mut self, mut requests: Vec<Request>) {
        // A connection that was open before may lead to a server that is the master no more.
        let mut fresh = false;
        loop {
            requests.retain(Request::is_wanted);
            if requests.is_empty() {
                return;
            }
            if self.open.is_none() {
                fresh = true;
            }
            let told = self.ask(&requests).await;
            if told.is_err() {
                self.open = None;
            }
            match told {
                Ok((told, asked_until)) => {
                    requests = self.settle(requests, &told, asked_until, fresh);
                    // Who left meanwhile may have given back what was not found.
                    requests.retain(Request::is_wanted);
                    if !fresh && told.held.contains(&false) && !requests.is_empty() {
                        self.open = None;
                    }
                }
                Err(fault) if fresh => {
                    for request in requests {
                        request.answer(Err(fault.clone()));
                    }
                    return;
                }
                Err(_) => {}
            }
        }
    }

    /// Answers whom it can. The others are to be asked about again.
    fn settle(
        &self,
        requests: Vec<Request>,
        told: &Told,
        asked_until: Moment,
        fresh: bool,
    ) -> Vec<Request> {
        let need = self.terms.need();
        let mut held = told.held.iter();
        let mut left = Vec::new();
        for request in requests {
            let of_it = held.by_ref().take(request.holds.len());
            let missing = of_it.filter(|held| !**held).count();
            let answer = if missing > 0 {
                if !fresh {
                    left.push(request);
                    continue;
                }
                Err(Fault::TooFew(StoreError::new(
                    "the lock is not at the server whose replicas are asked",
                )))
            } else if told.confirmed >= need {
                Ok(())
            } else if request.deadline - asked_until > SOON {
                // Somebody else's shorter time ended this one.
                left.push(request);
                continue;
            } else {
                Err(too_few(told.confirmed, need))
            };
            request.answer(answer);
        }
        left
    }

    /// Once, about all of them; also, until when the first of them wanted to know.
    async fn ask(&mut self, requests: &[Request]) -> Result<(Told, Moment), Fault> {
        let open = match self.open.take() {
            Some(open) => open,
            None => self.terms.open().await?,
        };
        let open = self.open.insert(open);
        let now = clock::now();
        let deadlines = requests.iter().map(|request| request.deadline);
        let until = deadlines.reduce(Moment::earlier).unwrap_or(now);
        let time = until - now;
        let time = time - LATE.min(time / 2);
        // Zero would be for ever.
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        let holds: Vec<Renewal> = requests
            .iter()
            .flat_map(|request| request.holds.iter().cloned())
            .collect();
        let extends = holds.iter().any(|hold| hold.term.is_some());
        let asked = async {
            let need = self.terms.need();
            let looked = look(&open.connection, &holds);
            let published = open.published(&self.terms.channel, need, millis);
            let (held, confirmed) = if extends {
                // What is written here must be before what is waited for, also where a script has to be loaded first.
                (looked.await?, published.await?)
            } else {
                let (held, confirmed) = tokio::join!(looked, published);
                (held?, confirmed?)
            };
            Ok::<_, Fault>(Told { held, confirmed })
        };
        let silent = || Fault::Unknown(StoreError::new("no answer to WAIT"));
        let told = tokio::select! {
            told = tokio::time::timeout(time + self.terms.timeout, asked) => {
                told.unwrap_or_else(|_| Err(silent()))?
            }
            () = self.terms.target.superseded(&open.master) => {
                return Err(Fault::Unknown(StoreError::new("the master has moved")));
            }
        };
        self.terms.in_step.store(told.confirmed, Ordering::Relaxed);
        Ok((told, until))
    }
}
