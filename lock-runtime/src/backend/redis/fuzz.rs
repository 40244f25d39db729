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
use super::scripting::reply::foreign;
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
    let fence = fenced.then_some("key");
    let acquire = Acquire {
        fence,
        ..Acquire::default()
    };
    let fair = FairAcquire {
        fence,
        ..FairAcquire::default()
    };
    let _ = foreign(reply);
    let _ = Release::default().read(reply.clone());
    let _ = FairRelease::default().read(reply.clone());
    let _ = CountDown::default().read(reply.clone());
    let _ = Inspect::default().read(reply.clone());
    let _ = Who::default().read(reply.clone());
    let _ = ReadCounter::default().read(reply.clone());
    let _ = read_renewals(2, reply.clone());
    let _ = slots::read(reply, "host:1");
    let _ = micros(reply);
    let answers = [acquire.read(reply.clone()), fair.read(reply.clone())];
    answers
        .iter()
        .any(|answer| matches!(answer, Some(Ok(AcquireReply::Granted { .. }))))
}
