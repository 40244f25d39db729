//! Opening one connection, and how to behave when another is opened after it was cut.

use std::time::Duration;

use redis::{Cmd, ConnectionInfo, PushInfo, Value};

use super::refused::{Attempt, Step};
use super::target::Topology;
use super::{DialOptions, Relogin, Target, Wire, dial_options, stream};
use crate::backend::Fault;
use crate::backend::kit::login;
use crate::backend::redis::scripting::{self, faults};
use crate::backend::redis::sentinel::{Address, Named, Sentinels};
use crate::values::{Backoff, StoreError, clock};

/// What a user does who has been given the address of a replica.
pub(super) const NO_MASTER: &str =
    "The server is a replica: connect to its master, or to its Sentinels (`redis-sentinel://`)";

/// A connection that lived so long is replaced at once.
pub(crate) const STABLE: Duration = Duration::from_secs(1);

/// A connection, and to whom.
pub(crate) struct Dialed {
    pub(crate) connection: Wire,
    /// The master that the sentinels named; `None` where the URL names the server itself.
    pub(crate) master: Option<Address>,
    /// The task that renews the login. Keep it exactly as long as the connection.
    pub(crate) relogin: Option<Relogin>,
}

/// Connects and logs in, each step within `timeout`. Must run on the runtime that drives the connection.
///
/// `on_push` is called by the connection's own task: it must not block. One of the pushes is the client's
/// `Disconnection`.
pub(crate) async fn open(
    target: &Target,
    timeout: Duration,
    on_push: impl Fn(PushInfo) + Send + Sync + 'static,
) -> Result<Dialed, Fault> {
    match target.topology() {
        Topology::Fixed(info) => {
            let info = ConnectionInfo::clone(info);
            let opened = log_in(target, info, timeout, on_push).await;
            let (mut connection, relogin) = opened.map_err(|fault| fault.at(target.shown()))?;
            if target.wants_master() {
                let asked = ask_role(&mut connection, timeout).await;
                asked.map_err(|fault| match fault {
                    Fault::NotDone(source) => Fault::not_done(format!("{source}. {NO_MASTER}")),
                    fault => fault,
                })?;
            }
            Ok(Dialed {
                connection,
                master: None,
                relogin,
            })
        }
        Topology::Cluster(_) | Topology::Nowhere => {
            Err(Fault::not_done("the cluster names no such node"))
        }
        Topology::Sentinel(sentinels) => {
            let named = sentinels.resolve(target.dial_options(), timeout).await?;
            let opened = async {
                let (mut connection, relogin) =
                    log_in(target, named.info.clone(), timeout, on_push).await?;
                ask_role(&mut connection, timeout).await?;
                Ok((connection, relogin))
            };
            let (connection, relogin) = opened
                .await
                .map_err(|fault| of_master(fault, sentinels, &named))?;
            sentinels.confirmed(&named);
            let master = Some(named.address);
            Ok(Dialed {
                connection,
                master,
                relogin,
            })
        }
    }
}

/// Connects with a login that the credentials give, if there are any; else with that of the URL.
async fn log_in(
    target: &Target,
    info: ConnectionInfo,
    timeout: Duration,
    on_push: impl Fn(PushInfo) + Send + Sync + 'static,
) -> Result<(Wire, Option<Relogin>), Fault> {
    let options = target.dial_options();
    let Some(credentials) = &options.credentials else {
        return Ok((connect(info, options, timeout, on_push).await?, None));
    };
    let given = login::ask(credentials, timeout).await?;
    let info = dial_options::log_in_as(info, &given);
    let connection = connect(info, options, timeout, on_push).await?;
    let relogin = given.valid_for.map(|valid_for| {
        let server = target.shown().to_owned();
        Relogin::start(
            connection.clone(),
            credentials.clone(),
            valid_for,
            timeout,
            server,
        )
    });
    Ok((connection, relogin))
}

/// Adds to the fault the address of the master, and the sentinel that named it.
fn of_master(fault: Fault, sentinels: &Sentinels, named: &Named) -> Fault {
    let explained = |source: StoreError| {
        let (address, by, service) = (&named.address, &named.by, &sentinels.service);
        StoreError::new(format!(
            "the master {address} of the service `{service}` ({by}): {source}"
        ))
    };
    match fault {
        Fault::NotDone(source) | Fault::Unknown(source) => Fault::NotDone(explained(source)),
        Fault::Denied(source) => Fault::Denied(explained(source)),
        Fault::Impossible(why) => Fault::Impossible(explained(StoreError::new(why)).to_string()),
        fault => fault,
    }
}

/// Checks that a connection is still good: the server answers and, unless it is a node of a cluster, is a master. One that
/// was deposed behind the same name lives on: a new connection leads to the master that has the name now.
pub(crate) async fn sign_of_life(
    connection: &mut Wire,
    target: &Target,
    timeout: Duration,
) -> Result<(), Fault> {
    if target.wants_master() {
        return ask_role(connection, timeout).await;
    }
    let answered = sign(connection, &redis::cmd("PING"), timeout).await;
    answered.map(drop)
}

/// The answer to a command; `None` if the server refuses the command, which is a sign of life, too.
async fn sign(
    connection: &mut Wire,
    command: &Cmd,
    timeout: Duration,
) -> Result<Option<Value>, Fault> {
    match tokio::time::timeout(timeout, scripting::send(connection, command)).await {
        Ok(Ok(reply)) => Ok(Some(reply)),
        Ok(Err(error)) if faults::is_from_server(&error) => Ok(None),
        Ok(Err(error)) => Err(faults::of_call(&error)),
        Err(_) => Err(silent()),
    }
}

/// Asks for the role with HELLO, which every user may send. ROLE needs a right of its own.
async fn ask_role(connection: &mut Wire, timeout: Duration) -> Result<(), Fault> {
    let hello = sign(connection, &redis::cmd("HELLO"), timeout).await?;
    match hello.as_ref().and_then(role) {
        Some(role) if role != b"master" => Err(Fault::not_done(format!(
            "it is no master but a {}",
            String::from_utf8_lossy(role)
        ))),
        _ => Ok(()),
    }
}

fn role(hello: &Value) -> Option<&[u8]> {
    let text = |value: &'_ Value| matches!(value, Value::BulkString(name) if name == b"role");
    let Value::Map(fields) = hello else {
        return None;
    };
    match fields.iter().find(|(name, _)| text(name)) {
        Some((_, Value::BulkString(role))) => Some(role),
        _ => None,
    }
}

pub(crate) fn silent() -> Fault {
    Fault::unknown("the server gives no sign of life")
}

/// Connects to one server.
pub(crate) async fn connect(
    info: ConnectionInfo,
    options: &DialOptions,
    timeout: Duration,
    on_push: impl Fn(PushInfo) + Send + Sync + 'static,
) -> Result<Wire, Fault> {
    let (attempt, until) = (Attempt::of(&info, timeout), clock::now() + timeout);
    let stream = stream::open(info.addr(), None, options, attempt, until).await?;
    let greeting = Wire::begin(info.redis_settings(), stream, on_push);
    attempt.step(Step::Greeting, until, greeting).await
}

/// The pauses between two attempts to connect.
pub(crate) fn pauses() -> Backoff {
    Backoff::new(Duration::from_millis(50), Duration::from_millis(750))
}

/// Sleeps before the next attempt; wakes early when the master has moved.
pub(crate) async fn pause(pauses: &mut Backoff, target: &Target) {
    let pause = pauses.pause();
    match target.sentinels() {
        None => clock::sleep(pause).await,
        Some(sentinels) => sentinels.pause(pause).await,
    }
}
