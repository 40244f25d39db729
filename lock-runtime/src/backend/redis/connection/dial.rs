//! Opens one connection, and says how to behave before another attempt.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, ConnectionAddr, ConnectionInfo, Value};
use tokio::task::JoinSet;

use super::refused::{DialAttempt, DialStep, ServerPart};
use super::target::Topology;
use super::wire::OnPush;
use super::{DialOptions, Target, Wire, dial_options, relogin, stream, url};
use crate::backend::Fault;
use crate::backend::kit::hosts::{Address, Host, Hosts};
use crate::backend::kit::login;
use crate::backend::redis::scripting::{self, faults};
use crate::backend::redis::sentinel::{NamedMaster, Sentinels};
use crate::values::{Backoff, clock};

/// Advice for a user who has given the address of a replica.
pub(super) const NO_MASTER: &str =
    "The server is a replica: connect to its master, or to its Sentinels (`redis-sentinel://`)";

/// A connection that has lived this long is replaced at once.
pub(crate) const STABLE: Duration = Duration::from_secs(1);

/// A connection, and the master to which it leads.
pub(crate) struct Dialed {
    pub(crate) connection: Wire,
    /// The master that the sentinels named; `None` if the URL names the server itself.
    pub(crate) master: Option<Address>,
    /// The task that renews the login, if the login expires.
    _relogin: JoinSet<()>,
}

impl Dialed {
    /// Resolves with the reason once the connection is of no use any more.
    pub(crate) async fn ended(&self, target: &Target) -> Fault {
        tokio::select! {
            () = self.connection.cut() => Fault::unknown("the connection was cut"),
            () = target.superseded(&self.master) => moved(),
        }
    }
}

/// Returns the fault for a master that has moved. Calls under way go on and their answers count, those of renewals until there
/// is a connection to the new master; later calls go there.
pub(crate) fn moved() -> Fault {
    Fault::unknown("the master has moved")
}

/// Connects and logs in, each step within `timeout`, and makes sure that a node of a cluster is one. Must run on the runtime
/// that drives the connection.
///
/// The connection's own task calls `on_push`, which must not block.
pub(crate) async fn open(
    target: &Target,
    timeout: Duration,
    on_push: OnPush,
) -> Result<Dialed, Fault> {
    let dialed = reach(target, timeout, on_push).await?;
    if let Topology::Node(_, members) = target.topology() {
        let admitted = members.admit(&dialed.connection, target.shown(), timeout);
        admitted.await?;
    }
    Ok(dialed)
}

/// Like [`open`], for a caller that judges itself which cluster answers.
pub(crate) async fn reach(
    target: &Target,
    timeout: Duration,
    on_push: OnPush,
) -> Result<Dialed, Fault> {
    let (info, part) = match target.topology() {
        Topology::Server(info) => (info, ServerPart::Server),
        Topology::Node(info, _) => (info, ServerPart::Node),
        Topology::Cluster(_) => return Err(Fault::not_done("the cluster names no such node")),
        Topology::Sentinel(sentinels) => {
            return reach_master(target, sentinels, timeout, on_push).await;
        }
    };
    let info = ConnectionInfo::clone(info);
    let opened = log_in(target, info, part, timeout, on_push).await;
    opened.map_err(|fault| fault.at(target.shown()))
}

/// Connects to the master that the sentinels name.
async fn reach_master(
    target: &Target,
    sentinels: &Arc<Sentinels>,
    timeout: Duration,
    on_push: OnPush,
) -> Result<Dialed, Fault> {
    let resolving = sentinels.resolve(target.dial_options(), timeout);
    let (named, instead) = resolving.await?;
    let opened = open_named(target, sentinels, named, timeout, &on_push).await;
    match (opened, instead) {
        // A server that refuses the login is there, and may be the master.
        (Err(fault), Some(instead)) if !matches!(fault, Fault::Denied(_)) => {
            let opened = open_named(target, sentinels, instead, timeout, &on_push);
            // Another connection may have reached the known master meanwhile.
            if sentinels.is_away() {
                opened.await
            } else {
                Err(fault)
            }
        }
        (opened, _) => opened,
    }
}

/// Connects to a master that the sentinels named. It must say itself that it is one.
async fn open_named(
    target: &Target,
    sentinels: &Sentinels,
    named: NamedMaster,
    timeout: Duration,
    on_push: &OnPush,
) -> Result<Dialed, Fault> {
    let info = url::at(&sentinels.server, &named.address, sentinels.tls);
    let opened = log_in(
        target,
        info,
        ServerPart::NamedMaster,
        timeout,
        on_push.clone(),
    )
    .await;
    let opened = opened.map_err(|fault| {
        let (address, by, service) = (&named.address, &named.by, &sentinels.service);
        let master = format!("the master {address} of the service `{service}` ({by})");
        fault.of_a_question().about(master)
    })?;
    sentinels.confirmed(&named);
    Ok(Dialed {
        master: Some(named.address),
        ..opened
    })
}

/// Connects with a login from the credentials, if there are any, or else with that of the URL.
async fn log_in(
    target: &Target,
    info: ConnectionInfo,
    part: ServerPart,
    timeout: Duration,
    on_push: OnPush,
) -> Result<Dialed, Fault> {
    let options = target.dial_options();
    let (mut info, mut expires) = (info, None);
    if let Some(credentials) = &options.handshake.credentials {
        let given = login::ask(credentials, timeout).await?;
        info = dial_options::log_in_as(info, &given);
        expires = given.valid_for.map(|after| (credentials.clone(), after));
    }
    let connection = connect(info, part, options, timeout, on_push).await?;
    let mut relogin = JoinSet::new();
    if let Some((credentials, after)) = expires {
        let (connection, server) = (connection.clone(), target.shown().to_owned());
        relogin.spawn(relogin::keep(
            connection,
            credentials,
            after,
            timeout,
            server,
        ));
    }
    Ok(Dialed {
        connection,
        master: None,
        _relogin: relogin,
    })
}

/// Checks that a connection is still good: the server answers and, unless it is a node of a cluster, is a master. A
/// connection to a master that was deposed behind the same name stays open; a new connection leads to the master that
/// has the name now.
pub(crate) async fn sign_of_life(
    connection: &mut Wire,
    target: &Target,
    timeout: Duration,
) -> Result<(), Fault> {
    match target.topology() {
        Topology::Node(..) => sign(connection, &redis::cmd("PING"), timeout)
            .await
            .map(drop),
        _ => ask_role(connection, timeout).await,
    }
}

/// Returns the answer to a command; `None` if the server refuses the command, which is a sign of life, too.
pub(super) async fn sign(
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

/// Asks for the role by HELLO, which every user may send. ROLE needs a right of its own.
/// A replica refuses writes, or, if it is configured so, accepts them and forgets them.
async fn ask_role(connection: &mut Wire, timeout: Duration) -> Result<(), Fault> {
    let hello = sign(connection, &redis::cmd("HELLO"), timeout).await?;
    match hello
        .as_ref()
        .and_then(|hello| scripting::hello_field(hello, "role"))
    {
        Some(role) if role != b"master" => Err(Fault::not_done(format!(
            "it is not a master but a {}",
            String::from_utf8_lossy(role)
        ))),
        _ => Ok(()),
    }
}

pub(crate) fn silent() -> Fault {
    Fault::unknown("the server gives no sign of life")
}

/// Connects to one server: to the first address of its name that answers and, where a master is wanted, is a master.
pub(crate) async fn connect(
    info: ConnectionInfo,
    part: ServerPart,
    options: &DialOptions,
    timeout: Duration,
    on_push: OnPush,
) -> Result<Wire, Fault> {
    let hosts = Hosts::with(vec![DialPlace { info, at: None }], options.names.clone());
    let on_push = &on_push;
    let shown = |place: &DialPlace| place.info.addr().to_string();
    let connecting = hosts.connect(false, timeout, shown, |place, share| async move {
        let until = clock::now() + share;
        let attempt = DialAttempt {
            server: &place.info,
            part,
            within: share,
            until,
        };
        let stream = stream::open(place.at, options, attempt).await?;
        let greeting = Wire::begin(place.info.redis_settings(), stream, on_push.clone());
        let mut wire = attempt.step(DialStep::Greeting, greeting).await?;
        match part {
            ServerPart::Sentinel | ServerPart::Node => {}
            ServerPart::NamedMaster => ask_role(&mut wire, until.remaining()).await?,
            ServerPart::Server => {
                ask_role(&mut wire, until.remaining())
                    .await
                    .map_err(|fault| match fault {
                        Fault::NotDone(source) => Fault::not_done(format!("{source}. {NO_MASTER}")),
                        fault => fault,
                    })?
            }
        }
        Ok(wire)
    });
    connecting.await
}

/// A server, and one of the addresses of its name.
#[derive(Clone)]
struct DialPlace {
    info: ConnectionInfo,
    at: Option<IpAddr>,
}

impl Host for DialPlace {
    fn name(&self) -> Option<(&str, u16)> {
        let (host, port) = match self.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                (host, *port)
            }
            _ => return None,
        };
        // An address may have a zone, as in `fe80::1%eth0`.
        let is_address = host.parse::<IpAddr>().is_ok() || host.contains('%');
        (!is_address).then_some((host, port))
    }

    fn address(&self) -> Option<IpAddr> {
        self.at
    }

    fn at(&self, address: IpAddr, _: bool) -> DialPlace {
        DialPlace {
            at: Some(address),
            ..self.clone()
        }
    }
}

/// Returns the pauses between two attempts to connect.
pub(crate) fn pauses() -> Backoff {
    Backoff::new(Duration::from_millis(50), Duration::from_millis(750))
}

/// Sleeps before the next attempt. Ends early when the master has moved.
pub(crate) async fn pause(pauses: &mut Backoff, target: &Target) {
    let pause = pauses.pause();
    match target.sentinels() {
        None => clock::sleep(pause).await,
        Some(sentinels) => sentinels.pause(pause).await,
    }
}
