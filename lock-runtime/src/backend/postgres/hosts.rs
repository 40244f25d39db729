//! The hosts of a URL, of which one is the primary.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_postgres::config::{Host, LoadBalanceHosts, TargetSessionAttrs};
use tokio_postgres::{Client, Config, Connection, Socket};

use super::faults;
use super::tls::{Encrypted, Tls};
use crate::backend::Fault;
use crate::values::error::StoreError;
use crate::values::handshake::Login;

/// What a client is told of each, one or more.
#[derive(Clone)]
pub(super) struct Hosts {
    each: Vec<Config>,
    /// The one that served last is asked first.
    last: Arc<AtomicUsize>,
}

impl Hosts {
    pub(super) fn new(mut each: Vec<Config>) -> Hosts {
        if each.len() > 1 {
            // A standby keeps no locks: with several hosts, one is looked for that can be written to.
            let any = TargetSessionAttrs::Any;
            let undecided = each
                .iter_mut()
                .filter(|one| one.get_target_session_attrs() == any);
            undecided.for_each(|one| {
                one.target_session_attrs(TargetSessionAttrs::ReadWrite);
            });
        }
        Hosts {
            each,
            last: Arc::default(),
        }
    }

    pub(super) fn have_password(&self) -> bool {
        self.each.iter().any(|one| one.get_password().is_some())
    }

    /// Hosts and ports.
    pub(super) fn places(&self) -> impl Iterator<Item = String> {
        self.each.iter().map(shown)
    }

    /// Connects to the first that can be written to, within `timeout`. Each has its share of the time: one that is frozen
    /// must not keep the others from being asked.
    pub(super) async fn connect(
        &self,
        login: Option<&Login>,
        tls: &Tls,
        timeout: Duration,
    ) -> Result<(Client, Connection<Socket, Encrypted>), Fault> {
        let count = self.each.len();
        let first = match self.each.first().map(Config::get_load_balance_hosts) {
            Some(LoadBalanceHosts::Random) => fastrand::usize(..count),
            _ => self.last.load(Ordering::Relaxed),
        };
        let share = timeout / u32::try_from(count).unwrap_or(u32::MAX);
        let mut refused = Vec::new();
        for index in (first..count).chain(0..first) {
            let mut config = self.each[index].clone();
            if let Some(login) = login {
                config.password(&login.password);
                if let Some(user) = &login.user {
                    config.user(user);
                }
            }
            let fault = match tokio::time::timeout(share, config.connect(tls.clone())).await {
                Ok(Ok(connected)) => {
                    self.last.store(index, Ordering::Relaxed);
                    return Ok(connected);
                }
                Ok(Err(error)) => faults::of_connecting(&error),
                Err(_) => {
                    let silent = StoreError::new(format!("no connection within {share:?}"));
                    Fault::NotDone(silent)
                }
            };
            refused.push((shown(&config), fault));
        }
        Err(together(refused))
    }
}

/// Why no host could be connected to. If one of them may be there later, a retry can help.
fn together(mut refused: Vec<(String, Fault)>) -> Fault {
    let mut hopeful = refused
        .iter()
        .map(|(_, fault)| matches!(fault, Fault::NotDone(_)));
    if refused.len() > 1 && hopeful.any(|hopeful| hopeful) {
        let all: Vec<String> = refused
            .iter()
            .map(|(host, fault)| format!("{host}: {fault}"))
            .collect();
        return Fault::not_done(all.join("; "));
    }
    let last = refused.pop().map(|(_, fault)| fault);
    last.unwrap_or_else(|| Fault::not_done("there is no host"))
}

/// `host:port`, or a path; several, if they came as parameters.
pub(super) fn shown(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
    let hosts = config.get_hosts().iter().enumerate();
    let hosts = hosts.map(|(index, host)| match host {
        Host::Tcp(name) => format!("{name}:{}", port(index)),
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    });
    hosts.collect::<Vec<_>>().join(",")
}
