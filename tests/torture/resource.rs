//! The resource that the locks guard: for each key a fenced register and a counter, on a server of its own that no
//! fault touches.

use redis::aio::MultiplexedConnection;
use tests::server::patient;
use tests::workload::{Entered, Resource};

/// The script that accepts a token unless it has seen a higher one, and numbers what it accepts.
pub(crate) const ENTER: &str = "
local token, highest = tonumber(ARGV[1]), tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
local value = redis.call('HGET', KEYS[1], 'value') or '0'
if token < highest and ARGV[2] == 'checked' then
  return {0, redis.call('HGET', KEYS[1], 'accepted') or '0', value}
end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
return {1, tostring(redis.call('HINCRBY', KEYS[1], 'accepted', 1)), value}";

/// The script that overwrites the counter, as a careless user would, and counts how often that was done.
pub(crate) const SET: &str = "
redis.call('HSET', KEYS[1], 'value', ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'writes', 1)";

/// A client of the resource.
#[derive(Clone)]
pub(crate) struct RedisResource {
    connection: MultiplexedConnection,
    checks: &'static str,
}

impl RedisResource {
    /// Connects to the resource. `checked` says whether the register looks at tokens. One that does not is a planted
    /// bug.
    pub(crate) async fn connect(url: &str, checked: bool) -> Self {
        Self {
            connection: patient(url).await,
            checks: if checked { "checked" } else { "unchecked" },
        }
    }
}

impl Resource for RedisResource {
    async fn enter(&mut self, key: &str, token: u64) -> Entered {
        let mut command = redis::cmd("EVAL");
        command.arg(ENTER).arg(1).arg(register(key)).arg(token);
        command.arg(self.checks);
        let answer = command.query_async(&mut self.connection).await;
        let (accepted, number, value): (u8, u64, u64) = answer.expect("the register's answer");
        Entered {
            accepted: accepted == 1,
            number,
            value,
        }
    }

    async fn set(&mut self, key: &str, value: u64) {
        let mut command = redis::cmd("EVAL");
        command.arg(SET).arg(1).arg(register(key)).arg(value);
        let answer = command.query_async::<u64>(&mut self.connection).await;
        answer.expect("the counter is written");
    }
}

/// Returns the name of the hash that holds a key's register and counter.
pub(crate) fn register(key: &str) -> String {
    format!("resource:{key}")
}
