//! Tests of the recipe for data in Redis.

use std::sync::{Mutex, PoisonError};

use lock_runtime::FencingToken;
use redis::{Connection, RedisResult};
use tests::{RedisServer, documented_recipe};

use crate::meter::{
    Meter, keeps_the_highest_of_many_writes_at_once,
    refuses_a_paused_holder_once_the_next_one_has_read, token,
};

const KEY: &str = "meter:gas";

struct RedisMeter(Mutex<Connection>);

impl RedisMeter {
    fn connect(server: &RedisServer) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        Self(Mutex::new(client.get_connection().unwrap()))
    }

    fn eval(&self, token: FencingToken, fields: &[&str]) -> RedisResult<u32> {
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        redis::cmd("EVAL")
            .arg(documented_recipe("Redis", "Write"))
            .arg(1)
            .arg(KEY)
            .arg(token.to_string())
            .arg(fields)
            .query(&mut *connection)
    }
}

impl Meter for RedisMeter {
    async fn raise_and_read(&self, token: FencingToken) -> Option<i64> {
        if self.eval(token, &[]).unwrap() == 0 {
            return None;
        }
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value: Option<i64> = redis::cmd("HGET")
            .arg(KEY)
            .arg("value")
            .query(&mut *connection)
            .unwrap();
        Some(value.unwrap_or(0))
    }

    async fn write(&self, token: FencingToken, value: i64) -> bool {
        self.eval(token, &["value", &value.to_string()]).unwrap() == 1
    }
}

#[tokio::test]
async fn redis_refuses_a_paused_holder_once_the_next_one_has_read() {
    let server = RedisServer::start();
    let meter = RedisMeter::connect(&server);
    refuses_a_paused_holder_once_the_next_one_has_read(&meter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_keeps_the_highest_of_many_writes_at_once() {
    let server = RedisServer::start();
    let connections = (0..8).map(|_| RedisMeter::connect(&server));
    keeps_the_highest_of_many_writes_at_once(connections.collect()).await;
}

#[test]
fn redis_compares_and_keeps_all_sixteen_digits_of_a_token() {
    let server = RedisServer::start();
    let meter = RedisMeter::connect(&server);
    let largest = (1 << 53) - 1;
    assert_eq!(meter.eval(token(largest), &[]), Ok(1));
    assert_eq!(meter.eval(token(largest - 1), &["value", "1"]), Ok(0));
    assert_eq!(
        server.query::<Vec<String>>(&["HGETALL", KEY]),
        ["fence", "9007199254740991"]
    );
}

#[test]
fn redis_writes_nothing_beside_a_fence_that_is_no_number() {
    let server = RedisServer::start();
    let meter = RedisMeter::connect(&server);
    let _: u32 = server.query(&["HSET", KEY, "fence", "junk"]);
    assert!(meter.eval(token(33), &["value", "1"]).is_err());
    assert_eq!(
        server.query::<Vec<String>>(&["HGETALL", KEY]),
        ["fence", "junk"]
    );
}
