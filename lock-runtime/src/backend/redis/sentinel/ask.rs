//! One question to one sentinel: where is the master of the service?

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionInfo, RedisError};

use super::Sentinels;
use super::answers::{SentinelAnswer, SentinelReport};
use crate::backend::Fault;
use crate::backend::redis::connection::refused::ServerPart;
use crate::backend::redis::connection::{DialOptions, Wire, dial};
use crate::backend::redis::scripting::{self, faults};

/// Connects, asks, and disconnects.
pub(super) async fn once(
    sentinels: &Sentinels,
    sentinel: ConnectionInfo,
    options: &DialOptions,
    timeout: Duration,
) -> Result<SentinelAnswer, Fault> {
    let connecting = dial::connect(
        sentinel,
        ServerPart::Sentinel,
        options,
        timeout,
        Arc::new(|_| ()),
    );
    again(sentinels, &mut connecting.await?, timeout).await
}

/// Asks on an open connection.
pub(super) async fn again(
    sentinels: &Sentinels,
    connection: &mut Wire,
    timeout: Duration,
) -> Result<SentinelAnswer, Fault> {
    let question = async {
        // The epoch comes first, then the address: a failover in between makes the epoch too low, never too high.
        let mut details = redis::cmd("SENTINEL");
        details.arg("MASTER").arg(&sentinels.service);
        let details = match scripting::send(connection, &details).await {
            Ok(reply) => redis::from_redis_value(reply).unwrap_or_default(),
            Err(error) if faults::is_from_server(&error) => HashMap::new(),
            Err(error) => return Err(error),
        };
        let mut where_is_it = redis::cmd("SENTINEL");
        where_is_it
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(&sentinels.service);
        let reply = scripting::send(connection, &where_is_it).await?;
        let address: Option<(String, u16)> = redis::from_redis_value(reply)?;
        let report = address.map(|(host, port)| SentinelReport {
            address: format!("{host}:{port}").into(),
            epoch: number(&details, "config-epoch"),
            others: number(&details, "num-other-sentinels").unwrap_or(0),
        });
        Ok::<_, RedisError>(report)
    };
    let refused = |error| of_refusal(faults::of_call(&error).of_a_question());
    let asked = async { question.await.map_err(refused) };
    scripting::in_time("SENTINEL", timeout, asked).await
}

/// Returns the fault of a refused question. A server that is not a Sentinel will not become one later.
fn of_refusal(fault: Fault) -> Fault {
    match fault {
        Fault::Denied(source) if source.to_string().contains("unknown command") => {
            Fault::impossible("it is not a Sentinel: if it is a Redis server, use `redis://`")
        }
        fault => fault,
    }
}

fn number<T: FromStr>(details: &HashMap<String, String>, name: &str) -> Option<T> {
    details.get(name)?.parse().ok()
}
