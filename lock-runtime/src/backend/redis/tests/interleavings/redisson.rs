//! The steps by which Redisson's clients change the lock.

use redis::Value;

use super::{LEASES, ModelRun, State};
use crate::backend::redis::tests::scripts::{CHANNEL, LOCK};
use crate::backend::redis::tests::server;

/// A step of another client.
#[derive(Clone, Debug)]
enum Foreign {
    Lock(&'static str),
    Unlock(&'static str),
    Renew(&'static str),
    ForceUnlock,
    /// Expired, evicted or deleted by hand.
    Vanish,
}

/// Redisson's steps, from its published logic. Keys: lock. Arguments: channel, holder, lease.
const LOCK_STEP: &str = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
     redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[3]); return nil; end; \
     return redis.call('pttl', KEYS[1])";
const UNLOCK_STEP: &str = "if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil; end; \
     if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[3]); return 0; end; \
     redis.call('del', KEYS[1]); redis.call('publish', ARGV[1], '0'); return 1";
const RENEW_STEP: &str = "if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
     redis.call('pexpire', KEYS[1], ARGV[3]); return 1; end; return 0";
const FORCE_STEP: &str = "if redis.call('del', KEYS[1]) == 1 then redis.call('publish', ARGV[1], '0'); return 1; end; return 0";

const JAVA: [&str; 2] = [
    "6f1c1a9e-0000-4000-8000-000000000001:71",
    "6f1c1a9e-0000-4000-8000-000000000001:-2",
];

impl ModelRun {
    /// Runs one of these steps, at random, and updates the model. Returns `false`, because Redisson sets its lease
    /// anew.
    pub(super) async fn foreign(&mut self) -> Result<bool, String> {
        let who = JAVA[self.random.usize(..JAVA.len())];
        let step = match self.random.u8(..10) {
            0..4 => Foreign::Lock(who),
            4..7 => Foreign::Unlock(who),
            7 => Foreign::Renew(who),
            8 => Foreign::ForceUnlock,
            _ => Foreign::Vanish,
        };
        self.trace.push(format!("{step:?}"));
        let own = |state: &State, who: &str| match state {
            Some((holder, count)) if holder == who => Some(*count),
            _ => None,
        };
        let expected = match &step {
            Foreign::Lock(who) => {
                let granted = self.state.is_none() || own(&self.state, who).is_some();
                if granted {
                    let count = own(&self.state, who).unwrap_or(0);
                    self.state = Some(((*who).to_owned(), count + 1));
                }
                granted.then_some(Value::Nil)
            }
            Foreign::Unlock(who) => match own(&self.state, who) {
                None => Some(Value::Nil),
                Some(1) => {
                    self.state = None;
                    Some(Value::Int(1))
                }
                Some(count) => {
                    self.state = Some(((*who).to_owned(), count - 1));
                    Some(Value::Int(0))
                }
            },
            Foreign::Renew(who) => Some(Value::Int(own(&self.state, who).is_some().into())),
            Foreign::ForceUnlock | Foreign::Vanish => {
                Some(Value::Int(self.state.take().is_some().into()))
            }
        };
        let (body, who) = match step {
            Foreign::Lock(who) => (LOCK_STEP, who),
            Foreign::Unlock(who) => (UNLOCK_STEP, who),
            Foreign::Renew(who) => (RENEW_STEP, who),
            Foreign::ForceUnlock => (FORCE_STEP, ""),
            Foreign::Vanish => ("return redis.call('del', KEYS[1])", ""),
        };
        let mut command = redis::cmd("EVAL");
        command
            .arg(body)
            .arg(1)
            .arg(LOCK)
            .arg(CHANNEL)
            .arg(who)
            .arg(LEASES[1]);
        let reply = server::run(&mut self.connection, command).await;
        let reply = reply.map_err(|error| error.to_string())?;
        match expected {
            Some(expected) if expected != reply => Err(format!("{reply:?} for {expected:?}")),
            // If the lock is busy, the reply is the rest of our lease.
            None if !matches!(reply, Value::Int(1..)) => Err(format!("{reply:?} for a busy lock")),
            // Redisson sets its lease anew.
            _ => Ok(false),
        }
    }
}
