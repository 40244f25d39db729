//! Ways in for the fuzz targets (`fuzz/`). Compiled with `--cfg fuzzing` only, and no public API.

use redis::Value;

use super::cluster::slots;
use crate::backend::Victim;
use crate::backend::redis::connection::check::micros;
use crate::backend::redis::connection::target::Target;
use crate::backend::redis::kinds::counter_scripts::{CountDown, Keys, ReadCounter};
use crate::backend::redis::kinds::exclusive_scripts::{
    AcquireReply, acquire_reply, read_renewals, release_reply,
};
use crate::backend::redis::kinds::fair::{FairAcquire, FairRelease};
use crate::backend::redis::kinds::operator_scripts::Inspect;
use crate::backend::redis::pubsub::subscribe;
use crate::backend::redis::scripting::Script;

/// What a message on the control channel calls the holders that it names; `None` if the message is not ours.
pub fn victims(payload: &[u8]) -> Option<Vec<[u8; 16]>> {
    match subscribe::victim(payload)? {
        Victim::Id(_) => None,
        Victim::Aliases(aliases) => Some(aliases.iter().copied().collect()),
    }
}

/// All that is ever shown of a URL, or of why it is refused.
pub fn url(url: &str) -> Result<String, String> {
    match Target::parse(url) {
        Ok(target) => Ok(format!("{} {target:?}", target.shown())),
        Err(error) => Err(format!("{error} {error:?}")),
    }
}

/// Gives a reply to the readers of all sorts of answers. True if one of them takes it for a granted lock.
pub fn is_grant(reply: &Value, fenced: bool) -> bool {
    let (key, queue) = ("key", &["queue".to_owned(), "timeouts".to_owned()]);
    let fence = fenced.then_some(key);
    let fair = FairAcquire {
        lock: key,
        queue,
        fence,
        holder: key,
        lease: 1,
        not_after: 1,
        waits: true,
        channel: key,
    };
    let released = FairRelease {
        lock: key,
        queue,
        holder: key,
        channel: key,
    };
    let left = CountDown {
        count: key,
        channel: key,
    };
    let seen = Inspect {
        lock: key,
        queue: key,
    };
    let keys = Keys {
        count: key,
        leases: key,
    };
    let _ = released.read(reply.clone());
    let _ = left.read(reply.clone());
    let _ = seen.read(reply.clone());
    let _ = ReadCounter { keys }.read(reply.clone());
    let _ = release_reply(reply.clone());
    let _ = read_renewals(2, reply.clone());
    let _ = slots::read(reply, "host:1");
    let _ = micros(reply);
    let answers = [
        acquire_reply(reply.clone(), key, fence),
        fair.read(reply.clone()),
    ];
    answers
        .iter()
        .any(|answer| matches!(answer, Some(Ok(AcquireReply::Granted { .. }))))
}
