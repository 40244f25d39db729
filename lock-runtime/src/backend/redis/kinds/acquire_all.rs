//! Acquires several mutexes by one script: all of them or none.

use std::sync::Arc;

use redis::{Cmd, Value};

use super::acquire::Compensation;
use crate::backend::kit::undo::Undo;
use crate::backend::redis::router::{AcquireRoute, Router};
use crate::backend::redis::scripting::outcomes::Dated;
use crate::backend::redis::scripting::{Items, Script, Source, lua, source};
use crate::backend::{AcquireRequest, AcquiredAll, AskedKind, Fault, Granted};
use crate::values::{Key, Kind, Moment, clock};

pub(crate) async fn acquire_all(
    router: &Arc<Router>,
    requests: &[AcquireRequest<'_>],
) -> Result<AcquiredAll, Fault> {
    let deadlines = requests.iter().map(AcquireRequest::deadline);
    let Some(deadline) = deadlines.reduce(Moment::earlier) else {
        return Ok(AcquiredAll::Granted(Vec::new()));
    };
    let Some(key) = one_slot(router, requests) else {
        return Ok(AcquiredAll::Apart);
    };
    let mut at = router.route_acquire(key, clock::now(), deadline).await?;
    loop {
        let reply = attempt(router, &at, requests, deadline).await;
        match router.redirect(&reply) {
            None => match reply {
                Ok(reply) => {
                    if let Some(acquired) = at.settle(reply)? {
                        return Ok(acquired);
                    }
                }
                // This answer has shown that the server is a cluster.
                Err(_) if one_slot(router, requests).is_none() => return Ok(AcquiredAll::Apart),
                Err(fault) => return Err(named(router, fault, requests).await),
            },
            // While the slot moves, its keys may be at two nodes.
            Some(redirect) if redirect.may_split() => return Ok(AcquiredAll::Apart),
            Some(redirect) => at = router.follow_acquire(redirect, at, key, deadline).await?,
        }
    }
}

/// Explains the fault for the lock that it is about.
async fn named(router: &Router, fault: Fault, requests: &[AcquireRequest<'_>]) -> Fault {
    let mut keys = requests.iter().map(|request| request.hold_ref.key);
    let is_refused =
        |asked: &&Key| matches!(&fault, Fault::Foreign { key, .. } if asked.raw() == key);
    match keys.find(is_refused) {
        Some(key) => router.named(fault, key, AskedKind::Lock(key.kind())).await,
        None => fault,
    }
}

/// Returns one of the keys, if one script can have all of them as its keys.
fn one_slot<'a>(router: &Router, requests: &[AcquireRequest<'a>]) -> Option<&'a Key> {
    let mut keys = requests.iter().map(|request| request.hold_ref.key);
    let first = keys.next()?;
    let slots = router.nodes.keeps_to_slots();
    (!slots || keys.all(|key| key.slot() == first.slot())).then_some(first)
}

async fn attempt(
    router: &Arc<Router>,
    at: &AcquireRoute,
    requests: &[AcquireRequest<'_>],
    deadline: Moment,
) -> Result<Dated<AcquiredAll>, Fault> {
    let (live, sent_at) = (&at.live, at.sent_at);
    for request in requests {
        live.may_carry(request.hold_ref.holder)?;
    }
    let not_after = live.clock().not_after(sent_at, deadline);
    let script = AcquireAll {
        requests,
        sent_at,
        not_after_us: not_after,
    };
    let undo = Undo::armed(|| {
        for request in requests {
            let sent = Some((live.clone(), not_after));
            Compensation::of(router, request, sent, deadline).start();
        }
    });
    let reply = live.call(&script, sent_at, deadline).await;
    if !matches!(reply, Err(Fault::Unknown(_) | Fault::Closed(_))) {
        undo.disarm();
    }
    reply
}

pub(crate) struct AcquireAll<'a> {
    pub(crate) requests: &'a [AcquireRequest<'a>],
    pub(crate) sent_at: Moment,
    /// In µs of the server's TIME.
    pub(crate) not_after_us: u64,
}

/// Returns the key of the lock's fence, if a token is wanted.
fn fence(request: &AcquireRequest<'_>) -> Option<String> {
    request.fenced.then(|| request.hold_ref.key.fence())
}

impl Script for AcquireAll<'_> {
    type Reply = Dated<AcquiredAll>;

    fn source() -> &'static Source {
        source!(
            "acquire_all",
            [
                "digits", "range", "refusal", "fence", "admitted", "lease", "holder"
            ]
        )
    }

    fn keys(&self) -> usize {
        let fenced = self.requests.iter().filter(|request| request.fenced);
        self.requests.len() + fenced.count()
    }

    fn write(&self, command: &mut Cmd) {
        for request in self.requests {
            command.arg(request.hold_ref.key.raw()).arg(fence(request));
        }
        command.arg(self.not_after_us);
        for request in self.requests {
            let counts = match request.hold_ref.key.kind() {
                _ if !request.fenced => "",
                Kind::Fenced => "by one",
                _ => "by the clock",
            };
            let holder = request.hold_ref.holder.text();
            command.arg(holder).arg(request.ttl.millis()).arg(counts);
        }
    }

    fn read(&self, reply: Value) -> Option<Result<Dated<AcquiredAll>, Fault>> {
        let mut items = Items::of(reply)?;
        let word = items.text()?;
        let time = items.digits()?;
        let done = match word.as_str() {
            "OK" => {
                let mut granted = Vec::with_capacity(self.requests.len());
                for request in self.requests {
                    let token = items.token()?;
                    if token.is_some() != request.fenced {
                        return None;
                    }
                    granted.push(Granted::leased(token, self.sent_at));
                }
                Some(AcquiredAll::Granted(granted))
            }
            "BUSY" => Some(AcquiredAll::Busy),
            // All other holders may be only keeping their locks. The caller then acquires the locks one by one: each of those
            // requests asks the keeper of its lock, and waits for it.
            "KEPT" => Some(AcquiredAll::Apart),
            "STALE" => None,
            _ => return None,
        };
        items.end(Ok(Dated { done, time }))
    }

    #[cfg(test)]
    fn shape() -> [String; 2] {
        [
            "(lock, fence?)...",
            "not_after_us, (holder, lease_ms, how the fence counts?)...",
        ]
        .map(str::to_owned)
    }
}
