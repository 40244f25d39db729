//! The entry points for the fuzz targets (`fuzz/`). They are compiled only with `--cfg fuzzing`, and are not public
//! API.

use redis::Value;

use super::cluster::slots;
use super::connection::check::micros;
use super::connection::target::Target;
use super::kinds::counters::{CountDown, ReadCounter};
use super::kinds::directory::Who;
use super::kinds::fair::{FairAcquire, FairRelease};
use super::kinds::operators::Inspect;
use super::pubsub::messages;
use super::scripting::Script;
use super::scripting::exclusive::{Acquire, Release};
use super::scripting::outcomes::{AcquireReply, read_renewals};
use crate::backend::{Event, Holders};

/// Returns the holders that a message on the control channel names; `None` if the message is not ours.
pub fn victims(payload: &[u8]) -> Option<Vec<[u8; 16]>> {
    let (Event::ForceReleased(victim) | Event::Wanted(victim)) = messages::event(payload)?;
    match victim {
        Holders::Id(_) => None,
        Holders::Aliases(aliases) => Some(aliases.iter().copied().collect()),
    }
}

/// Returns all text that is ever shown of a URL, or of the reason why it is refused.
pub fn url(url: &str) -> Result<String, String> {
    match Target::parse(url) {
        Ok(target) => Ok(format!("{} {target:?}", target.shown())),
        Err(error) => Err(format!("{error} {error:?}")),
    }
}

/// Gives a reply to the parsers of all sorts of answers. Returns `true` if one of them takes it for a granted lock.
pub fn is_grant(reply: &Value, fenced: bool) -> bool {
    let key = "key";
    let fence = fenced.then_some(key);
    let acquire = Acquire {
        lock: key,
        fence,
        holder: key,
        lease_ms: 1,
        not_after_us: 1,
        counted: false,
        channel: None,
        spare: None,
    };
    let fair = FairAcquire {
        lock: key,
        queue: key,
        timeouts: key,
        fence,
        holder: key,
        place: key,
        lease_ms: 1,
        not_after_us: 1,
        waits: true,
        channel: key,
    };
    let release = Release::of(key, key, key);
    let fair_release = FairRelease {
        lock: key,
        queue: key,
        timeouts: key,
        holder: key,
        channel: key,
    };
    let count_down = CountDown {
        latch: key,
        channel: key,
    };
    let inspect = Inspect {
        lock: key,
        queue: key,
    };
    let read_counter = ReadCounter {
        counter: key,
        leases: key,
    };
    let _ = release.read(reply.clone());
    let _ = fair_release.read(reply.clone());
    let _ = count_down.read(reply.clone());
    let _ = inspect.read(reply.clone());
    let _ = Who { client: key }.read(reply.clone());
    let _ = read_counter.read(reply.clone());
    let _ = read_renewals(2, reply.clone());
    let _ = slots::read(reply, "host:1");
    let _ = micros(reply);
    let answers = [acquire.read(reply.clone()), fair.read(reply.clone())];
    answers
        .iter()
        .any(|answer| matches!(answer, Some(Ok(AcquireReply::Granted { .. }))))
}
